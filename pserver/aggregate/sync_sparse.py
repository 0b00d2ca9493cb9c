"""Add the gradients of rows of all trainers in trainer-id order, then take one step (synchronous sparse services).

A trainer requests the rows of a batch before it computes the batch, and then pushes the gradients of these rows. A
round waits for the gradients of every trainer and discards none. If a trainer already knows the rows of its next batch,
its push asks for them, and the answer contains the values that they have after the step.

An array of rows has the following form on the wire, for T tables, little-endian and without gaps:

    u32 x T    the number of rows of each table
    u32 ...    the numbers of these rows on the service, table by table, ascending in each table
    f32 ...    the rows, in the same order; absent in a request for rows

An answer contains only the rows. The answer to gradients is empty: it reports that the gradients are applied. After
the gradients of a push with the flag ROWS, the array continues with a request for rows in the same form, and the answer
contains these rows. An array arrives in pieces, which are first joined.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

import numpy as np

from paddle_base.kernels.tables import RowIds, is_rising
from paddle_base.runtime.errors import BugError
from pserver.optim.settings import Array
from pserver.store.sparse_shard import SparseGradient, SparseShard
from pserver.wire import protocol
from pserver.wire.protocol import Buffer, MessageFlag

NO_MEMORY = memoryview(b"")


class SparseInbox:
    """For each trainer, the gradients of rows and the requests for rows that have arrived."""

    answers_with_values: Literal[False] = False
    counts_passes = True  # as in v0.10, the shard is informed of the end of a pass even in asynchronous training
    is_asynchronous: bool
    pieces = 1  # number of pieces of a gradient of rows, as far as rounds count them
    push_bytes: int | None = None  # the length of a gradient depends on its rows

    def __init__(self, shard: SparseShard) -> None:
        self.shard = shard
        groups = shard.groups
        self._tables = [(one.settings.name, one.rows, one.settings.row_width) for one in groups]
        # the lengths in bytes of a request for every row, and of the gradients of every row
        self._most_request = 4 * sum(1 + rows for _, rows, _ in self._tables)
        self._most_gradients = self._most_request + 4 * sum(rows * width for _, rows, width in self._tables)
        self._arriving: dict[int, Joined] = {}
        self._asking: dict[int, Joined] = {}
        # memory for the answer to each trainer; reused when the trainer sends its next request
        self._answers: dict[int, Array] = {}
        self._gradients: dict[int, list[SparseGradient]] = {}  # the complete gradients of each trainer
        self._samples: dict[int, int] = {}
        # the rows of each table that the push of a trainer asks for; the trainer gets them after the step
        self._wanted: dict[int, list[RowIds]] = {}

    @property
    def values(self) -> memoryview:
        """All rows after the last step, as bytes."""
        self.shard.catch_up()
        return self.shard.values.view("B").data

    def add(self, trainer: int, piece: int, payload: Buffer, samples: int, flags: int, length: int) -> None:
        """Store a piece of a trainer's gradients, which have `length` bytes in total.

        Raises: BugError: the piece does not exist or is sent twice, or the array does not name rows of this service.
        """
        if trainer in self._gradients:
            raise BugError(f"trainer {trainer} pushes the gradients of rows twice before a step is taken")
        asks = bool(flags & MessageFlag.ROWS)
        if asks and self.is_asynchronous:  # other steps would come between this answer and the trainer's next batch
            raise BugError(f"trainer {trainer} asks for rows in a push, which an asynchronous service does not answer")
        most = self._most_gradients + asks * self._most_request
        whole = _join(self._arriving, trainer, piece, payload, length, most)
        if whole is None:
            return
        rows, gradients = self._split(whole)
        expected = self.shard.count_elements(rows)
        if gradients.size < expected or (gradients.size > expected and not asks):
            raise BugError(
                f"trainer {trainer} pushes {gradients.size} numbers as the gradients of rows with {expected} elements"
            )
        if asks:
            self._wanted[trainer] = self._read_request(trainer, gradients[expected:])
        parts, start = [], 0
        for one, (_, _, width) in zip(rows, self._tables, strict=True):
            end = start + one.size * width
            parts.append((one, gradients[start:end].reshape(-1, width)))
            start = end
        self._gradients[trainer] = parts
        self._samples[trainer] = samples

    def drop(self, trainer: int) -> None:
        """Drop the gradients of a trainer that have not been applied."""
        for kept in (self._arriving, self._gradients, self._samples, self._wanted):
            kept.pop(trainer, None)

    def free(self, trainer: int) -> None:
        """Release the memory of a trainer that has left."""
        for kept in (self._asking, self._answers):
            kept.pop(trainer, None)

    def look_up(self, trainer: int, piece: int, payload: Buffer, length: int) -> memoryview | None:
        """Store a piece of a request for rows; return the current rows when the request is complete.

        Raises: BugError: see `add`.
        """
        whole = _join(self._asking, trainer, piece, payload, length, self._most_request)
        if whole is None:
            return None
        return self._answer(trainer, self._read_request(trainer, whole))

    def take_wanted(self, trainer: int, shared: memoryview = NO_MEMORY) -> memoryview | None:
        """Return the current values of the rows that a trainer's last push asks for; None if it asks for none.

        Args: shared: memory that contains the result if it is long enough.
        """
        rows = self._wanted.pop(trainer, None)
        return None if rows is None else self._answer(trainer, rows, shared)

    def _read_request(self, trainer: int, array: Array) -> list[RowIds]:
        """Return the row numbers of each table that a request for rows names.

        Raises: BugError: see `_split`.
        """
        rows, more = self._split(array)
        if more.size:
            raise BugError(f"trainer {trainer} asks for rows with an array that has {more.size} numbers too many")
        return rows

    def _answer(self, trainer: int, rows: Sequence[RowIds], shared: memoryview = NO_MEMORY) -> memoryview:
        """Return the current values of rows, in the shared memory or in the memory for the answers to a trainer."""
        count = self.shard.count_elements(rows)
        if 0 < 4 * count <= len(shared):
            self.shard.take(rows, np.frombuffer(shared[: 4 * count], np.float32))
            return shared[: 4 * count]
        if trainer not in self._answers or len(self._answers[trainer]) < count:
            self._answers[trainer] = np.empty(count + count // 4, np.float32)
        return self.shard.take(rows, self._answers[trainer][:count]).view("B").data

    def _split(self, whole: Array) -> tuple[list[RowIds], Array]:
        """Return the row numbers of each table, and the floats that follow them in the array.

        The row numbers are copied before they are checked, because a trainer can change an array in shared memory.
        Raises: BugError: the array does not name rows of this service.
        """
        numbers = whole.view(np.uint32)
        start = len(self._tables)
        counts = numbers[:start].tolist()
        if len(counts) != start or start + sum(counts) > numbers.size:
            raise BugError(f"an array of {numbers.size} numbers cannot name {counts} rows of {start} tables")
        rows = []
        for count, (name, most, _) in zip(counts, self._tables, strict=True):
            some = numbers[start : start + count].copy()
            start += count
            if not is_rising(some, most):
                raise BugError(f"the row numbers of parameter {name} are not ascending numbers below {most}")
            rows.append(some)
        return rows, whole[start:]


class SparseRounds(SparseInbox):
    """The open round of one sparse service: the trainers whose gradients are complete."""

    is_asynchronous: Literal[False] = False

    def __init__(self, shard: SparseShard) -> None:
        super().__init__(shard)
        self._asked = MessageFlag.NONE
        self._is_stepped = False

    @property
    def is_open(self) -> bool:
        """Whether any piece of the round has arrived."""
        return bool(self._arriving or self._gradients)

    def has_all_of(self, trainer: int) -> bool:
        """Return whether a trainer has sent all its pieces."""
        return trainer in self._gradients

    def list_missing(self, trainers: Set[int]) -> list[int]:
        """Return those of some trainers that have not sent all their pieces, ascending."""
        return sorted(trainers - self._gradients.keys())

    def add(self, trainer: int, piece: int, payload: Buffer, samples: int, flags: int, length: int) -> None:
        """Store a piece of a trainer's gradients, see `SparseInbox.add`."""
        super().add(trainer, piece, payload, samples, flags, length)
        self._asked |= flags & MessageFlag.CHECKPOINT

    def waits(self, piece: int, trainers: int) -> bool:
        """Return whether the gradients of fewer than `trainers` trainers are complete; they count as one piece."""
        return len(self._gradients) < trainers

    def step(self, pieces: Sequence[int], trainers: Sequence[int]) -> list[int]:
        """If the gradients of all trainers of the round are complete, apply them and return [0]; else return []."""
        if not trainers or any(trainer not in self._gradients for trainer in trainers):
            return []
        self.shard.step_sparse([self._gradients[trainer] for trainer in trainers], sum(self._samples.values()))
        self._gradients.clear()
        self._samples.clear()
        self._is_stepped = True
        return [0]

    def finish(self) -> int | None:
        """End the round if its gradients were applied. Return the combined flags of the round's pushes, or None if
        the round is still open.
        """
        if not self._is_stepped:
            return None
        asked, self._asked, self._is_stepped = self._asked, MessageFlag.NONE, False
        return asked


class Joined:
    """Join the pieces of one array.

    Args: length: length of the array in bytes.
    """

    def __init__(self, length: int) -> None:
        self._array = np.empty(length // 4, np.float32)
        self._missing = set(range(protocol.count_pieces(length)))

    def add(self, piece: int, payload: Buffer) -> Array | None:
        """Copy a piece into the array; return the array when it is complete, else None.

        Raises: BugError: the array has no such piece, or the piece is sent twice.
        """
        target = protocol.cut(self._array.view("B").data, piece)
        given = memoryview(payload)
        if piece not in self._missing or given.nbytes != len(target):
            raise BugError(
                f"piece {piece} of an array of rows is sent twice, or has {given.nbytes} bytes instead of {len(target)}"
            )
        target[:] = given.cast("B")
        self._missing.discard(piece)
        return None if self._missing else self._array


def _join(
    arriving: dict[int, Joined], trainer: int, piece: int, payload: Buffer, length: int, most: int
) -> Array | None:
    """Return the whole array when its last piece arrives, else None; an array of a single piece is not copied.

    Args: arriving: the incomplete array of each trainer.  length: length of this trainer's array in bytes.
        most: maximum of `length`.
    Raises: BugError: the array would be longer than `most`, or has no such piece.
    """
    if not 0 <= length <= most or length % 4:
        raise BugError(
            f"trainer {trainer} announces rows of {length} bytes in total; the total must be a multiple of 4, and at "
            f"most {most}"
        )
    view = memoryview(payload)
    if protocol.count_pieces(length) == 1 and view.nbytes == length and piece == 0:
        whole = np.frombuffer(view, np.float32)
        return whole if whole.flags.aligned else whole.copy()
    if trainer not in arriving:
        arriving[trainer] = Joined(length)
    joined = arriving[trainer].add(piece, payload)
    if joined is not None:
        del arriving[trainer]
    return joined

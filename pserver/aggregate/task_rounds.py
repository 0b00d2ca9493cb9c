"""Synchronous rounds in two phases, for trainers that join and leave; `round_agreement` describes the phases.

A view is an epoch number and the set of trainers that take part in the rounds of this epoch. A round is prepared on a
service when the service has the gradients of all members of the view. The service stores the gradients until COMMIT,
and then adds them in the order of the trainers' numbers. Jobs with fixed trainers use the same code to add gradients,
and therefore get bit-equal results. A dropped round has changed no value. The module does no input or output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from paddle_base.runtime.errors import BugError
from pserver.aggregate.sync_dense import SynchronousRounds
from pserver.aggregate.sync_sparse import SparseRounds
from pserver.store.shard import Shard
from pserver.wire.protocol import Buffer
from pserver.wire.views import NO_ROUND, EnterAnswer, EpochChangedError, MembershipView, RoundKey

# maximum number of trainers whose last round is stored; above this number, the oldest stored rounds are deleted
MAX_OWN = 1 << 16


class GradientPiece(NamedTuple):
    """A piece of a trainer's dense gradient or of its gradients of rows.

    `length`: for gradients of rows, the total bytes of all pieces; for a dense gradient, it is not used.
    """

    piece: int
    payload: Buffer
    samples: int
    length: int = 0


class TwoPhaseRounds:
    """The rounds of one service.

    Args: rounds: the object that adds gradients and takes steps. done, own: the attributes `done` and `own` in the
        snapshot that the service resumes from, if any.

    Attributes:

    - `epoch`: epoch of the view that was entered last; 0: no view was entered.
    - `members`: the members of this view; None: no view was entered since this service started.
    - `done`: the last completed round.
    - `prepared`: the prepared round, for which the gradients of all members are complete; None: no round is prepared.
    - `own`: for each trainer, the last completed round that contains the trainer's gradient.
    """

    def __init__(
        self,
        rounds: SynchronousRounds | SparseRounds,
        done: RoundKey = NO_ROUND,
        own: Mapping[int, RoundKey] | None = None,
    ) -> None:
        self.rounds = rounds
        self.epoch = done.epoch
        self.members: tuple[int, ...] | None = None
        self.done = done
        self.prepared: RoundKey | None = None
        self.own = dict(own or {})
        self._open: RoundKey | None = None  # see `open`
        self._pass = 0  # the largest pass number of the stored gradients
        self._pieces: dict[int, int] = {}  # for each trainer, the number of stored pieces of its gradient
        self._complete: set[int] = set()  # the trainers with complete gradients
        self._order: list[int] = []  # ids of the trainers of the prepared round, ascending

    @property
    def open(self) -> RoundKey | None:
        """The round of which this service has stored some gradients, but not yet all; None: there is no such round."""
        return self._open

    def list_missing(self) -> list[int]:
        """Return the members whose gradients the open round waits for, or [] if no round is open."""
        return [] if self._open is None else [one for one in self.members or () if one not in self._complete]

    # ----- Views -----

    def enter(self, view: MembershipView) -> bool:
        """Enter a view; return whether the view is new on this service.

        If the view is new, the service drops the gradients of a round that is not prepared.

        Raises: EpochChangedError: this service has already entered a later view. BugError: this service has already
            entered the same epoch with other members.
        """
        if view.epoch < self.epoch:
            raise EpochChangedError(
                f"epoch {view.epoch} is over: this service is already in epoch {self.epoch}", self.epoch
            )
        if view.epoch > self.epoch:
            self.epoch, self.members = view
            self._drop_open()
            return True
        if self.members is None:
            self.members = view.members
        if view.members != self.members:
            raise BugError(
                f"epoch {view.epoch} has the members {self.members}, but a trainer sent the members {view.members}"
            )
        return False

    def describe(self, trainer: int) -> EnterAnswer:
        """Return the answer to a trainer's ENTER, which describes the rounds of this service."""
        return EnterAnswer(self.done, self.prepared, self.own.get(trainer))

    # ----- Rounds -----

    def add(self, trainer: int, key: RoundKey, one: GradientPiece, pass_number: int) -> bool:
        """Store a piece of a trainer's gradient without copying it. Return whether the round is prepared now.

        Args: pass_number: number of the pass that the gradient belongs to.
        Raises: EpochChangedError: the round cannot be open on this service; the trainer must enter the view again.
            BugError: the trainer is not a member of the view; the piece is invalid, see `SynchronousRounds.add`.
        """
        if key.epoch != self.epoch:
            raise EpochChangedError(f"a push is for {key}, but this service is in epoch {self.epoch}", self.epoch)
        if self.members is None or trainer not in self.members:
            raise BugError(
                f"trainer {trainer} pushes a gradient, but is not one of the members {self.members} of "
                f"epoch {self.epoch}"
            )
        # a trainer whose connection broke pushes again; its gradient is already part of the prepared round
        if key == self.prepared:
            return True
        # members that enter a view commit the prepared round first, if it counts; a push shows that it does not count
        if self.prepared is not None and self.prepared.epoch < self.epoch:
            self._drop(self._order)
            self.prepared, self._pass = None, 0
        if key <= self.done or self.prepared is not None or self._open not in (None, key):
            known = self.prepared or self._open or self.done
            raise EpochChangedError(f"a push is for {key}, but the last round of this service is {known}", self.epoch)
        self.rounds.add(trainer, one.piece, one.payload, one.samples, 0, one.length)
        self._open = key
        self._pass = max(self._pass, pass_number)
        self._pieces[trainer] = self._pieces.get(trainer, 0) + 1
        if self._pieces[trainer] >= self.rounds.pieces and self.rounds.has_all_of(trainer):
            self._complete.add(trainer)
        if len(self._complete) == len(self.members):
            self.prepared, self._open, self._order = key, None, sorted(self._complete)
            self._complete.clear()
            self._pieces.clear()
        return self.prepared is not None

    def skip(self, trainer: int, key: RoundKey) -> bool:
        """Drop the open round if a member pushes for a later round of the epoch; return whether the round was dropped.

        A push for a later round shows that the gradients of the open round have counted on another service. This
        service has been restarted, and did not complete the open round. The other members must enter the view again to
        learn that the round has counted.
        """
        is_member = trainer in (self.members or ())
        if self._open is None or not is_member or key.epoch != self.epoch or key <= self._open:
            return False
        self._drop_open()
        return True

    def drop(self, trainer: int) -> None:
        """Drop a trainer's gradients of an unprepared round, because the trainer has left or sends them again."""
        if trainer in self._pieces:
            self._drop([trainer])
        if not self._pieces:
            self._open = None

    def commit(self, key: RoundKey, view: int) -> bool:
        """Apply the gradients of the prepared round and return True; return False if an earlier call has applied them.

        Args: view: the epoch that the trainer has entered.
        Raises: EpochChangedError: a later view was entered on this service, or the round is neither prepared nor the
            last completed round.
        """
        if view != self.epoch:
            raise EpochChangedError(
                f"a trainer of epoch {view} commits {key}, but this service is in epoch {self.epoch}", self.epoch
            )
        if key == self.done:
            return False
        if key != self.prepared:
            raise EpochChangedError(
                f"a commit is for {key}, but the last round of this service is {self.prepared or self.done}", self.epoch
            )
        advance_pass(self.rounds.shard, self._pass)
        self.rounds.step(range(self.rounds.pieces), self._order)
        self.rounds.finish()
        self.done, self.prepared = key, None
        self.own |= dict.fromkeys(self._order, key)
        if len(self.own) > MAX_OWN:
            self.own = dict(sorted(self.own.items(), key=lambda item: item[1])[MAX_OWN // 2 :])
        self._pass = 0
        return True

    def _drop_open(self) -> None:
        self._drop(list(self._pieces))
        self._open = None
        self._pass = 0

    def _drop(self, trainers: list[int]) -> None:
        for trainer in trainers:
            self.rounds.drop(trainer)
            self._pieces.pop(trainer, None)
            self._complete.discard(trainer)


def advance_pass(shard: Shard, number: int) -> None:
    """Finish all passes of a shard that precede the pass with this number.

    Several passes may end at once, because a service may receive no gradient in a pass. The shard then handles them as
    a single end of a pass.
    """
    if number > shard.passes:
        shard.finish_pass()
        shard.passes = number

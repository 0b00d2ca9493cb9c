"""The members of synchronous rounds of a task job, and the keys of these rounds, in the form of notes.

ENTER   {"epoch": E, "members": [0, 2]}         PING of a heartbeat: the same
        answered by {"done": [E, r], "prepared": [E, r] or null, "own": [E, r] or null}
PUSH    {"epoch": E, "round": r, "pass": p}     on every piece
COMMIT  {"epoch": E, "round": r, "view": E'}    E': the epoch that the trainer has entered last

The master defines the view: an epoch, and the numbers of the trainers with a task. `docs/protocol.md` describes the
messages. No I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from paddle_base.runtime.errors import BugError, PaddleError
from paddle_base.runtime.schema import Integer, Items, Maybe, Row
from pserver.wire import notes

MAX_EPOCH = (1 << 63) - 1  # maximum epoch; the master combines the token of its leadership and a counter into an epoch
MAX_NUMBER = (1 << 31) - 1  # highest number of a trainer, which is an i32 of the header
MAX_MEMBERS = 4096  # maximum number of members: their numbers fit into a note of SMALL_NOTE_BYTES
MAX_PASS = 1 << 30  # highest number of a pass
EPOCH_CODE = "epoch"  # marks an ERROR as `EpochChangedError`
NUMBER = Integer(0, MAX_NUMBER)
EPOCH = Integer(1, MAX_EPOCH)
ROUND = Row((Integer(0, MAX_EPOCH), Integer(0, MAX_EPOCH)))  # a RoundKey
_MEMBERS, _PASS = Items(NUMBER, MAX_MEMBERS), Integer(0, MAX_PASS)


class EpochChangedError(PaddleError):
    """A request belongs to another membership epoch than the service.

    The trainer then enters the newest view and repeats the request.

    Attributes: epoch: epoch of the service; 0: the service has entered no view, or the error contains no epoch.
    """

    exit_code = 75

    def __init__(self, message: str, epoch: int = 0) -> None:
        super().__init__(message)
        self.epoch = epoch


class MembershipView(NamedTuple):
    """The trainers that take part in rounds.

    `epoch`: a number from 1; a later view has a larger epoch.  `members`: the numbers of these trainers, ascending.
    """

    epoch: int
    members: tuple[int, ...]


class RoundKey(NamedTuple):
    """The key of a round; a later round has a larger key. `number` counts the rounds of the epoch from 1."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"round {self.number} of epoch {self.epoch}"


NO_ROUND = RoundKey(0, 0)


class EnterAnswer(NamedTuple):
    """A service's answer to ENTER.

    - `done`: the last completed round, or NO_ROUND.
    - `prepared`: the round with complete gradients that waits for COMMIT.
    - `own`: the last completed round with a gradient of the trainer that has sent ENTER.
    """

    done: RoundKey
    prepared: RoundKey | None = None
    own: RoundKey | None = None


# ----- Notes -----


def write_view(view: MembershipView) -> dict[str, Any]:
    """Return the view as the note of an ENTER message, or of a PING message on the heartbeat connection."""
    return {"epoch": view.epoch, "members": list(view.members)}


def read_view(note: Mapping[str, Any]) -> MembershipView:
    """Return the view in a note.

    Raises: BugError: a field is invalid; the message names the field.
    """
    epoch, members = notes.get(note, "epoch", EPOCH), notes.get(note, "members", _MEMBERS)
    for previous, one in itertools.pairwise(members):
        if one <= previous:
            raise BugError(f"its members contain {one} after {previous}; they must be ascending numbers of trainers")
    return MembershipView(epoch, tuple(members))


def write_push(key: RoundKey, number: int) -> dict[str, Any]:
    """Return the note of a piece of a PUSH in a round.

    Args: number: number of the pass.
    """
    return {"epoch": key.epoch, "round": key.number, "pass": number}


def write_commit(key: RoundKey, view: int) -> dict[str, Any]:
    """Return the note of a COMMIT.

    Args: view: the epoch that the trainer has entered last.
    """
    return {"epoch": key.epoch, "round": key.number, "view": view}


def read_key(note: Mapping[str, Any]) -> RoundKey:
    """Return the round in a note of PUSH or COMMIT.

    Raises: BugError: a field is invalid; the message names the field.
    """
    return RoundKey(notes.get(note, "epoch", EPOCH), notes.get(note, "round", EPOCH))


def read_pass(note: Mapping[str, Any]) -> int:
    """Return the pass in a note of PUSH.

    Raises: BugError: the pass is invalid.
    """
    return int(notes.get(note, "pass", _PASS))


def write_answer(answer: EnterAnswer) -> dict[str, Any]:
    """Return the note of the answer to ENTER."""
    return {name: None if key is None else list(key) for name, key in answer._asdict().items()}


def read_answer(note: Mapping[str, Any]) -> EnterAnswer:
    """Return the content of the answer to ENTER.

    Raises: BugError: a field is invalid; the message names the field.
    """
    prepared, own = (notes.get(note, name, Maybe(ROUND)) for name in ("prepared", "own"))
    return EnterAnswer(
        RoundKey(*notes.get(note, "done", ROUND)), prepared and RoundKey(*prepared), own and RoundKey(*own)
    )


def read_epoch(note: Mapping[str, Any]) -> int | None:
    """Return the service's epoch in the note of an ERROR that is an `EpochChangedError`, otherwise None."""
    epoch = note.get("epoch")
    if note.get("code") != EPOCH_CODE:
        return None
    return epoch if isinstance(epoch, int) and notes.is_integer(epoch, 0, MAX_EPOCH) else 0

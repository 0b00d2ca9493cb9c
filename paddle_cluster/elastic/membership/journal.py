"""The decisions of a driver in the registry of the job, from which a restarted driver continues the job.

- `elastic/lead`: the lease of the leading driver.
- `elastic/state`: a `DriverRecord`. The driver writes each decision before it carries the decision out.

A driver that loses its lease, or cannot write a record, ends at once and does not end its workers. The next driver
takes over the workers.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from paddle_base.registry.interface import MOST_VALUE_BYTES, WATCH_S, Claim, Registry
from paddle_base.registry.keeping import ClaimKeeper
from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, DamagedError, LeaseLostError, PaddleError
from paddle_base.runtime.schema import Integer, Items, Record, Row, SchemaError, Such, Text, Truth, parse_object
from paddle_cluster.elastic.hosts import SlotInfo, complete_slots
from paddle_cluster.elastic.membership.decisions import Slot
from paddle_cluster.elastic.membership.members import Incarnation

LEAD, STATE = "elastic/lead", "elastic/state"
MOST_NUMBER = (1 << 31) - 1
MOST_TEXT = 253  # maximum characters of a name
MOST_VALUES = MOST_VALUE_BYTES // 4  # maximum number of JSON values; a process takes 10 values and at least 51 bytes


_NUMBER = Integer(0, MOST_NUMBER)
_TEXT = Such(Text(MOST_TEXT), str.isprintable, "a printable text")
_MEMBER = Row((_TEXT, _NUMBER, _NUMBER, _TEXT, _TEXT, _NUMBER, Truth(), Truth(), Truth()), optional=2)
# older drivers have written no revision, newcomers and owed slots, and not the last two values of a member
_DRIVER = Record(
    "revision",
    "newcomers",
    "owed",
    generation=_NUMBER,
    resets=_NUMBER,
    port=Integer(1, 65535),
    members=Items(_MEMBER, MOST_VALUES),
    newcomers=Items(_MEMBER, MOST_VALUES),
    blacklist=Items(_TEXT, MOST_VALUES),
    revision=_NUMBER,
    owed=Items(Row((_TEXT, _NUMBER)), MOST_VALUES),
)


class MemberRecord(NamedTuple):
    """A process of a generation; see `Incarnation`.

    Attributes: has_spoken: whether the process has ever sent a heartbeat; only then does its silence count.
        is_newcomer: whether the process has to ask for its place.
    """

    host: str
    local_rank: int
    rank: int
    name: str
    host_uid: str
    generation: int
    is_done: bool
    has_spoken: bool = False  # the value for records of older drivers without this field
    is_newcomer: bool = False  # as above

    @classmethod
    def of(cls, one: Incarnation, rank: int) -> MemberRecord:
        """Return the record of a process."""
        has_spoken = one.heard is not None
        facts = (one.name, one.host_uid, one.generation, one.is_done, has_spoken, one.is_newcomer)
        return cls(one.host, one.local_rank, rank, *facts)

    def revive(self, ends: Sequence[threading.Event], is_awaited: bool) -> Incarnation:
        """Return the process of the record; each of `ends`, and an additional event, ends the process.

        Args: is_awaited: whether the process has no place in the generation yet.
        """
        ends = [*ends, threading.Event()]
        heard = time.monotonic() if self.has_spoken else None
        slot = (self.host, self.local_rank)
        one = Incarnation(*slot, self.name, self.host_uid, self.generation, ends, is_done=self.is_done, heard=heard)
        one.is_newcomer, one.is_awaited, one.has_state = self.is_newcomer, is_awaited, not is_awaited
        return one


class DriverRecord(NamedTuple):
    """The generation that the driver has decided on.

    Attributes: resets: number of times that the workers have resumed.  port: port of the rendezvous server.  blacklist:
        excluded hosts.  revision: number of notices of changed hosts.  newcomers: processes that have no place yet.
        owed: see `Newcomers`.
    """

    generation: int
    resets: int
    port: int
    members: tuple[MemberRecord, ...]
    blacklist: tuple[str, ...]
    revision: int = 0  # the value for records of older drivers without this field
    newcomers: tuple[MemberRecord, ...] = ()  # as above
    owed: tuple[Slot, ...] = ()  # as above

    def list_slots(self) -> tuple[list[SlotInfo], list[SlotInfo]]:
        """Return the slots of the generation by rank, and those of the newcomers, which count the generation, too."""
        members = sorted(self.members, key=lambda one: one.rank)
        slots, also, new = (
            [SlotInfo(one.host, one.rank, one.local_rank, 0) for one in some]
            for some in (members, members, self.newcomers)
        )
        complete_slots(slots)
        complete_slots([*also, *new])
        return slots, new

    @property
    def text(self) -> str:
        """The record as a text for the registry."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def read_record(text: str) -> DriverRecord:
    """Parse a record.

    Raises: DamagedError: the text is no record.
    """
    try:
        fields = parse_object(text, _DRIVER, STATE, depth=4, values=MOST_VALUES)
    except SchemaError as exc:
        raise _damaged(str(exc)) from exc
    members = tuple(MemberRecord(*one) for one in fields["members"])
    newcomers = tuple(MemberRecord(*one) for one in fields.get("newcomers", ()))
    every = (*members, *newcomers)
    slots = {(one.host, one.local_rank) for one in every}
    if not members or sorted(one.rank for one in every) != list(range(len(slots))):
        raise _damaged(f"{STATE} has invalid ranks")
    if any(one.rank >= len(members) for one in members):
        raise _damaged(f"{STATE} has the rank of a worker for a process without a place")
    numbers = (fields["generation"], fields["resets"], fields["port"])
    owed = tuple((host, local_rank) for host, local_rank in fields.get("owed", ()))
    return DriverRecord(*numbers, members, tuple(fields["blacklist"]), fields.get("revision", 0), newcomers, owed)


def _damaged(what: str) -> DamagedError:
    return DamagedError(f"{what}, in --store-dir; no driver can continue this job; use another --store-dir")


class DriverJournal:
    """The record of a job, which only the leading driver writes.

    Args: on_loss: called by any thread when the lease is lost or a record cannot be written; must end the process.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, registry: Registry, on_loss: Callable[[PaddleError], None]) -> None:
        self._registry, self._on_loss = registry, on_loss
        self._claim: Claim | None = None
        self._lock = threading.Lock()
        self._kept = contextlib.ExitStack()

    def lead(self) -> DriverRecord | None:
        """Wait until no other driver leads; return the record of an earlier driver, or None.

        Raises: DamagedError, PeerUnreachableError, VolumeError: see `Registry`.
        """
        has_noted = False
        while self._claim is None:
            taken = self._registry.read(LEAD)
            self._claim = None if LEAD in taken else self._registry.claim(LEAD, "driver")
            if self._claim is None:
                if not has_noted:
                    glog.info(
                        "another driver leads this job, or led it seconds ago; this driver waits for the lead; "
                        "another job needs another --store-dir"
                    )
                has_noted = True
                self._registry.wait(LEAD, taken, WATCH_S)
        self._kept.enter_context(ClaimKeeper(self._claim, self._on_loss, what="the lease of the driver"))
        found = self._registry.read(STATE).get(STATE)
        return read_record(found.value) if found is not None and found.value else None

    def save(self, record: DriverRecord | None) -> None:
        """Write a record; None: the job is over.

        Raises: LeaseLostError: another driver may lead.  PeerUnreachableError, VolumeError: the record is not written.
            `on_loss` is called before the exception, except at the end of a job that this driver still leads.
        """
        if self._claim is None:
            raise BugError("only the leading driver may write its record")
        try:
            with self._lock:
                self._claim.put(STATE, "" if record is None else record.text)
        except PaddleError as exc:
            if record is not None or isinstance(exc, LeaseLostError):
                self._on_loss(exc)
            raise

    def close(self) -> None:
        """Release the lead to another driver."""
        self._kept.close()
        if self._claim is not None:
            self._claim.release()
        self._registry.close()

"""The store of a master's state: one master leads at a time, and only the writes of the present leader count.

    with store.campaign(...) as leadership:      # waits until this process leads
        pairs = leadership.load()
        leadership.publish("10.0.0.1:8080")
        leadership.commit([("task/00000001", "[...]")])

The lead is a claim of the job's registry. A leader that was frozen for longer than the time to live has lost its claim:
none of its later writes takes effect, and `commit` raises an error.
"""

from __future__ import annotations

import contextlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from paddle_base.registry.interface import LEADER, WATCH_S, Claim, Entry, Registry
from paddle_base.runtime import glog
from paddle_base.runtime.errors import DamagedError, PeerUnreachableError

Write = tuple[str, str | None]  # a key and its value; the value None deletes the key
MOST_ADDRESS = 300  # maximum characters of "host:port"
MOST_JOBS = 50  # maximum number of jobs in the list of a store's jobs
PAUSE_S = 0.3  # seconds until the next attempt while the store is unreachable


class Leadership(Protocol):
    """The right of one process to write to the store. The process may lose this right."""

    @property
    def claim(self) -> Claim:
        """The claim of LEADER."""

    def load(self) -> Iterable[tuple[str, str]]:
        """Yield all keys in order, with their values, as previous leaders have stored them.

        Raises: DamagedError, VolumeError or PeerUnreachableError.
        """

    def commit(self, writes: Sequence[Write]) -> None:
        """Store writes in this order. If the leader ends meanwhile, the store may contain only the first few writes.

        Raises: LeaseLostError: the writes have no effect, or their effect is unknown.
        """

    def publish(self, address: str) -> None:
        """Publish the address at which trainers reach this leader. The address is valid while this leader leads.

        Raises: LeaseLostError.
        """

    def resign(self) -> None:
        """Allow another process to lead at once. This method raises no errors."""


class MasterStore(ABC):
    """A place for the state of one job, in which trainers also find the leader.

    Args: registry: has the claim of LEADER.  address_key: key whose value is the address of the leader.
    """

    def __init__(self, registry: Registry, address_key: str) -> None:
        self._registry, self._address_key = registry, address_key

    def campaign(self, is_stopped: Callable[[], bool], note: Callable[[str], None]) -> Leadership | None:
        """Return the leadership when this process has it, or None after `is_stopped` returns True.

        Args: note: function that writes a log line about the present leader.
        Raises: PeerUnreachableError, VolumeError: the store cannot be used.
        """
        has_noted = False
        while not is_stopped():
            try:
                taken = self._registry.read(LEADER)
                claim = self._registry.claim(LEADER, "")
                if claim is not None:
                    return self._lead(claim)
                if not has_noted:
                    has_noted = True
                    leader = ""
                    with contextlib.suppress(DamagedError):  # a trainer names what is wrong with the address
                        leader = self.find()
                    note(f"the master at {leader or 'an unknown address'} leads; this master stands by")
                self._registry.wait(LEADER, taken, WATCH_S)
            except PeerUnreachableError as exc:
                note(f"this master stands by, and waits for etcd: {exc}")
                time.sleep(PAUSE_S)
        return None

    def find(self) -> str:
        """Return "host:port" of the leader, or "" if there is none.

        Raises: PeerUnreachableError, VolumeError: the store cannot be read now.  DamagedError: see `Registry`.
        """
        return self._address_of(self._registry.read(self._address_key))

    def wait(self, known: str, timeout: float) -> str:
        """Return the leader's address as soon as it differs from `known`, or after `timeout` seconds.

        Raises: see `find`.
        """
        until = time.monotonic() + timeout
        while True:
            entries = self._registry.read(self._address_key)
            found, left = self._address_of(entries), until - time.monotonic()
            if found not in ("", known) or left <= 0:
                return found
            self._registry.wait(self._address_key, entries, left)

    def close(self) -> None:
        """Close connections."""
        self._registry.close()

    def _address_of(self, entries: Mapping[str, Entry]) -> str:
        address = entries[self._address_key].value if self._address_key in entries else ""
        host, _, port = address.rpartition(":")
        if address and not (len(address) <= MOST_ADDRESS and host and re.fullmatch(r"[0-9]{1,5}", port)):
            raise DamagedError(
                f"the store has {glog.clean(address[:100])} as the master's address, which is not host:port; another "
                f"program uses the name of this job in {self.place}"
            )
        return address

    @property
    @abstractmethod
    def place(self) -> str:
        """The flag that names the store, e.g. --store_dir=DIRECTORY."""

    @abstractmethod
    def list_jobs(self) -> list[str]:
        """Return the names of at most MOST_JOBS jobs that have, or had, a master in this store.

        Raises: PeerUnreachableError, VolumeError: the store cannot be read now.
        """

    @abstractmethod
    def _lead(self, claim: Any) -> Leadership:
        """Return the leadership of a process that has just made the claim."""

"""A store inside one process, for tests: it can fail between any two writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from paddle_base.runtime.errors import LeadershipLostError
from paddle_cluster.master.store.interface import Leadership, Write


class MemoryStore:
    """Holds keys and values, and the leader's token. `commit` raises LeadershipLostError after `dies_after` writes."""

    def __init__(self) -> None:
        self.pairs: dict[str, str] = {}
        self.address = ""
        self.token = 0
        self.dies_after: int | None = None

    def campaign(self, is_stopped: Callable[[], bool], note: Callable[[str], None]) -> Leadership | None:
        """Lead at once; the previous leader loses the lead."""
        self.token += 1
        return MemoryLeadership(self, self.token)

    def find(self) -> str:
        """Return the leader's address."""
        return self.address

    def wait(self, known: str, timeout: float) -> str:
        """Return the leader's current address."""
        return self.address

    @property
    def place(self) -> str:
        """The name of the store in tests."""
        return "memory"

    def list_jobs(self) -> list[str]:
        """Return no names, because the job of a store in memory has no name."""
        return []

    def close(self) -> None:
        """Do nothing."""


class MemoryLeadership:
    """See `Leadership`."""

    def __init__(self, store: MemoryStore, token: int) -> None:
        self.token = token
        self._store = store

    def load(self) -> Iterable[tuple[str, str]]:
        """Return all keys in order, with their values."""
        return sorted(self._store.pairs.items())

    def commit(self, writes: Sequence[Write]) -> None:
        """Store some writes, one by one."""
        for key, value in writes:
            self._check()
            if self._store.dies_after is not None:
                if not self._store.dies_after:
                    raise LeadershipLostError("the test ends this leadership")
                self._store.dies_after -= 1
            if value is None:
                self._store.pairs.pop(key, None)
            else:
                self._store.pairs[key] = value

    def publish(self, address: str) -> None:
        """Publish the address of this leader."""
        self._check()
        self._store.address = address

    def renew(self) -> None:
        """Stay the leader."""
        self._check()

    def resign(self) -> None:
        """Stop leading."""
        if self._store.token == self.token:
            self._store.token += 1

    def _check(self) -> None:
        if self._store.token != self.token:
            raise LeadershipLostError(f"leader {self._store.token} has taken over from {self.token}")

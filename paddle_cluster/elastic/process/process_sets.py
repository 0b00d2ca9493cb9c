"""The sets of ranks among which collectives run. This file has only the set of all ranks."""

from __future__ import annotations

from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.process.membership import WORKER


class ProcessSet:
    """All ranks of the job."""

    @property
    def ranks(self) -> list[int]:
        """The ranks of the set."""
        return list(range(self.size()))

    @property
    def group(self) -> RankGroup:
        """The collectives of the set."""
        return WORKER.group

    def size(self) -> int:
        """Return the number of ranks."""
        return self.group.size

    def rank(self) -> int:
        """Return the number of this rank in the set."""
        return self.group.rank

    def included(self) -> bool:
        """Return whether this rank is in the set."""
        return True


global_process_set = ProcessSet()


def add_process_set(s: object) -> ProcessSet:
    """No."""
    raise NotImplementedError


def remove_process_set(s: object) -> bool:
    """No."""
    raise NotImplementedError

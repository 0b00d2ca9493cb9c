"""Notices of changed hosts; a worker names the revision of its last notice, and gets all later notices.

Revisions order the notices, and not times, because the clock of the next driver of a job may be behind.
"""

from __future__ import annotations

import threading
from typing import NamedTuple


class HostsNotice(NamedTuple):
    """A notice of changed hosts.

    Attributes: revision: number of notices of the job up to this notice.  result: flags of `HostUpdateResult`.
    """

    revision: int
    result: int


class NoticeBoard:
    """All notices of a job.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._notices: list[HostsNotice] = []
        self._first = 0  # number of notices of earlier drivers
        self._is_closed = False

    @property
    def revision(self) -> int:
        """The number of notices."""
        return self._first + len(self._notices)

    def continue_from(self, revision: int) -> None:
        """Number the notices after those of an earlier driver."""
        with self._changed:
            self._first = revision

    def post(self, result: int) -> HostsNotice:
        """Add a notice and return it."""
        with self._changed:
            notice = HostsNotice(self.revision + 1, result)
            self._notices.append(notice)
            self._changed.notify_all()
            return notice

    def find_after(self, revision: int, wait: float = 0.0) -> HostsNotice | None:
        """Return the notices after a revision as one notice, or None after `wait` seconds.

        The result has the revision of the newest notice and the flags of all notices after the given revision.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self.revision > revision, wait)
            newer = self._notices[max(0, revision - self._first) :]
        if not newer:
            return None
        result = 0
        for one in newer:
            result |= one.result
        return newer[-1]._replace(result=result)

    def close(self) -> None:
        """Wake every waiting reader."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

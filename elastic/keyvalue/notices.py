"""Notices of changed hosts; a worker names the revision of its last notice, and gets all later notices."""

from __future__ import annotations

import threading
from typing import NamedTuple


class HostsNotice(NamedTuple):
    """A notice of changed hosts.

    Attributes: revision: number of notices up to this notice.  timestamp: time of the newest change in seconds since
        1970; a later change has a larger timestamp.  result: flags of `HostUpdateResult`.
    """

    revision: int
    timestamp: float
    result: int


class NoticeBoard:
    """All notices of a job.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._notices: list[HostsNotice] = []
        self._is_closed = False

    @property
    def revision(self) -> int:
        """The number of notices."""
        return len(self._notices)

    def post(self, timestamp: float, result: int) -> HostsNotice:
        """Add a notice and return it."""
        with self._changed:
            if self._notices:  # two changes within a clock tick need different timestamps
                timestamp = max(timestamp, self._notices[-1].timestamp + 1e-6)
            notice = HostsNotice(len(self._notices) + 1, timestamp, result)
            self._notices.append(notice)
            self._changed.notify_all()
            return notice

    def find_after(self, revision: int, wait: float = 0.0) -> HostsNotice | None:
        """Return the notices after a revision as one notice, or None after `wait` seconds.

        The result has the time of the newest notice and the flags of all notices after the revision.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._notices) > revision, wait)
            newer = self._notices[revision:]
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

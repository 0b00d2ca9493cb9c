"""Ends workers that live and do nothing: those that have said that they live, and say it no more."""

from __future__ import annotations

import threading
import time

from elastic.membership.members import MemberTable
from runtime import glog


class HeartbeatWatch:
    """Looks at the heartbeats of all workers.

    Args: timeout: seconds; 0: it does nothing.  is_stopped: ends it.
    """

    def __init__(self, members: MemberTable, timeout: float, is_stopped: threading.Event) -> None:
        self._members, self._timeout, self._is_stopped = members, timeout, is_stopped
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        if self._timeout > 0:
            self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def check(self, now: float) -> None:
        """End every worker whose last heartbeat is too old; `now` is in seconds of `time.monotonic`."""
        for member in self._members.list_live({}):
            if member.heard is not None and now - member.heard > self._timeout:
                glog.error(f"{member.host}[{member.local_rank}] has said nothing for {self._timeout:g} s: it is ended")
                member.kill()

    def _run(self) -> None:
        while not self._is_stopped.wait(self._timeout / 4):
            self.check(time.monotonic())

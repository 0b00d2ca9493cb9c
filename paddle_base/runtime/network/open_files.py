"""The file descriptors of a process: how many it may have, and how many are left.

A process without a free descriptor fails at things that have nothing to do with connections: it cannot read a data
file, and libzmq 4.3.5 aborts it. So a program that accepts connections sets aside descriptors for its own work, and
closes new connections before it needs them.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable

from paddle_base.runtime.errors import ConfigError

LEAST_FILES = 64  # a limit below this leaves no room for connections beside a program's own files
MOST_OWN_FILES = 512  # descriptors that a program sets aside for its own files, of a limit that is large enough
SPARE_FILES = 24  # descriptors that stay free at every moment
UNLIMITED = 1 << 20  # what counts as the limit of a process that has none
COUNT_S = 0.05  # seconds for which a count of the descriptors serves
MOST_CREDIT = 64  # descriptors that a count may give away


def limit_of_files() -> int:
    """Return how many descriptors this process may have."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit


def make_room(connections: int) -> int:
    """Raise the limit of open files, as far as the system permits; return the descriptors for connections.

    Args: connections: number of descriptors that the connections of this program need.
    Raises: ConfigError: the limit is too low for any connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + MOST_OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    limit = limit_of_files()
    if limit < LEAST_FILES:
        raise ConfigError(
            f"this process may have {limit} open files, and needs {LEAST_FILES}: raise the limit (ulimit -n, or the "
            "container's)"
        )
    return min(connections, limit - min(MOST_OWN_FILES, limit // 4))


class FreeFiles:
    """Tells whether new descriptors fit below the limit of the process, and leave SPARE_FILES free.

    The number of a new descriptor does not show it: it is the lowest free number, and the numbers above it may be in
    use. So the descriptors are counted. Because this takes 0.2 us for each of them, a count serves for COUNT_S, and for
    at most half of what it found; the other half is for descriptors that others open meanwhile.

    Thread safety: any thread may call `take`; a process has one instance, FREE_FILES.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credit, self._until = 0, 0.0

    def take(self, wanted: int, coming: Callable[[], int] = int) -> bool:
        """Return whether there is room for `wanted` more descriptors, and note them.

        Args: coming: returns how many descriptors of earlier calls are not open yet.
        """
        with self._lock:
            now = time.monotonic()
            if self._credit < wanted or now > self._until:
                try:
                    used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # fast
                except OSError:  # the count itself needs a descriptor
                    return False
                free = limit_of_files() - SPARE_FILES - coming() - used
                if free < wanted:
                    return False
                self._credit, self._until = max(wanted, min(free // 2, MOST_CREDIT)), now + COUNT_S
            self._credit -= wanted
            return True


FREE_FILES = FreeFiles()
# another thread may hold the lock while its process forks; the new process does not have that thread
os.register_at_fork(after_in_child=FREE_FILES.__init__)  # type: ignore[misc]

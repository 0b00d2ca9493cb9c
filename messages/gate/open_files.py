"""How many files, and so how many connections, a process may have open."""

from __future__ import annotations

import resource


def make_room(files: int) -> None:
    """Raises the limit of open files of this process to a number, as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

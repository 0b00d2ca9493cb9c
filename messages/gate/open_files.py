"""Raises the limit of open files of a process, which also limits the connections."""

from __future__ import annotations

import resource


def make_room(files: int) -> None:
    """Raise the limit of open files of this process to `files`, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

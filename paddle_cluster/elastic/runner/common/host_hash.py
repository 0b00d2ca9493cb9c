"""A text that is the same in all programs that can share memory. Names are those of
`horovod.runner.common.util.host_hash`.
"""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

NAMESPACE_PATH = "/proc/self/ns"


def _namespaces() -> str:
    """Return the Linux namespaces of this process; programs in other containers have other namespaces."""
    try:
        return " ".join(str(one.readlink()) for one in sorted(Path(NAMESPACE_PATH).iterdir()))
    except OSError:
        return ""


def _hash(string: str) -> str:
    return hashlib.md5(string.encode(), usedforsecurity=False).hexdigest()


def host_hash(salt: object = None) -> str:
    """Return the name of this host up to its first dot, and a hash of its full name, its namespaces and the salt."""
    name = socket.gethostname()
    parts = [name, _namespaces(), *([str(salt)] if salt else [])]
    return f"{name.split('.')[0]}-{_hash('-'.join(parts))}"

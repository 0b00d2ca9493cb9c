"""What a cluster has for itself on this machine: a /24 network of 127.0.0.0/8, and the directory of its Job.

The locks are abstract Unix sockets. The kernel removes such a socket when its process ends, even after SIGKILL.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import Collection, Iterator, Sequence

from paddle_cluster.localcluster.errors import HostError, InUseError

PREFIXES = tuple(f"127.{second}.{third}" for second in range(77, 127) for third in range(256))
HOSTS = range(2, 255)


class Subnet:
    """A network reserved for this process until `close`: .1 is for the API server, and .2 to .254 are for pods.

    Args: prefixes: the networks to choose from, each as its first three numbers.
    Raises: HostError: if no network is free, or this machine's loopback has only 127.0.0.1.
    """

    def __init__(self, prefixes: Sequence[str] = PREFIXES) -> None:
        self._claim, self.prefix = _claim(prefixes)
        self._next = 0
        try:
            with socket.socket() as probe:
                probe.bind((f"{self.prefix}.{HOSTS[0]}", 0))
        except OSError as error:
            self._claim.close()
            raise HostError(f"cannot bind {self.prefix}.{HOSTS[0]}: Linux with all of 127.0.0.0/8 is needed") from error

    @property
    def api_address(self) -> str:
        """The API server's address."""
        return f"{self.prefix}.1"

    def take(self, in_use: Collection[str]) -> str:
        """Return an address for a new pod; reuse the address of an ended pod only if there is no other address.

        Raises: HostError: if all addresses are in use.
        """
        for _ in HOSTS:
            address = f"{self.prefix}.{HOSTS[self._next % len(HOSTS)]}"
            self._next += 1
            if address not in in_use:
                return address
        raise HostError(f"more than {len(HOSTS)} pods at a time do not fit into {self.prefix}.0/24")

    def close(self) -> None:
        """Release the network."""
        self._claim.close()


@contextlib.contextmanager
def claim_job(name: str, directories: Sequence[str]) -> Iterator[None]:
    """Hold the locks of a Job on its directories.

    A cluster has one Job of a name. Two of them would write the same records and checkpoints.

    Raises: InUseError: if another localcluster runs this Job with one of these directories.
    """
    with contextlib.ExitStack() as stack:
        for directory in directories:
            key = hashlib.sha256(f"{name}\0{directory}".encode(errors="surrogateescape")).hexdigest()
            if (claim := _lock(f"job {key}")) is None:
                raise InUseError(
                    f"another localcluster runs the Job {name} with {directory}; wait for its end, or give another "
                    "directory"
                )
            stack.enter_context(claim)
        yield


def _claim(prefixes: Sequence[str]) -> tuple[socket.socket, str]:
    for prefix in prefixes:
        if (claim := _lock(prefix)) is not None:
            return claim, prefix
    raise HostError(f"every network from {prefixes[0]}.0/24 to {prefixes[-1]}.0/24 is in use by another localcluster")


def _lock(name: str) -> socket.socket | None:
    """Return the socket of a name, or None if another process has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0localcluster {name}")
    except OSError:
        claim.close()
        return None
    return claim

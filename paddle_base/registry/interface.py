"""The interface of a registry of keys. A claim is a key that expires after the end of the process that owns it.

    registry = open_registry(endpoints, directory, "job", ttl=5.0)
    claim = registry.claim("ps/0", "...")        # the claim is None if another process holds the key
    with ClaimKeeper(claim, on_loss):            # calls `renew` every third of the time to live; see `keeping`
        ...
    claim.put("ckpt/0", "...")                   # this call is refused if another process holds "ps/0" now

A key consists of lower case letters, digits, '_' and '-', in parts separated by '/'. A value is a text of at most
MOST_VALUE_BYTES. A process that is frozen for longer than the time to live loses its claims. Writes through a lost
claim have no effect, and each method of a lost claim raises LeaseLostError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from paddle_base.runtime.errors import BugError

# Maximum bytes of a value in UTF-8. The record of an elastic driver has 80 to 150 bytes for each worker. etcd accepts
# requests of 1.5 MiB.
MOST_VALUE_BYTES = 1 << 20
WATCH_S = 1.0  # maximum seconds of one `Registry.wait`, after which its caller looks at other events or tries again
LEADER = "master/lock"  # key whose claim is the lead of a job's masters
_KEY = re.compile(r"[a-z0-9_-]{1,64}(/[a-z0-9_-]{1,64}){0,3}")


class Entry(NamedTuple):
    """The value and the token of an existing key.

    Each later claim of a key has a larger token. The tokens of keys that are no claims have no order.
    """

    value: str
    token: int


class Claim(Protocol):
    """A key that this process holds until its claim expires or is released.

    Attributes: key: the claimed key.  token: see `Entry`.  ttl: seconds after which a claim without renewal expires.
        valid_until: time in seconds of `time.monotonic`; no other process holds the key before that time. Every
        `renew` sets a later time.

    Thread safety: `renew` may run concurrently with the other methods.
    """

    key: str
    token: int
    ttl: float

    @property
    def valid_until(self) -> float:
        """See the class."""

    def renew(self) -> None:
        """Extend the claim by another time to live.

        Raises: LeaseLostError: another process may hold the key.  PeerUnreachableError, VolumeError: the registry
            cannot be used now; a later call may succeed.
        """

    def update(self, value: str) -> None:
        """Change the value of the key.

        Raises: LeaseLostError: the write may or may not have taken effect.  PeerUnreachableError, VolumeError.
        """

    def put(self, key: str, value: str) -> None:
        """Write another key, which remains when the claim ends. All writes of that key must be made through claims of
        one key.

        Raises: LeaseLostError: the write may or may not have taken effect.  PeerUnreachableError, VolumeError.
        """

    def release(self) -> None:
        """Allow another process to claim the key at once; never raises."""


class Registry(Protocol):
    """The keys of one job.

    Thread safety: every method may be called from any thread.
    Each method raises PeerUnreachableError or VolumeError if the registry does not answer, and DamagedError if its
    content is malformed.
    """

    def claim(self, key: str, value: str) -> Claim | None:
        """Return the claim of a key, or None while another process holds it."""

    def read(self, prefix: str) -> dict[str, Entry]:
        """Return the keys with a prefix, and their values and tokens.

        A claim is included until it expires. A directory registry detects an expired claim only after it has watched
        the claim for the claim's time to live.
        """

    def put(self, key: str, value: str) -> None:
        """Write a key that is not written through a claim."""

    def put_new(self, key: str, value: str) -> bool:
        """Write a key if it does not exist; return whether this call has written it."""

    def delete(self, key: str) -> None:
        """Remove a key that is not a claim; do nothing if the key does not exist."""

    def wait(self, prefix: str, known: Mapping[str, Entry], timeout: float) -> dict[str, Entry]:
        """Return the result of `read` as soon as it differs from `known`, or after `timeout` seconds."""

    def close(self) -> None:
        """Close the connections of the registry."""


def check_key(key: str) -> str:
    """Return the key if it is well-formed.

    Raises: BugError: the key is malformed.
    """
    if not _KEY.fullmatch(key):
        raise BugError(f"'{key[:100]}' is not a valid key of the registry")
    return key


def check_value(key: str, value: str) -> str:
    """Return the value if it is not too long.

    Raises: BugError: the value is too long.
    """
    if len(value.encode()) > MOST_VALUE_BYTES:
        raise BugError(f"the value of {key} has more than {MOST_VALUE_BYTES} bytes")
    return value

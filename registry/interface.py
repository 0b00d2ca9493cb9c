"""What programs want of a registry, whatever it is: keys, and claims of keys that end when their owner does.

    registry = open_registry(endpoints, directory, "job", ttl=5.0)
    claim = registry.claim("ps/0", "...")        # None: another process holds it
    claim.renew()                                # every third of the time to live, by a thread of the owner
    claim.put("ckpt/0", "...")                   # refused as soon as another process holds "ps/0"

A key is parts of small letters, digits, '_' and '-', with '/' between them. A value is a text of at most
MOST_VALUE_BYTES. A process that is frozen for longer than the time to live has lost its claims: nothing that it writes
through them counts any more, and each of their methods says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from runtime.errors import BugError

MOST_VALUE_BYTES = 64 << 10  # of a value as UTF-8
_KEY = re.compile(r"[a-z0-9_-]{1,64}(/[a-z0-9_-]{1,64}){0,3}")


class Entry(NamedTuple):
    """A key that is there. The token of a claim grows with every later claim of the same key; others have any."""

    value: str
    token: int


class Claim(Protocol):
    """A key that this process holds, until it is lost.

    Attributes: key, token: see `Entry`.  valid_until: in seconds of `time.monotonic`; nobody else holds the key before
        that. It moves with every `renew`.

    Thread safety: `renew` may be called beside the others.
    """

    key: str
    token: int

    @property
    def valid_until(self) -> float:
        """See above."""

    def renew(self) -> None:
        """Hold the key for another time to live.

        Raises: LeaseLostError: another process may hold it.  PeerUnreachableError, VolumeError: it may work next time.
        """

    def update(self, value: str) -> None:
        """Change the value of the key.

        Raises: LeaseLostError: it is not known whether it counts.  PeerUnreachableError, VolumeError.
        """

    def put(self, key: str, value: str) -> None:
        """Write another key, which stays when the claim ends. A key is always written through claims of one key.

        Raises: LeaseLostError: it is not known whether it counts.  PeerUnreachableError, VolumeError.
        """

    def release(self) -> None:
        """Let another process claim the key at once; never raises."""


class Registry(Protocol):
    """The keys of one job.

    Thread safety: every method may be called from any thread.
    Each method raises PeerUnreachableError or VolumeError if the registry does not answer, and DamagedError if what is
    there is not as it was written.
    """

    def claim(self, key: str, value: str) -> Claim | None:
        """Return the claim of a key, or None while another process holds it."""

    def read(self, prefix: str) -> dict[str, Entry]:
        """Return the keys that begin with a prefix.

        A claim is there until its time has run out. A directory shows that only to a process that has looked at it for
        that time.
        """

    def put(self, key: str, value: str) -> None:
        """Write a key that no claim writes."""

    def put_new(self, key: str, value: str) -> bool:
        """Write a key if there is none of that name; return whether this call has."""

    def delete(self, key: str) -> None:
        """Remove a key that is no claim; it need not be there."""

    def wait(self, prefix: str, known: Mapping[str, Entry], timeout: float) -> dict[str, Entry]:
        """Return what `read` does as soon as it differs from `known`, or as it is after `timeout` seconds."""

    def close(self) -> None:
        """Let go of connections."""


def check_key(key: str) -> str:
    """Return a key.

    Raises: BugError: it is none.
    """
    if not _KEY.fullmatch(key):
        raise BugError(f"'{key[:100]}' is no key of the registry")
    return key


def check_value(key: str, value: str) -> str:
    """Return a value.

    Raises: BugError: it is too long.
    """
    if len(value.encode()) > MOST_VALUE_BYTES:
        raise BugError(f"the value of {key} has more than {MOST_VALUE_BYTES} bytes")
    return value

"""Addresses of files and of directories in object stores, and patterns of names. No I/O."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from paddle_base.runtime.errors import ConfigError

MOST_CHARACTERS = 4096  # maximum length of an address; a key of S3 has at most 1024 bytes
WITH_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
MAGIC = re.compile(r"[*?\[]")


class Scheme(NamedTuple):
    """How a kind of address is read: the protocol and the module of fsspec, and what pip installs for it."""

    protocol: str
    module: str
    package: str


_S3 = Scheme("s3", "s3fs", "paddle-on-kubernetes[s3]")
_GOOGLE = Scheme("gs", "gcsfs", "gcsfs")
_AZURE = Scheme("abfs", "adlfs", "adlfs")
STORES: Mapping[str, Scheme] = {"s3": _S3, "s3a": _S3, "gs": _GOOGLE, "gcs": _GOOGLE, "az": _AZURE, "abfs": _AZURE}
"""The schemes of object stores."""
HTTPS, FILE = "https", "file"
KNOWN = ", ".join(f"{name}://" for name in (*STORES, HTTPS, FILE))


@dataclass(frozen=True)
class Address:
    """A file, a directory, or the files that match a pattern.

    Attributes: scheme: a key of STORES, `https` or `file`.  root: the bucket, or the server with its port; "" for a
    path.  key: the name below the root: the key in a bucket, path and query of https, or a path.
    """

    scheme: str
    root: str
    key: str

    def __str__(self) -> str:
        """Return the address for messages. The query of https is left out, because it may have a signature."""
        if self.scheme == FILE:
            return self.key
        return f"{self.scheme}://{self.root}/{self.key.partition('?')[0] if self.scheme == HTTPS else self.key}"

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine."""
        return self.scheme == FILE

    @property
    def has_pattern(self) -> bool:
        """Whether its key is a pattern, with `*`, `?`, `[` or `**`."""
        return self.scheme != HTTPS and MAGIC.search(self.key) is not None

    @property
    def prefix(self) -> str:
        """The part of a pattern before its first special character, up to the last `/`; otherwise the whole key."""
        found = MAGIC.search(self.key)
        return self.key[: self.key.rfind("/", 0, found.start()) + 1] if found and self.has_pattern else self.key

    @property
    def name(self) -> str:
        """The last part of the key, or `download` without one."""
        path = unquote(self.key.partition("?")[0]) if self.scheme == HTTPS else self.key
        return path.rstrip("/").rpartition("/")[2] or "download"

    def with_key(self, key: str) -> Address:
        """Return the address of another key of the same root."""
        return Address(self.scheme, self.root, key)

    def below(self, name: str) -> Address:
        """Return the address of a name below this directory."""
        return self.with_key(f"{self.key.rstrip('/')}/{name}" if self.key else name)


def is_address(text: str) -> bool:
    """Return whether a text has the form of an address with a scheme, and is no plain path."""
    return WITH_SCHEME.match(text) is not None


def parse_address(text: str, name: str) -> Address:
    """Return the address of a text; a text without a scheme is a path.

    Args: name: what the address is, for messages, such as the name of a variable.
    Raises: ConfigError: the text is malformed or has a scheme that is not read; no message shows a password.
    """
    found = WITH_SCHEME.match(text)
    if found is None:
        return Address(FILE, "", text)
    scheme, rest = found[1].lower(), found[2]
    if len(text) > MOST_CHARACTERS or any(ord(character) < 32 for character in text):
        raise ConfigError(f"{name} has a control character or more than {MOST_CHARACTERS} characters; correct it")
    if scheme != FILE and scheme != HTTPS and scheme not in STORES:
        raise ConfigError(f"{name} begins with {scheme}://, which is not read; known are {KNOWN}, and paths")
    root, _, key = rest.partition("/")
    if "@" in root:
        raise ConfigError(
            f"{name} has a user or password before an '@', which would stand in logs; remove it, and set the variables "
            "of the credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if scheme == FILE:
        if root not in ("", "localhost"):
            raise ConfigError(f"{name} {text} names a server; write file:///PATH")
        return Address(FILE, "", unquote(urlsplit(text).path))
    if not root:
        raise ConfigError(f"{name} is {text!r}, without a {'server' if scheme == HTTPS else 'bucket'}; "
                          f"write {scheme}://{'server/file' if scheme == HTTPS else 'bucket/key'}")  # fmt: skip
    return Address(scheme, root, key)


def matches(pattern: str, key: str) -> bool:
    """Return whether a key matches a pattern. `*` and `?` match no `/`; `**` matches any number of directories.

    The time is at most proportional to the product of both numbers of parts.
    """
    parts, names = pattern.split("/"), key.split("/")
    reached = _skip_stars(parts, {0})
    for name in names:
        step = {at for at in reached if at < len(parts) and parts[at] == "**"}
        step |= {at + 1 for at in reached if at < len(parts) and parts[at] != "**" and _fits(parts[at], name)}
        reached = _skip_stars(parts, step)
    return len(parts) in reached


def _fits(part: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name, part)


def _skip_stars(parts: Sequence[str], places: set[int]) -> set[int]:
    """Return the places in a pattern, and those behind each `**` there, because `**` also matches nothing."""
    found = set(places)
    for at in sorted(places):
        while at < len(parts) and parts[at] == "**":
            at += 1
            found.add(at)
    return found

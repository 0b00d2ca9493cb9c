"""A registry in a directory of one machine, which the flag `--store_dir` names.

KEY@TOKEN    This file is a claim of KEY, created exclusively. The claim with the largest TOKEN holds KEY. Only the
             owner of a claim changes the content and times of the file. The content is {"value": "...", "ttl": 5.0,
             "is_over": false}. The file is empty until the owner has rewritten the keys of the earlier claim.
claim-TOKEN  This file is a claim of LEADER, in the directory of a master, and has "address" in place of "value".
KEY=TOKEN    This file is a key without lease, so it does not expire. The content is {"value": "...", "through":
             "ps/0"}. TOKEN is the token of the claim of "ps/0" through which the key was written.

The file name has '.' in place of each '/' of the key. Another process may take a claim whose file has not changed for
the claim's time to live. That process measures the time by its own clock, so the clocks of two machines are never
compared. The new owner first creates the next claim. Then it rewrites, under its own token, all keys that were written
through the earlier claim. Finally it writes its value into its claim. Afterwards no process reads keys with the earlier
token. An owner checks for a newer claim before and after a write, and reports success only after the second check.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddle_base.registry.interface import LEADER, MOST_VALUE_BYTES, Entry, check_key, check_value
from paddle_base.runtime.bounded_json import BoundedJsonError, parse_bounded
from paddle_base.runtime.durable_files import remove_if_possible, sync_directory, write_file
from paddle_base.runtime.errors import DamagedError, LeaseLostError, PaddleError, VolumeError

MOST_FILES = 100_000  # maximum file names in the directory
MOST_FILE_BYTES = 6 * MOST_VALUE_BYTES + 1024  # JSON may use up to six bytes for each character
MOST_TTL = 30 * 86400.0  # maximum of the flag --ttl in seconds; a larger time in another process's claim is cut
LOOKS = 20  # maximum attempts to read a directory whose files are being replaced
CLAIM, VALUE = "@", "="

_LEADS = "claim-"
_NAME = re.compile(rf"(?:([a-z0-9_.-]{{1,300}})([@=])|{_LEADS})([0-9]{{12}})")


@dataclass(frozen=True)
class Scan:
    """The tokens of the claims and of the keys without lease in a directory, in an ascending list for each key."""

    claims: dict[str, list[int]] = field(default_factory=dict)
    values: dict[str, list[int]] = field(default_factory=dict)

    def newest(self, key: str) -> int:
        """Return the token of the newest claim of a key, or 0 if there is none."""
        return self.claims.get(key, [0])[-1]


@dataclass(frozen=True)
class ClaimFile:
    """The content and the modification time of a claim's file; each renewal changes the time."""

    renewed: int  # modification time of the file in nanoseconds
    value: str | None = None  # None: the owner of the claim has not yet rewritten the keys of the earlier claim
    ttl: float | None = None
    is_over: bool = False


class DirectoryRegistry:
    """The keys of one job in a directory.

    Args: ttl: seconds after which the claims of a silent process expire.
    """

    def __init__(self, directory: Path, ttl: float = 5.0) -> None:
        self._directory, self._ttl = directory, ttl
        self._poll = min(0.25, ttl / 10)
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, ClaimFile, float]] = {}  # for each key: token, claim, time of its last change

    def claim(self, key: str, value: str) -> DirectoryClaim | None:
        """See `Registry`."""
        check_value(check_key(key), value)
        with volume_errors(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            now, newest = time.monotonic(), scan(self._directory).newest(key)
            try:
                if newest and self._is_held(key, newest, read_claim_file(self._directory, key, newest), now):
                    return None
            except FileNotFoundError:  # the owner of a newer claim has removed this file
                return None
            claim = DirectoryClaim(self._directory, key, newest + 1, self._ttl)
            try:
                claim.take_over(value)
            except (FileExistsError, LeaseLostError):
                return None
        return claim

    def read(self, prefix: str) -> dict[str, Entry]:
        """See `Registry`."""
        with volume_errors(self._directory):
            for _ in range(LOOKS):
                now, names = time.monotonic(), scan(self._directory)
                with suppress(FileNotFoundError):  # a file with a larger token has replaced the listed file
                    found = dict(sorted(self._read(prefix, names, now)))
                    if scan(self._directory) == names:
                        return found
        raise _restless(self._directory)

    def put(self, key: str, value: str) -> None:
        """See `Registry`."""
        check_value(check_key(key), value)
        with volume_errors(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            token = scan(self._directory).values.get(key, [0])[-1]
            write_value(self._directory, key, token, value, "")

    def put_new(self, key: str, value: str) -> bool:
        """See `Registry`."""
        check_value(check_key(key), value)
        with volume_errors(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            if key in scan(self._directory).values:
                return False
            staging = write_staging(self._directory, {"value": value, "through": ""})
            try:
                os.link(staging, path_of(self._directory, key, VALUE, 0))
            except FileExistsError:
                return False
            finally:
                staging.unlink()
            sync_directory(self._directory)
        return True

    def delete(self, key: str) -> None:
        """See `Registry`."""
        with volume_errors(self._directory):
            for token in scan(self._directory).values.get(check_key(key), []):
                path_of(self._directory, key, VALUE, token).unlink(missing_ok=True)

    def wait(self, prefix: str, known: Mapping[str, Entry], timeout: float) -> dict[str, Entry]:
        """See `Registry`."""
        until = time.monotonic() + timeout
        while (found := self.read(prefix)) == known and (left := until - time.monotonic()) > 0:
            time.sleep(min(self._poll, left))
        return found

    def close(self) -> None:
        """Do nothing: a directory has no connection to close."""

    # -----

    def _read(self, prefix: str, names: Scan, now: float) -> Iterator[tuple[str, Entry]]:
        """Yield the keys with a prefix. Args: see `_is_held`.  Raises: FileNotFoundError: a file of `names` is gone."""
        for key, tokens in names.claims.items():
            if key.startswith(prefix):
                claim = read_claim_file(self._directory, key, tokens[-1])
                if self._is_held(key, tokens[-1], claim, now) and claim.value is not None:
                    yield key, Entry(claim.value, tokens[-1])
        for key in names.values:
            if key.startswith(prefix) and (found := read_value(self._directory, names, key)) is not None:
                yield key, found

    def _is_held(self, key: str, token: int, claim: ClaimFile, now: float) -> bool:
        """Return whether a claim is still held, and store the claim and the time for the next call.

        Args: now: time before the file was read. With a time after the read, a renewed claim could look expired if this
            process was frozen in between.
        """
        with self._lock:
            before = self._seen.get(key)
            if before is None or before[:2] != (token, claim):
                before = self._seen[key] = (token, claim, now)
        return not claim.is_over and now - before[2] < (self._ttl if claim.ttl is None else claim.ttl)


class DirectoryClaim:
    """See `Claim`."""

    def __init__(self, directory: Path, key: str, token: int, ttl: float) -> None:
        self.key, self.token, self.ttl = key, token, ttl
        self._directory = directory
        self._path = path_of(directory, key, CLAIM, token)
        self._valid_until = time.monotonic() + ttl

    @property
    def valid_until(self) -> float:
        """See `Claim`."""
        return self._valid_until

    def take_over(self, value: str) -> None:
        """Create the claim, rewrite the keys of the earlier claim under the new token, then write the value into the
        claim.

        Raises: FileExistsError, LeaseLostError: another process has the claim.  DamagedError, OSError.
        """
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        self.check()
        self._carry_over()
        self._fill(value)
        self.check()
        for token in scan(self._directory).claims[self.key]:
            if token < self.token:
                path_of(self._directory, self.key, CLAIM, token).unlink(missing_ok=True)

    def renew(self) -> None:
        """See `Claim`."""
        self.check()
        began = time.monotonic()
        with volume_errors(self._directory):
            try:
                os.utime(self._path)
            except FileNotFoundError as exc:
                raise self._lost("the claim's file was removed") from exc
        self.check()
        self._valid_until = began + self.ttl

    def update(self, value: str) -> None:
        """See `Claim`."""
        check_value(self.key, value)
        self.check()
        with volume_errors(self._directory):
            self._fill(value)
        self.check()

    def put(self, key: str, value: str) -> None:
        """See `Claim`."""
        check_value(check_key(key), value)
        self.check()
        with volume_errors(self._directory):
            write_value(self._directory, key, self.token, value, self.key)
        self.check()

    def release(self) -> None:
        """See `Claim`."""
        with suppress(PaddleError, OSError):
            self.check()
            self._fill("", is_over=True)
        self._valid_until = float("-inf")

    def _carry_over(self) -> None:
        for _ in range(LOOKS):
            with suppress(FileNotFoundError):  # a file with a larger token has replaced the listed file
                for key, tokens in scan(self._directory).values.items():
                    found, through = _read_value_file(self._directory, key, tokens[-1])
                    if through == self.key and tokens[-1] < self.token:
                        write_value(self._directory, key, self.token, found, self.key)
                return
        raise _restless(self._directory)

    def _fill(self, value: str, *, is_over: bool = False) -> None:
        content = {_name_value(self.key): value, "ttl": self.ttl, "is_over": is_over}
        _replace(self._directory, self._path, write_staging(self._directory, content))

    def check(self) -> None:
        """Check that this process still holds the key.

        Raises: LeaseLostError.
        """
        if time.monotonic() >= self._valid_until:
            raise self._lost(f"the claim was not renewed for {self.ttl:g} s; the process froze or the volume is slow")
        with volume_errors(self._directory):
            newest = scan(self._directory).newest(self.key)
        if newest != self.token:
            raise self._lost("another process holds the key now" if newest else "the claim's file was removed")

    def _lost(self, why: str) -> LeaseLostError:
        return LeaseLostError(f"this process has lost its claim of {self.key} in {self._directory}: {why}")


# ----- Files


def scan(directory: Path) -> Scan:
    """Return the tokens of the keys in a directory; a directory that does not exist has none.

    Raises: DamagedError: the directory has more than MOST_FILES names.
    """
    found = Scan()
    try:
        names = os.listdir(directory)  # noqa: PTH208  # four times as fast as iterdir
    except FileNotFoundError:
        return found
    if len(names) > MOST_FILES:
        raise DamagedError(
            f"--store_dir: {directory} has {len(names)} files, more than any job makes; use another directory"
        )
    for name in names:
        match = _NAME.fullmatch(name)
        if match:
            tokens = found.values if match[2] == VALUE else found.claims
            tokens.setdefault(match[1].replace(".", "/") if match[1] else LEADER, []).append(int(match[3]))
    for one in (*found.claims.values(), *found.values.values()):
        one.sort()
    return found


def path_of(directory: Path, key: str, kind: str, token: int) -> Path:
    """Return the file of a claim or of a key without lease."""
    start = _LEADS if (key, kind) == (LEADER, CLAIM) else f"{key.replace('/', '.')}{kind}"
    return directory / f"{start}{token:012d}"


def _name_value(key: str) -> str:
    """Return the name of a claim's value in the claim's file."""
    return "address" if key == LEADER else "value"


def read_claim_file(directory: Path, key: str, token: int) -> ClaimFile:
    """Return the claim that a file contains; a malformed file counts as a claim without value.

    Raises: FileNotFoundError.
    """
    with path_of(directory, key, CLAIM, token).open("rb") as file:
        renewed = os.fstat(file.fileno()).st_mtime_ns
        data = file.read(MOST_FILE_BYTES)
    try:
        fields = parse_bounded(data, depth=2, values=16)
    except BoundedJsonError:
        return ClaimFile(renewed)
    value, ttl = fields.get(_name_value(key)), fields.get("ttl")
    return ClaimFile(
        renewed,
        value if isinstance(value, str) else None,
        min(ttl, MOST_TTL) if isinstance(ttl, int | float) and ttl > 0 else None,
        fields.get("is_over") is True,
    )


def read_value(directory: Path, names: Scan, key: str) -> Entry | None:
    """Return a key without lease, or None if another process has taken over the claim through which it was written.

    Raises: DamagedError.  FileNotFoundError: the file was replaced while it was read.
    """
    token = names.values[key][-1]
    value, through = _read_value_file(directory, key, token)
    for newer in reversed(names.claims.get(through, [])):
        if newer <= token:
            break
        if read_claim_file(directory, through, newer).value is not None:
            return None
    return Entry(value, token)


def write_value(directory: Path, key: str, token: int, value: str, through: str) -> None:
    """Write a key without lease, and remove the key's files with smaller tokens.

    Raises: OSError.
    """
    path = path_of(directory, key, VALUE, token)
    _replace(directory, path, write_staging(directory, {"value": value, "through": through}))
    for older in scan(directory).values.get(key, []):
        if older < token:
            path_of(directory, key, VALUE, older).unlink(missing_ok=True)


def write_staging(directory: Path, content: Mapping[str, Any]) -> Path:
    """Write `content` to a file with a temporary name, sync the file, and return its path.

    Raises: OSError.
    """
    staging = directory / f".{secrets.token_hex(8)}.writing"
    try:
        write_file(staging, [json.dumps(content).encode()])
    except BaseException:
        remove_if_possible(staging)
        raise
    return staging


@contextmanager
def volume_errors(directory: Path) -> Iterator[None]:
    """Turn an OSError about the directory into a VolumeError."""
    try:
        yield
    except OSError as exc:
        raise VolumeError(
            f"--store_dir: {exc.filename or directory} cannot be used: {exc.strerror}; it must be a directory that "
            "this program may write to"
        ) from exc


def _restless(directory: Path) -> VolumeError:
    return VolumeError(f"--store_dir: the files of {directory} change faster than they can be read")


def _replace(directory: Path, path: Path, staging: Path) -> None:
    try:
        staging.replace(path)
    except BaseException:
        remove_if_possible(staging)
        raise
    sync_directory(directory)


def _read_value_file(directory: Path, key: str, token: int) -> tuple[str, str]:
    path = path_of(directory, key, VALUE, token)
    with path.open("rb") as file:
        data = file.read(MOST_FILE_BYTES)
    try:
        fields = parse_bounded(data, depth=2, values=16)
        value, through = fields["value"], fields["through"]
        if isinstance(value, str) and isinstance(through, str):
            return value, through
    except (BoundedJsonError, KeyError):
        pass
    raise DamagedError(
        f"{path} is damaged: it is not what this program writes; restore it, or remove it if the job may begin anew"
    )

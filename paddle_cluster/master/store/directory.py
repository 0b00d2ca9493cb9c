"""A store in a directory of one machine, which the flag `--store_dir` names.

claim-TOKEN      the claim of a leader; the master that creates the file with the largest TOKEN leads. Only this master
                 changes the file and its times. Example: {"address": "", "ttl": 10.0, "is_over": false}
segment-TOKEN    the writes of the leader with this token (see `segment`)

A standby takes over when the newest claim has not changed for the claim's time to live. The standby measures this time
by its own clock, because the clocks of two machines may differ. The new leader first creates the next claim, then reads
the newest segment, then writes its own segment under a temporary name, and renames that file. A leader checks for a
newer claim before and after it appends, and answers trainers only after the second check. A leader that continues after
it was frozen therefore appends to a segment that no leader reads any more.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_base.runtime.bounded_json import BoundedJsonError, parse_bounded
from paddle_base.runtime.durable_files import replace_file, sync_directory
from paddle_base.runtime.errors import LeadershipLostError, VolumeError
from paddle_cluster.master.store.interface import MOST_JOBS, Leadership, Write
from paddle_cluster.master.store.segment import encode_record, encode_state, read_segment

CLAIM, SEGMENT = "claim-", "segment-"
# a segment is rewritten when it has more than COMPACT_BYTES bytes, and more than GROWTH times its first size
COMPACT_BYTES = 64 << 20
GROWTH = 3
MOST_CLAIM_BYTES = 4096
MOST_TTL = 30 * 86400.0  # maximum of the flag --ttl in seconds; a larger time in another process's claim is cut
_TOKEN = re.compile("[0-9]{12}")


@dataclass(frozen=True)
class LeaderClaim:
    """A claim that a standby or a trainer has read. Each renewal by the leader changes the claim."""

    token: int
    renewed: int  # modification time of the file in nanoseconds
    address: str = ""
    ttl: float = 10.0
    is_over: bool = False


class DirectoryStore:
    """The directory of one job.

    Args: ttl: seconds after which a leader that has not renewed its leadership loses the lead.
    """

    def __init__(self, directory: Path, ttl: float = 10.0) -> None:
        self._directory, self._ttl = directory, ttl
        self._poll = min(0.25, ttl / 10)

    def campaign(self, is_stopped: Callable[[], bool], note: Callable[[str], None]) -> Leadership | None:
        """See `LeaderStore`."""
        with _volume_errors(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            seen, since = read_claim(self._directory), time.monotonic()
            if seen.token and not seen.is_over:
                note(f"leader {seen.token} at {seen.address or 'an unknown address'} leads; this master stands by")
            while not is_stopped():
                now = time.monotonic()
                newest = read_claim(self._directory)
                if newest != seen:
                    seen, since = newest, now
                if not seen.token or seen.is_over or now - since >= seen.ttl:
                    leadership = self._claim(seen.token + 1)
                    if leadership is not None:
                        return leadership
                time.sleep(self._poll)
        return None

    def find(self) -> str:
        """See `AddressBook`."""
        with _volume_errors(self._directory):
            claim = read_claim(self._directory)
        return "" if claim.is_over else claim.address

    def wait(self, known: str, timeout: float) -> str:
        """See `AddressBook`."""
        until = time.monotonic() + timeout
        while (found := self.find()) == known and time.monotonic() < until:
            time.sleep(self._poll)
        return found

    @property
    def place(self) -> str:
        """See `AddressBook`."""
        return f"--store_dir={self._directory.parent}"

    def list_jobs(self) -> list[str]:
        """See `AddressBook`."""
        with _volume_errors(self._directory.parent):
            try:
                names = sorted(os.listdir(self._directory.parent))  # noqa: PTH208  # iterdir is slower
            except FileNotFoundError:
                return []
            had_master = (name for name in names if _has_claim(self._directory.parent / name))
            return list(itertools.islice(had_master, MOST_JOBS))

    def close(self) -> None:
        """Do nothing, because there is no connection."""

    def _claim(self, token: int) -> Leadership | None:
        path = self._directory / f"{CLAIM}{token:012d}"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return None
        os.close(handle)
        return DirectoryLeadership(self._directory, token, self._ttl)


class DirectoryLeadership:
    """See `Leadership`.

    Thread safety: `renew` may run concurrently with the other methods.
    """

    def __init__(self, directory: Path, token: int, ttl: float) -> None:
        self.token = token
        self._directory, self._ttl = directory, ttl
        self._valid_until = time.monotonic() + ttl
        self._claim = directory / f"{CLAIM}{token:012d}"
        self._path = directory / f"{SEGMENT}{token:012d}"
        self._segment: int | None = None
        self._bytes = self._first_bytes = 0
        with _volume_errors(directory):
            self._write_claim("")

    def load(self) -> Iterable[tuple[str, str]]:
        """See `Leadership`."""
        with _volume_errors(self._directory):
            older = _list_tokens(self._directory, SEGMENT)
            pairs = read_segment(self._directory / f"{SEGMENT}{older[-1]:012d}") if older else {}
            self._begin(pairs)
            self._check()
            self._remove_older()
        return sorted(pairs.items())

    def commit(self, writes: Sequence[Write]) -> None:
        """See `Leadership`."""
        self._check()
        with _volume_errors(self._directory):
            self._append(encode_record(writes))
        self._check()
        if self._bytes > max(COMPACT_BYTES, GROWTH * self._first_bytes):
            with _volume_errors(self._directory):
                self._begin(read_segment(self._path))

    def publish(self, address: str) -> None:
        """See `Leadership`."""
        self._check()
        with _volume_errors(self._directory):
            self._write_claim(address)

    def renew(self) -> None:
        """See `Leadership`."""
        self._check()
        began = time.monotonic()
        with _volume_errors(self._directory):
            os.utime(self._claim)
        self._valid_until = began + self._ttl

    def resign(self) -> None:
        """See `Leadership`."""
        with contextlib.suppress(LeadershipLostError, VolumeError, OSError):
            self._check()
            self._write_claim("", is_over=True)
        if self._segment is not None:
            os.close(self._segment)
            self._segment = None

    # -----

    def _check(self) -> None:
        """Check that this process leads.

        Raises: LeadershipLostError.
        """
        if time.monotonic() >= self._valid_until:
            raise LeadershipLostError(
                f"this master could not renew its leadership of {self._directory} for {self._ttl:g} s; it was frozen, "
                "or the volume is slow"
            )
        with _volume_errors(self._directory):
            newest = _list_tokens(self._directory, CLAIM)[-1:]
        if newest != [self.token]:
            found = f"leader {newest[0]} has taken over" if newest else "its claim was removed"
            raise LeadershipLostError(f"this master, leader {self.token}, no longer leads {self._directory}: {found}")

    def _begin(self, pairs: dict[str, str]) -> None:
        """Write a new segment that begins with these keys and values; later writes are appended to this segment."""
        staging = self._path.with_name(f".{self._path.name}.writing")
        handle = os.open(staging, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            size = sum(_write_all(handle, data) for data in encode_state(pairs))
            os.fsync(handle)
            staging.rename(self._path)
        except BaseException:
            os.close(handle)
            raise
        sync_directory(self._directory)
        if self._segment is not None:
            os.close(self._segment)
        self._segment, self._bytes, self._first_bytes = handle, size, size

    def _append(self, data: bytes) -> None:
        if self._segment is None:
            raise LeadershipLostError("this master has not loaded the state, or has resigned")
        _write_all(self._segment, data)
        os.fdatasync(self._segment)
        self._bytes += len(data)

    def _write_claim(self, address: str, *, is_over: bool = False) -> None:
        replace_file(self._claim, json.dumps({"address": address, "ttl": self._ttl, "is_over": is_over}))

    def _remove_older(self) -> None:
        """Remove the files of earlier leaders; an earlier leader that was frozen notices the newer claim."""
        for prefix in (SEGMENT, CLAIM):
            for token in _list_tokens(self._directory, prefix):
                if token < self.token:
                    (self._directory / f"{prefix}{token:012d}").unlink(missing_ok=True)


def read_claim(directory: Path) -> LeaderClaim:
    """Return the newest claim of a directory, or a claim with token 0 if the directory has no claim."""
    tokens = _list_tokens(directory, CLAIM)
    if not tokens:
        return LeaderClaim(0, 0)
    path = directory / f"{CLAIM}{tokens[-1]:012d}"
    fields: dict[str, Any] = {}
    renewed = 0
    # the file may have been removed, or be empty because its leader has just created it
    with contextlib.suppress(FileNotFoundError, BoundedJsonError), path.open("rb") as file:
        renewed = os.fstat(file.fileno()).st_mtime_ns
        fields = parse_bounded(file.read(MOST_CLAIM_BYTES), depth=2, values=16)
    address, ttl = fields.get("address"), fields.get("ttl")
    return LeaderClaim(
        tokens[-1],
        renewed,
        address if isinstance(address, str) else "",
        min(float(ttl), MOST_TTL) if isinstance(ttl, int | float) and ttl > 0 else LeaderClaim.ttl,
        fields.get("is_over") is True,
    )


def _list_tokens(directory: Path, prefix: str) -> list[int]:
    try:
        names = os.listdir(directory)  # noqa: PTH208  # faster than iterdir; a commit lists names twice
    except FileNotFoundError:
        return []
    tokens = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(token) for token in tokens if _TOKEN.fullmatch(token))


def _has_claim(directory: Path) -> bool:
    try:
        return bool(_list_tokens(directory, CLAIM))
    except NotADirectoryError:
        return False


def _write_all(handle: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    return len(data)


@contextlib.contextmanager
def _volume_errors(directory: Path) -> Any:
    try:
        yield
    except OSError as exc:
        raise VolumeError(
            f"--store_dir: {exc.filename or directory} cannot be used: {exc.strerror}; the master needs a directory "
            "that it may write to"
        ) from exc

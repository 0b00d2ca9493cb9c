"""A store in a directory of one machine, which the flag `--store_dir` names.

claim-TOKEN      the claim of a leader (see `paddle_base.registry.directory`)
segment-TOKEN    the writes of the leader with this token (see `segment`)

The new leader first makes its claim, then reads the newest segment, then writes its own segment under a temporary name,
and renames that file. A leader checks for a newer claim before and after it appends, and answers trainers only after
the second check. A leader that continues after it was frozen therefore appends to a segment that no leader reads any
more.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from paddle_base.registry.directory import DirectoryClaim, DirectoryRegistry, scan, volume_errors
from paddle_base.registry.interface import LEADER
from paddle_base.runtime.durable_files import write_mark
from paddle_base.runtime.errors import DamagedError, LeaseLostError
from paddle_cluster.master.store.interface import MOST_JOBS, Leadership, MasterStore, Write
from paddle_cluster.master.store.segment import encode_record, encode_state, read_segment

SEGMENT = "segment-"
# a segment is rewritten when it has more than COMPACT_BYTES bytes, and more than GROWTH times its first size
COMPACT_BYTES = 64 << 20
GROWTH = 3
_TOKEN = re.compile("[0-9]{12}")


class DirectoryStore(MasterStore):
    """The directory of one job.

    Args: ttl: seconds after which a leader that has not renewed its claim loses the lead.
    """

    def __init__(self, directory: Path, ttl: float = 10.0) -> None:
        super().__init__(DirectoryRegistry(directory, ttl), LEADER)
        self._directory = directory

    @property
    def place(self) -> str:
        """See `MasterStore`."""
        return f"--store_dir={self._directory.parent}"

    def list_jobs(self) -> list[str]:
        """See `MasterStore`."""
        with volume_errors(self._directory.parent):
            try:
                names = sorted(os.listdir(self._directory.parent))  # noqa: PTH208  # iterdir is slower
            except FileNotFoundError:
                return []
            had_master = (name for name in names if _has_claim(self._directory.parent / name))
            return list(itertools.islice(had_master, MOST_JOBS))

    def _lead(self, claim: DirectoryClaim) -> Leadership:
        return DirectoryLeadership(self._directory, claim)


class DirectoryLeadership:
    """See `Leadership`."""

    def __init__(self, directory: Path, claim: DirectoryClaim) -> None:
        self.claim = claim
        self._directory = directory
        self._path = directory / f"{SEGMENT}{claim.token:012d}"
        self._segment: int | None = None
        self._bytes = self._first_bytes = 0

    def load(self) -> Iterable[tuple[str, str]]:
        """See `Leadership`."""
        with volume_errors(self._directory):
            older = _list_segments(self._directory)
            pairs = read_segment(older[-1]) if older else {}
            self._begin(pairs)
            self.claim.check()
            for path in older:
                if path < self._path:
                    path.unlink(missing_ok=True)
        return sorted(pairs.items())

    def commit(self, writes: Sequence[Write]) -> None:
        """See `Leadership`."""
        self.claim.check()
        with volume_errors(self._directory):
            self._append(encode_record(writes))
        self.claim.check()
        if self._bytes > max(COMPACT_BYTES, GROWTH * self._first_bytes):
            with volume_errors(self._directory):
                self._begin(read_segment(self._path))

    def publish(self, address: str) -> None:
        """See `Leadership`."""
        self.claim.update(address)

    def resign(self) -> None:
        """See `Leadership`."""
        self.claim.release()
        self._close()

    # -----

    def _begin(self, pairs: dict[str, str]) -> None:
        """Write a new segment that begins with these keys and values; later writes are appended to this segment."""
        write_mark(self._path, encode_state(pairs))
        self._close()
        self._segment = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._bytes = self._first_bytes = os.fstat(self._segment).st_size

    def _append(self, data: bytes) -> None:
        if self._segment is None:
            raise LeaseLostError("this master has not loaded the state, or has resigned")
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._segment, rest) :]
        os.fdatasync(self._segment)
        self._bytes += len(data)

    def _close(self) -> None:
        if self._segment is not None:
            os.close(self._segment)
            self._segment = None


def _list_segments(directory: Path) -> list[Path]:
    tokens = (name.removeprefix(SEGMENT) for name in os.listdir(directory) if name.startswith(SEGMENT))  # noqa: PTH208
    return [directory / f"{SEGMENT}{token}" for token in sorted(tokens) if _TOKEN.fullmatch(token)]


def _has_claim(directory: Path) -> bool:
    try:
        return scan(directory).newest(LEADER) > 0
    except (NotADirectoryError, DamagedError):
        return False

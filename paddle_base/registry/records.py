"""The values of two keys: the snapshot that a parameter server resumes from, and the end of the job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from paddle_base.registry.interface import Registry
from paddle_base.registry.servers import CHECKPOINTS, JOB_END
from paddle_base.runtime import glog
from paddle_base.runtime.bounded_json import BoundedJsonError, is_integer, parse_bounded
from paddle_base.runtime.errors import DamagedError

MOST_REASON = 3000  # maximum characters of the reason of a failure, or of the text about discarded tasks

_MOST_PATH, _MOST_NAME = 4096, 64  # maximum characters


@dataclass(frozen=True)
class CheckpointRecord:
    """The newest snapshot of a parameter server.

    uuid: the end of the file's name.  path: path of the file.  crc32: checksum of the file.  step: number of steps that
    the optimiser had taken.  timestamp: time of the snapshot by the server's clock, in nanoseconds; only users read it.
    """

    uuid: str
    path: str
    crc32: int
    step: int
    timestamp: int

    @property
    def value(self) -> str:
        """The text that the registry stores under the key of this snapshot."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class JobEnd:
    """How a job has ended.

    reason: why the job has failed; empty if all passes are done.  discarded: text about the tasks that were discarded;
    empty if there are none.
    """

    reason: str = ""
    discarded: str = ""

    @property
    def value(self) -> str:
        """The text that the registry stores under the key of the job's end."""
        phase, said = ("failed", self.reason) if self.reason else ("done", self.discarded)
        return json.dumps({"phase": phase, "reason": glog.clean(said, MOST_REASON)})


def find_checkpoint(registry: Registry, index: int) -> CheckpointRecord | None:
    """Return the snapshot that a parameter server resumes from, or None.

    Raises: DamagedError: the value of the key is malformed.
    """
    key = f"{CHECKPOINTS}{index}"
    entry = registry.read(key).get(key)
    return None if entry is None else read_checkpoint(key, entry.value)


def read_checkpoint(key: str, value: str) -> CheckpointRecord:
    """Return the snapshot that the value of a key describes.

    Raises: DamagedError: the value is malformed.
    """
    fields = _parse(key, value)
    name, path = fields.get("uuid"), fields.get("path")
    numbers = [fields.get(one) for one in ("crc32", "step", "timestamp")]
    if not isinstance(name, str) or len(name) > _MOST_NAME or not isinstance(path, str) or len(path) > _MOST_PATH:
        raise _describe_damage(key, "names no file")
    if not path.startswith("/") or "\0" in path or not path.endswith(f"-{name}") or "/" in name:
        raise _describe_damage(key, "names no file")
    if not all(is_integer(one) for one in numbers) or numbers[0] > 0xFFFFFFFF:  # type: ignore[operator]
        raise _describe_damage(key, "has no numbers")
    return CheckpointRecord(name, path, *numbers)  # type: ignore[arg-type]


def find_job_end(registry: Registry) -> JobEnd | None:
    """Return how the job has ended, or None if it has not ended.

    Raises: DamagedError: the value of the key is malformed.
    """
    entry = registry.read(JOB_END).get(JOB_END)
    return None if entry is None else read_job_end(entry.value)


def read_job_end(value: str) -> JobEnd:
    """Return the end of a job that a value describes.

    Raises: DamagedError: the value is malformed.
    """
    fields = _parse(JOB_END, value)
    phase, reason = fields.get("phase"), fields.get("reason")
    if phase not in ("done", "failed") or not isinstance(reason, str):
        raise _describe_damage(JOB_END, "does not say how the job has ended")
    said = glog.clean(reason, MOST_REASON)
    return JobEnd(discarded=said) if phase == "done" else JobEnd(said or "the job's master does not say why")


def _parse(key: str, value: str) -> dict[str, Any]:
    try:
        return parse_bounded(value.encode(), depth=2, values=16)
    except (BoundedJsonError, UnicodeEncodeError) as exc:
        raise _describe_damage(key, f"is a text {exc}") from exc


def _describe_damage(key: str, what: str) -> DamagedError:
    return DamagedError(
        f"the registry's {key} {what}; another program has written this key: give the job another name, or restore the "
        "registry"
    )

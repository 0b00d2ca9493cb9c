"""The values of two keys: the snapshot that a parameter server resumes from, and the end of the job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from paddle_base.registry.interface import Registry
from paddle_base.registry.servers import CHECKPOINTS, JOB_END
from paddle_base.runtime import glog
from paddle_base.runtime.errors import DamagedError
from paddle_base.runtime.schema import Integer, Record, SchemaError, Such, Text, Word, parse_object

MOST_REASON = 3000  # maximum characters of the reason of a failure, or of the text about discarded tasks

_CHECKPOINT = Record(
    uuid=Such(Text(64), lambda name: "/" not in name, "a name"),
    path=Such(Text(4096), lambda path: path.startswith("/") and "\0" not in path, "a path from /"),
    crc32=Integer(0, 0xFFFFFFFF),
    step=Integer(),
    timestamp=Integer(),
)
_END = Record(phase=Word(("done", "failed")), reason=Text(1 << 20))


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
    fields = _parse(key, value, _CHECKPOINT)
    name, path, *numbers = (fields[one] for one in CheckpointRecord.__dataclass_fields__)
    if not path.endswith(f"-{name}"):
        raise _describe_damage(f"{key}.path does not end with the name {name!r}")
    return CheckpointRecord(name, path, *numbers)


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
    fields = _parse(JOB_END, value, _END)
    said = glog.clean(fields["reason"], MOST_REASON)
    return JobEnd(discarded=said) if fields["phase"] == "done" else JobEnd(said or "the job's master does not say why")


def _parse(key: str, value: str, shape: Record) -> dict[str, Any]:
    try:
        return parse_object(value, shape, key, depth=2, values=16)
    except SchemaError as exc:
        raise _describe_damage(str(exc)) from exc


def _describe_damage(what: str) -> DamagedError:
    return DamagedError(
        f"the registry's {what}; another program has written this key: give the job another name, or restore the "
        "registry"
    )

"""What the values of the registry say of a server's snapshot and of the end of a job."""

import json
from pathlib import Path

import pytest
from each import each

from paddle_base.registry.directory import DirectoryRegistry
from paddle_base.registry.records import (
    CheckpointRecord,
    JobEnd,
    find_checkpoint,
    find_job_end,
    read_checkpoint,
    read_job_end,
)
from paddle_base.runtime.errors import DamagedError

RECORD = CheckpointRecord("0f-1", "/data/server-0001-0f-1", 0xFFFFFFFF, 1 << 60, 1 << 62)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    registry = DirectoryRegistry(tmp_path)
    assert (find_checkpoint(registry, 1), find_job_end(registry)) == (None, None)
    registry.put("ckpt/1", RECORD.value)
    registry.put("ckpt/11", "another one's")
    registry.put("job/end", JobEnd("the disk\nis full").value)
    assert find_checkpoint(registry, 1) == RECORD
    assert find_job_end(registry) == JobEnd("the disk\\nis full")
    assert read_job_end(JobEnd().value) == JobEnd("")


@each(
    "change",
    [
        {"uuid": "x" * 65}, {"uuid": "2"}, {"uuid": "a/b", "path": "/x-a/b"}, {"path": "server-0f-1"}, {"step": -1},
        {"path": "/" + "x" * 5000 + "-0f-1"}, {"path": "/\0-0f-1"}, {"crc32": 1 << 32}, {"timestamp": None},
    ],
)  # fmt: skip
def test_a_snapshot_that_is_none_is_damage(change: dict[str, object]) -> None:
    with pytest.raises(DamagedError, match="the registry's ckpt/1"):
        read_checkpoint("ckpt/1", json.dumps(json.loads(RECORD.value) | change))


@each("value", ["", "[" * 9000, '{"phase":"over","reason":""}', '{"phase":"done"}'])
def test_an_end_that_is_none_is_damage(value: str) -> None:
    with pytest.raises(DamagedError, match="the registry's job/end"):
        read_job_end(value)


def test_a_failure_has_a_reason() -> None:
    assert read_job_end('{"phase":"failed","reason":""}').reason == "the job's master does not say why"
    assert len(read_job_end(json.dumps({"phase": "failed", "reason": "x" * 9999})).reason) <= 3100

"""What the tests of localcluster share: a small Job, and programs as its entrypoint."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.localcluster.job.manifest import Container, EnvVar, JobSpec, Volume, VolumeMount

Script = Callable[[str], Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A maker of entrypoints: the text of a bash script to its path."""

    def make(text: str) -> Path:
        path = tmp_path / "start.sh"
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def job() -> JobSpec:
    """Three pods with a volume, as the training Job has them."""
    container = Container(
        "trainer",
        env=(EnvVar("JOB_PATH", "/home/jobpath"),),
        mounts=(VolumeMount("jobpath", "/home/jobpath"), VolumeMount("work", "/work")),
    )
    volumes = (Volume("jobpath", "persistentVolumeClaim", "mfs"), Volume("work", "emptyDir"))
    return JobSpec("j", container, parallelism=3, completions=3, indexed=True, grace_seconds=5.0, volumes=volumes)


@pytest.fixture(autouse=True)
def logs_of_tests(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs that stay when a cluster is closed stay in the test run's own directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("localcluster")))

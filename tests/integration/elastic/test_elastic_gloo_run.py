"""`paddle_cluster.elastic.runner.gloo_run` with real workers: the functions behind `horovodrun`, a job of each kind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paddle_cluster.elastic.discovery import FixedHosts
from paddle_cluster.elastic.runner.gloo_run import gloo_run, gloo_run_elastic
from paddle_cluster.elastic.settings import ElasticSettings, StaticSettings

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import numpy as np
import paddle.elastic as hvd

hvd.init()
total = hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}: {total[0]:g}", flush=True)
"""
ELASTIC = (
    SCRIPT
    + """
@hvd.elastic.run
def train(state):
    state.commit()

train(hvd.elastic.ObjectState(step=0))
"""
)


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.delenv("PADDLE_SECRET", raising=False)
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_workers_of_a_fixed_job_find_each_other(
    tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = StaticSettings(num_proc=2, hosts="localhost:1,127.0.0.1:1", output_filename=str(tmp_path))
    gloo_run(settings, ["lo"], environ, "127.0.0.1", [sys.executable, "-c", SCRIPT])
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[0]<stdout>:rank 0 of 2: 3",
        "[1]<stdout>:rank 1 of 2: 3",
    ]
    assert (tmp_path / "rank.1" / "stdout").read_text() == "[1]<stdout>:rank 1 of 2: 3\n"


def test_workers_of_an_elastic_job_find_each_other(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    settings = ElasticSettings(FixedHosts({"localhost": 2}), 2, 2, 60.0, None, num_proc=2)
    gloo_run_elastic(settings, environ, [sys.executable, "-c", ELASTIC])
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["[0]<stdout>:rank 0 of 2: 3", "[1]<stdout>:rank 1 of 2: 3"]

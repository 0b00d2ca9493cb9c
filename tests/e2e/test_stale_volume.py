"""Launchers on a volume whose clients cache what they see: they agree, and begin again, without a fresh look at it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from three_pods import ROOT, ends, errors_in_tests, open_gate, prepare, shut_gate, start

STALE_S = 900.0  # longer than the test; NFS clients cache attributes for up to 60 s


def test_agreement_does_not_depend_on_fresh_looks_nor_on_a_pserver_in_each_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower waited for job.json as long as its client cached that there is none, or the old one.

    The pods without a pserver train, stay until the job is done, and take part in the next attempt like the others.
    """
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    from recovery import make_launcher

    job = prepare(tmp_path / "volume")
    (tmp_path / "launcher").mkdir()
    shut_gate(job, 4)
    entrypoint = make_launcher(ROOT, tmp_path / "launcher", STALE_S)
    with start(tmp_path / "volume", entrypoint, RESUME="0", CONF_PADDLE_PSERVER_NUM="1") as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="2")
        assert ["paddle pserver" in str(cluster.processes(index)) for index in "012"] == [True, False, False]
        cluster.kill("2", process="paddle train")
        open_gate(job)
        for pod in ("0", "1", "2"):
            cluster.wait_for_output(rf"trainer {pod} of 3, attempt 2\.", deadline=60, pod=pod)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0, 0, 0]
    assert json.loads((job / "output" / "job.json").read_text())["attempt"] >= 2
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06

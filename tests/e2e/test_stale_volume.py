"""Launchers on a volume whose clients cache what they see: they agree, and begin again, without a fresh look at it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from three_pods import ROOT, ends, prepare

STALE_S = 900.0  # longer than the test; NFS clients cache attributes for up to 60 s


def test_agreement_does_not_depend_on_fresh_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower waited for job.json as long as its client cached that there is none, or the old one."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    from recovery import make_launcher, start

    volume = tmp_path / "volume"
    prepare(volume)
    (tmp_path / "launcher").mkdir()
    entrypoint = make_launcher(ROOT, tmp_path / "launcher", STALE_S)
    with start(volume, entrypoint, NUM_PASSES="8", PADDLE_PEER_TIMEOUT="3") as cluster:
        cluster.wait_for_output(r"Pass=1 ", deadline=60, pod="1")
        cluster.kill("1", process="paddle train")
        for pod in ("0", "1", "2"):
            cluster.wait_for_output(rf"trainer {pod} of 3, attempt 2\.", deadline=60, pod=pod)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0, 0, 0]

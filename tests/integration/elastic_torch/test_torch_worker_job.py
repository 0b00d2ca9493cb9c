"""Three workers of PyTorch that check many things at once; they are forks of one process that has imported torch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

import torch_worker

from paddle_cluster.elastic import launch


def test_three_processes_of_torch() -> None:
    """What they check stands in tests/torch_worker.py."""
    assert launch.run(torch_worker.main, num_proc=3, hosts="localhost:3") == ["checked"] * 3

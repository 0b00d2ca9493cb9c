"""The process between the driver and a worker."""

from __future__ import annotations

import os
import signal

import pytest

from paddle_cluster.elastic.launching import guard


@pytest.mark.parametrize("came", [[], [signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]])
def test_a_signal_from_before_the_worker_was_there_reaches_it(monkeypatch: pytest.MonkeyPatch, came: list[int]) -> None:
    """A worker that was to end as soon as it began lived on, and was killed 5 s later."""
    monkeypatch.setattr(guard, "CAME", came)
    child = guard.start(["sleep", "600" if came else "0"])
    guard.pass_on(child)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (-came[0] if came else 0)

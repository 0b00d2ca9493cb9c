"""The end of a worker on this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from waiting import until

from elastic.launching import guard
from elastic.launching.output import OutputWriter
from elastic.launching.processes import DRAIN_S, run_process, start_command
from elastic.membership.results import WorkerExit


def run(script: str, ends: tuple[threading.Event, ...] = ()) -> tuple[WorkerExit, float]:
    """Run a shell script as a worker; return its end, and the seconds that it took."""
    began = time.monotonic()
    end = run_process(start_command(["sh", "-c", script]), dict(os.environ), 0, OutputWriter(None, 1, False), ends)
    return end, time.monotonic() - began


def test_a_child_with_its_own_session_delays_no_end_of_its_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver read the output of such a child for 10 s before it told anybody that the worker had ended."""
    pid = tmp_path / "pid"
    end, seconds = run(f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' & seq 20000; while [ ! -s {pid} ]; do :; done")
    try:
        assert end.exit_code == 0
        assert seconds < DRAIN_S
        assert capsys.readouterr().out.splitlines() == [f"[0]<stdout>:{number}" for number in range(1, 20001)]
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_stopped_worker_ends_at_once(tmp_path: Path) -> None:
    """SIGTERM waited in it until SIGKILL came after 5 s."""
    pid, event = tmp_path / "pid", threading.Event()

    def end_it() -> None:
        until(lambda: pid.exists() and ") T " in Path(f"/proc/{pid.read_text().strip() or 1}/stat").read_text(), pid)
        event.set()

    threading.Thread(target=end_it, daemon=True).start()
    end, seconds = run(f"echo $$ > {pid}; kill -STOP $$; sleep 600", (event,))
    assert (end.exit_code, end.was_stopped) == (128 + signal.SIGTERM, True)
    assert seconds < guard.GRACE_S

"""`make demo-tasks`, interrupted at several moments; test_docs_commands.py runs it to its end, as README.md does."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from docpages.project import programs_in

ROOT = Path(__file__).parents[2]
GONE_S = 20.0


def start(place: Path) -> subprocess.Popen[str]:
    command = [sys.executable, ROOT / "examples" / "demo_tasks.py", place]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


@pytest.mark.parametrize(
    "moment", [r"\$ paddle prepare", "pserver-1 started", "a trainer is frozen", "kill -9 of the master"]
)
def test_an_interrupt_leaves_no_process(tmp_path, moment):
    with start(tmp_path / "demo") as process:
        for line in process.stdout:
            if re.search(moment, line):
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        rest = process.stdout.read()
        assert process.wait(GONE_S) in (-signal.SIGINT, 130), rest
    assert "Traceback" not in rest
    until = time.monotonic() + GONE_S
    while programs_in(tmp_path):
        assert time.monotonic() < until, programs_in(tmp_path)
        time.sleep(0.05)

"""`make demo-elastic`: to its end, and interrupted at several moments."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
END_S = 170.0
GONE_S = 20.0


def start(place: Path) -> subprocess.Popen[str]:
    command = [sys.executable, ROOT / "examples" / "demo_elastic.py", place]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def left_of(place: Path) -> list[str]:
    """The command lines of processes that run in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(place):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.timeout(300)
def test_the_job_ends_with_the_table_of_tasks_and_the_test_error(tmp_path):
    with start(tmp_path / "demo") as process:
        output, _ = process.communicate(timeout=END_S + 60)
    assert process.returncode == 0, output
    assert float(re.search(r"test error (\S+) %", output)[1]) < 6
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", output, re.MULTILINE)
    assert {row[1] for row in rows} == {"72"}, "all tasks of every pass"
    assert {row[4] for row in rows} == {"1438"}, "all samples of every pass"
    assert any(int(row[3]) for row in rows), "a frozen and a killed trainer's tasks are repeated"
    for what in ("3 trainers", "kill -9 of the master", "kill -9 of a parameter server", "2 trainers"):
        assert f"done: {what}" in output
    assert left_of(tmp_path) == []


@pytest.mark.parametrize("moment", [r"\$ prepare", "pserver-1 started", "a trainer is frozen", "kill -9 of the master"])
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
    while left_of(tmp_path):
        assert time.monotonic() < until, left_of(tmp_path)
        time.sleep(0.05)

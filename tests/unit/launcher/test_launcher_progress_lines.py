"""The lines of progress in the output of a program, which the launcher hands to `paddle follow`."""

import os
import sys
from pathlib import Path

import pytest

from paddle_cluster.launcher.programs.progress_lines import LONGEST, ProgressLines


def make(tmp_path: Path, shell: str) -> ProgressLines:
    return ProgressLines(("sh", "-c", f"echo $$ >{tmp_path}/started; {shell}"), os.environ)


def test_only_whole_lines_of_progress_are_handed_on(tmp_path: Path) -> None:
    lines = make(tmp_path, f"exec cat >{tmp_path}/told")
    lines.feed(b"loading\nPas")
    assert not (tmp_path / "started").exists()
    long = b"Pass=0 Batch=2 " + b"x" * LONGEST
    for chunk in (b"s=0 Batch=1\nPass=0 Bat", b"ch=2\r\n", long, long, b"y\n Pass=1\nPass=\xff\n", b"Pass=9 Batch=1"):
        lines.feed(chunk)
    lines.end(-15)
    assert (tmp_path / "told").read_bytes() == b"Pass=0 Batch=1\nPass=0 Batch=2\r\nPass=\xff\nExit=143\n"


def test_a_program_that_floods_does_not_stop_the_launcher(tmp_path: Path) -> None:
    """The pipe is full after 64 KiB: the write would have waited for `paddle follow` for ever."""
    lines = make(tmp_path, "exec tail -f /dev/null")
    for _ in range(2000):
        lines.feed(b"Pass=0 Batch=1 AvgCost=0.5 " + b"x" * 100 + b"\n")
    lines.close()


def test_a_follower_that_ends_is_not_started_again(tmp_path: Path) -> None:
    lines = make(tmp_path, "exit 3")
    lines.feed(b"Pass=0 Batch=1\n")
    started = None
    for number in range(3):
        lines.feed(b"Pass=0 Batch=2\n")
        lines.end(0)
        started = started or (tmp_path / "started").read_text()
        assert (tmp_path / "started").read_text() == started, number


def test_a_command_that_is_not_there_costs_the_reports_alone(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines(("no-such-command",), {"PATH": str(Path(sys.executable).parent)})
    lines.feed(b"Pass=0 Batch=1\nPass=0 Batch=2\n")
    lines.end(0)
    assert capsys.readouterr().out.count("the progress of the program is not reported") == 1

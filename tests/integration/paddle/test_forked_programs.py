"""The processes of tests/forked do what those of `python -m` do: tests of trainers and servers rely on it."""

import os
import re
import signal
import subprocess
import sys

import pytest


def without_times(log):
    """Lines without the time and the process id that each begins with."""
    return re.sub(rb"(?m)^([IWEF])\d{4} \S+ +\d+ ", rb"\1 ", log)


@pytest.mark.parametrize(
    "arguments",
    [["version"], ["train", "--help"], ["train", "--num_passes=0"], ["pserver", "--nics=127.0.0.300"], ["tarin"]],
    ids=lambda arguments: " ".join(arguments),
)
def test_output_and_status_are_those_of_a_whole_start(tmp_path, fork_server, arguments):
    environ = dict(os.environ, COLUMNS="100")
    command = [sys.executable, "-m", "paddle", *arguments]
    whole = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, timeout=60)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = fork_server.start(["paddle", *arguments], tmp_path, environ, [out.fileno(), err.fileno()])
    assert process.wait(60) == whole.returncode
    assert (tmp_path / "out").read_bytes() == whole.stdout
    assert without_times((tmp_path / "err").read_bytes()) == without_times(whole.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_each_ends_by_its_own_signal(tmp_path, fork_server, number):
    """Of two processes the one that gets the signal ends by it, and its environment and directory are its own."""
    (tmp_path / "sitting.py").write_text(
        "import os, signal\nprint(os.getcwd(), os.environ['MINE'], flush=True)\nsignal.pause()\n"
    )
    processes = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitting.py").write_text((tmp_path / "sitting.py").read_text())
        with (tmp_path / name / "log").open("wb") as log:
            environ = dict(os.environ, MINE=name)
            processes.append(fork_server.start(["sitting"], tmp_path / name, environ, [log.fileno()] * 2))
    try:
        for name in ("a", "b"):
            while not (said := (tmp_path / name / "log").read_text()).endswith("\n"):
                assert [one.poll() for one in processes] == [None, None]
            assert said == f"{tmp_path / name} {name}\n"
        processes[1].send_signal(number)
        assert processes[1].wait(60) == -number
        assert processes[0].poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            processes[0].wait(0.01)
    finally:
        for one in processes:
            one.kill()
            one.wait(60)

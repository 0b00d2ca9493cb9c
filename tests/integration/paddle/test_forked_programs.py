"""The processes of tests/forked do what those of `python -m` do: tests of trainers and servers rely on it."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import ForkServer

ROOT = Path(__file__).parents[3]


def without_times(log):
    """Lines without the time and the process id that each begins with."""
    return re.sub(rb"(?m)^(?:([IWEF])\d{4} \S+ +\d+|\d{4}-\d\d-\d\d \S+) ", rb"\1 ", log)


@pytest.mark.parametrize(
    "arguments",
    [
        ["paddle", "version"],
        ["paddle", "train", "--help"],
        ["paddle", "train", "--num_passes=0"],
        ["paddle", "pserver", "--nics=127.0.0.300"],
        ["paddle", "tarin"],
        ["paddle", "elastic", "run", "--help"],
        ["paddle", "elastic", "agent", "--port", "0"],
        ["paddle", "master", "--ttl=0"],
        ["paddle", "autoscaler", "--interval=0s"],
        ["paddle", "localcluster", "run", "none.yaml"],
        ["paddle_cluster.launcher.roles", "worker"],
        ["paddle", "prepare", "--data_source=none"],
        ["start_paddle", "--help"],
        ["start_paddle", "--num_passes=3"],
    ],
    ids=" ".join,
)
def test_output_and_status_are_those_of_a_whole_start(tmp_path, fork_server, arguments):
    environ = dict(os.environ, COLUMNS="100")
    program = [str(ROOT / "start_paddle.py")] if arguments[0] == "start_paddle" else ["-m", arguments[0]]
    command = [sys.executable, *program, *arguments[1:]]
    whole = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, timeout=60)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = fork_server.start(arguments, tmp_path, environ, [out.fileno(), err.fileno()])
    assert process.wait(60) == whole.returncode
    assert without_times((tmp_path / "out").read_bytes()) == without_times(whole.stdout)
    assert without_times((tmp_path / "err").read_bytes()) == without_times(whole.stderr)


def test_its_streams_temporary_files_and_standard_input_are_its_own(tmp_path, fork_server):
    (tmp_path / "looking.py").write_text(
        "import sys, tempfile\n"
        "sys.stdout.reconfigure(errors='replace')\n"  # a pipe, where the server's own may be a file
        "print(tempfile.gettempdir(), sys.stdin.read())\n"
        "sys.exit('why')\n"
    )
    ended = fork_server.run(["looking"], tmp_path, dict(os.environ, TMPDIR=str(tmp_path)))
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, f"{tmp_path} \n", "why\n")
    (tmp_path / "in").write_text("given")
    with (tmp_path / "in").open("rb") as given, (tmp_path / "log").open("wb") as log:
        process = fork_server.start(["looking"], tmp_path, os.environ, [log.fileno(), log.fileno(), given.fileno()])
    assert process.wait() == 1
    assert " given\n" in (tmp_path / "log").read_text()


def test_what_it_prints_last_and_does_at_its_exit_is_not_lost(tmp_path, fork_server):
    """It ends by os._exit."""
    (tmp_path / "ending.py").write_text(
        "import atexit, threading, time\n"
        "atexit.register(print, 'third')\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('second'))).start()\n"
        "print('first')\n"
    )
    ended = fork_server.run(["ending"], tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "first\nsecond\nthird\n", "")


def test_what_still_runs_when_the_tests_end_is_killed(tmp_path):
    (tmp_path / "sitting.py").write_text("import signal\nprint('sits', flush=True)\nsignal.pause()\n")
    with contextlib.closing(ForkServer()) as another:
        process = another.open(["sitting"], tmp_path)
        assert process.stdout.readline() == "sits\n"
        ended = os.pidfd_open(process.pid)
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)
    process.stdout.close()
    process.stderr.close()


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

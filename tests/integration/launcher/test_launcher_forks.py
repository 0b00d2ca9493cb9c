"""A program that the fork server has forked cannot be told from one that `paddle` has started."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from waiting import until

from paddle_base.runtime.forking.client import ForkedProgram
from paddle_cluster.launcher.programs import fork_client
from paddle_cluster.launcher.programs.fork_client import PodForkServer, start_fork_server
from paddle_cluster.launcher.programs.process import Program

PADDLE = str(Path(sys.executable).parent / "paddle")
DEADLINE_S = 60.0
Forks = Callable[..., PodForkServer]


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[PodForkServer]:
    monkeypatch.setenv("PATH", f"{Path(PADDLE).parent}{os.pathsep}{os.environ['PATH']}")
    readable, writable = os.pipe()
    started = start_fork_server(["pserver"], {}, readable)
    assert started is not None
    yield started
    started.close()
    for one in (readable, writable):
        os.close(one)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def serve_at(port: int) -> list[str]:
    return ["paddle", "pserver", f"--port={port}", "--ports_num=1", "--ports_num_for_sparse=0", "--nics=127.0.0.1"]


def look(pid: int) -> dict[str, object]:
    """What /proc shows of a process, apart from its number and its memory."""
    place = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines())
    environ = {*(place / "environ").read_bytes().split(b"\0")}
    return {
        "command line": (place / "cmdline").read_bytes(),
        "environment": {one for one in environ if not one.startswith((b"_=", b"PWD=", b"OLDPWD=", b"SHLVL="))},
        "name": status["Name"],
        **{name: status[name] for name in ("PPid", "SigBlk", "SigIgn", "SigCgt", "Umask", "Seccomp")},
        "group": (os.getpgid(pid), os.getsid(pid)),
        "folder": (place / "cwd").readlink(),
        "program": (place / "exe").readlink(),
        "limits": (place / "limits").read_text(),
        "streams": {number: os.stat(f"/proc/{pid}/fd/{number}").st_ino for number in (0, 1, 2)},  # noqa: PTH116
        "descriptors": len(list((place / "fd").iterdir())),
    }


def look_at_rest(pid: int) -> dict[str, object] | None:
    """The same, or None while a thread imports; a start of a thread blocks all signals for a moment."""
    threads, seen = re.findall(r"Threads:\t(.*)", Path(f"/proc/{pid}/status").read_text()), look(pid)
    return seen if threads == ["1"] and int(str(seen["SigBlk"]), 16) == 0 and seen == look(pid) else None


def run(
    argv: list[str], environ: Mapping[str, str], log: Path, forks: PodForkServer | None, at: int
) -> dict[str, object]:
    """Start a server, look at it when it serves, and stop it. Returns what was seen."""
    program = Program("pserver", argv, environ, log, copied=False, forks=forks)
    assert isinstance(program.process, ForkedProgram if forks else subprocess.Popen)

    def is_serving() -> bool:
        assert program.process.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", at)) == 0

    until(is_serving, "the server that listens", DEADLINE_S, log=log)
    seen = until(lambda: look_at_rest(program.process.pid), "a server that has imported all", DEADLINE_S, log=log)
    program.stop(DEADLINE_S)
    program.close()
    text = re.sub(r"[0-9.:]+ +[0-9]+ ([A-Za-z]+\.(cpp|py))", r"\1", log.read_text())
    return {**seen, "status": program.status, "log": text}


def test_a_forked_program_looks_and_ends_like_one_that_paddle_has_started(forks: PodForkServer, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    environ = {**os.environ, "PADDLE_ATTEMPT": "3.abc", "UMLAUT": "Grün \udcff"}
    forked = run(serve_at(port), environ, log, forks, port)
    started = run(serve_at(port), environ, log, None, port)
    assert forked == started
    assert forked["status"] == 143 and forked["PPid"] == str(os.getpid())


def test_the_exit_status_and_the_output_of_a_forked_program_arrive(forks: PodForkServer) -> None:
    program = forks.start(["paddle", "pserver", "--prot=1"], os.environ, subprocess.PIPE)
    assert program is not None and program.stdout is not None
    with program.stdout:
        assert "unknown command line flag 'prot'" in program.stdout.read().decode()
    assert program.wait(DEADLINE_S) == 64


def test_a_killed_program_has_the_number_of_the_signal_as_its_status(forks: PodForkServer, tmp_path: Path) -> None:
    program = Program("pserver", serve_at(free_port()), os.environ, tmp_path / "log", copied=False, forks=forks)
    program.kill()
    assert program.process.wait(DEADLINE_S) == -signal.SIGKILL and program.status == -signal.SIGKILL
    program.close()


def test_a_wait_for_a_forked_program_has_a_timeout(forks: PodForkServer) -> None:
    program = forks.start(serve_at(free_port()), os.environ, 2)
    assert program is not None
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.0)
    program.kill()
    program.wait(DEADLINE_S)


def test_without_the_fork_server_the_programs_start_as_always(
    forks: PodForkServer, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The fork server has been killed, for example for its memory."""
    assert forks._process is not None
    forks._process.kill()
    program = Program(
        "pserver", ["paddle", "pserver", "--help"], os.environ, tmp_path / "log", copied=False, forks=forks
    )
    assert isinstance(program.process, subprocess.Popen) and program.process.wait(DEADLINE_S) == 0
    program.close()
    assert "start without a fork server" in capfd.readouterr().out
    assert forks.start(["paddle", "pserver", "--help"], os.environ, 2) is None


def test_a_signal_ends_the_wait_for_the_fork_server(tmp_path: Path) -> None:
    readable, writable = os.pipe()
    slow = tmp_path / "paddle"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    forks = PodForkServer(str(slow), ["pserver"], readable)
    os.write(writable, b"x")
    assert forks.start(["paddle", "pserver", "--help"], os.environ, 2) is None
    assert forks._process is None
    for one in (readable, writable):
        os.close(one)


@pytest.mark.parametrize(
    ("programs", "environ"),
    [([], {}), (["train"], {"OMP_NUM_THREADS": "4"}), (["train"], {"PADDLE_BLAS_THREADS": "2"})],
)
def test_no_fork_server_where_it_would_not_be_the_same(
    forks: PodForkServer, programs: list[str], environ: dict[str, str]
) -> None:
    assert start_fork_server(programs, environ, 0) is None


def test_a_forked_trainer_prints_what_a_started_one_prints(forks: PodForkServer) -> None:
    """It leaves by the interpreter's own end, because what a provider has written and not closed must not be lost."""
    readable, writable = os.pipe()
    trainers = start_fork_server(["train"], {}, readable)
    assert trainers is not None
    program = trainers.start(["paddle", "train", "--version"], os.environ, subprocess.PIPE)
    assert program is not None and program.stdout is not None
    with program.stdout:
        text = program.stdout.read()
    assert program.wait(DEADLINE_S) == 0
    trainers.close()
    os.close(readable)
    os.close(writable)
    done = subprocess.run([PADDLE, "train", "--version"], capture_output=True, timeout=DEADLINE_S, check=True)
    assert done.stdout and done.stdout in text


@pytest.mark.parametrize("words", [[], ["x"], ["987654"]])
def test_a_user_who_starts_the_fork_server_is_told(words: list[str]) -> None:
    command = [sys.executable, "-m", "paddle", "fork-server", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 64 and "fork-server" in done.stderr and "Traceback" not in done.stderr


def test_no_fork_server_for_another_paddle_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user may have put a program before it that starts `paddle` under a profiler, for example."""
    (tmp_path / "paddle").write_text(f'#!/bin/sh\nexec {PADDLE} "$@"\n')
    (tmp_path / "paddle").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert fork_client.find_own_paddle() == ""

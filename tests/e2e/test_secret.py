"""The secret of a job is in the environment and the command line of none of its programs: only a path is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from three_pods import ROOT, ends, prepare, start

SECRET = "0d6f5b1c7e9a4832b6d1f0c2a3948576"
TRAINING = """
import os, subprocess, sys
import numpy as np
from paddle_cluster.elastic.process import operations as hvd
from paddle_base.runtime.environment import read_environment

hvd.init()
hvd.allreduce(np.ones(4, np.float32))
subprocess.run(CHILD, check=True)  # as a DataLoader starts its workers
print(read_environment(os.environ).secret, os.environ.get("PADDLE_SECRET", ""), sep="|", flush=True)
hvd.shutdown()
"""


WAITS = "until test -e"


def make_child(folder: Path) -> list[str]:
    """The command of a program that ends when it has been seen."""
    return ["sh", "-c", f"{WAITS} {folder}/seen; do sleep 0.05; done"]


class Look:
    """What a thread sees in /proc of the processes of a job, whose environment or command line names its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._is_seen = str(folder).encode(), folder / "seen"
        self.seen: dict[str, set[bytes]] = {}  # for each command line, the environments of its processes

    def look(self) -> None:
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                environ, command = (place / "environ").read_bytes(), (place / "cmdline").read_bytes()
                if self._folder in environ + command:
                    self.seen.setdefault(command.replace(b"\0", b" ").decode(), set()).add(environ)
        if any(WAITS in one for one in self.seen):
            self._is_seen.touch()

    def having(self, secret: str) -> list[str]:
        """The command lines of the programs that have the secret in their arguments or environment."""
        text = secret.encode()
        return [one for one, all_of in self.seen.items() if secret in one or any(text in each for each in all_of)]


@contextlib.contextmanager
def looking(folder: Path) -> Iterator[Look]:
    found, is_over = Look(folder), threading.Event()

    def run() -> None:
        while not is_over.wait(0.02):
            found.look()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def test_the_programs_of_a_static_job_have_a_path_in_the_place_of_the_secret(tmp_path: Path, secret_file: Path) -> None:
    """Also those that a provider starts, which inherit its environment."""
    job = prepare(tmp_path)
    provider = job / "digits" / "digits_provider.py"
    provider.write_text(f"import subprocess\nsubprocess.run({make_child(tmp_path)})\n{provider.read_text()}")
    with (
        looking(tmp_path) as found,
        start(tmp_path, PADDLE_SECRET_FILE="/home/jobpath/secret", NUM_PASSES="2") as cluster,
    ):
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert not [pod for pod in result.pods if "WARNING: no secret" in pod.output]
    for program in ("start_paddle.py", "pserver", "train", WAITS):
        assert [one for one in found.seen if program in one], (program, found.seen)
    assert found.having(SECRET) == []


@pytest.mark.parametrize("is_given", [True, False], ids=["a file", "made by the driver"])
def test_the_programs_of_an_all_reduce_job_have_a_path_in_the_place_of_the_secret(
    tmp_path: Path, secret_file: Path, is_given: bool
) -> None:
    """The driver handed PADDLE_SECRET to its workers, and each program of a DataLoader inherited it."""
    (tmp_path / "train.py").write_text(TRAINING.replace("CHILD", str(make_child(tmp_path))))
    command = [sys.executable, "-m", "paddle", "elastic", "run", "-np", "2", sys.executable, str(tmp_path / "train.py")]
    given = {"FOLDER": str(tmp_path), **({"PADDLE_SECRET_FILE": str(secret_file)} if is_given else {})}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PADDLE_SECRET")}
    with looking(tmp_path) as found:
        ended = subprocess.run(
            command, cwd=ROOT, env={**environ, **given}, capture_output=True, text=True, timeout=100, check=False
        )
    assert ended.returncode == 0, ended.stderr
    (shown,) = {line.partition(">:")[2] for line in ended.stdout.splitlines()}
    secret, variable = shown.split("|")
    assert variable == "" and len(secret) >= 32 and (secret == SECRET) == is_given
    for program in ("elastic run", "train.py", WAITS):
        assert [one for one in found.seen if program in one], found.seen
    assert found.having(secret) == []

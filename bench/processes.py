"""Start the processes of a benchmark and wait for them; return their output and resource usage; find free ports."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# the numbers of threads of numpy's products, of torch, and of both thread pools of TensorFlow; PADDLE_BLAS_THREADS is
# not set, because it would override the trainer's own choice
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
SHOWN = 2000  # number of characters that are shown of a failed process's output


@dataclass(frozen=True)
class Ended:
    """The output of an ended process (stdout and stderr), and the resources that it and its children have used."""

    text: str
    usage: os.struct_rusage

    @property
    def peak_mb(self) -> float:
        return self.usage.ru_maxrss / 1024


def run_processes(commands: Sequence[Sequence[str]], directory: Path, environ: Mapping[str, str]) -> list[Ended]:
    """Starts processes that run in parallel, and waits for all of them, for the last process first.

    Raises: SystemExit: a process failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        logs = [Path(scratch, str(number)) for number in range(len(commands))]
        processes = []
        usages: dict[int, os.struct_rusage] = {}
        try:
            for command, log in zip(commands, logs, strict=True):
                with log.open("wb") as output:
                    processes.append(
                        subprocess.Popen(command, cwd=directory, env=environ, stdout=output, stderr=subprocess.STDOUT)
                    )
            for number, process in reversed(list(enumerate(processes))):
                _, status, usages[number] = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    texts = [log.read_text(encoding="utf-8")[-SHOWN:] for log in logs]
                    raise SystemExit(f"bench: {' '.join(commands[number])} failed:\n" + "\n".join(texts))
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    process.wait()
        return [Ended(log.read_text(encoding="utf-8"), usages[number]) for number, log in enumerate(logs)]


def bare_environment(**more: str) -> dict[str, str]:
    """Returns the environment without the variables that set the threads and the kernels of matrix products."""
    names = ("OPENBLAS_CORETYPE", *THREAD_VARIABLES)
    return {name: value for name, value in os.environ.items() if name not in names} | more


def thread_environment(threads: int, **more: str) -> dict[str, str]:
    """Returns the environment in which numpy, torch and TensorFlow compute with this number of threads."""
    return bare_environment(**dict.fromkeys(THREAD_VARIABLES, str(threads)), **more)


def has_module(python: str, module: str) -> bool:
    """Returns whether a Python can import a module."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        return subprocess.run([python, "-c", f"import {module}"], **quiet, check=False).returncode == 0
    except OSError:
        return False


def find_peer(python: str, module: str, name: str) -> str | None:
    """Returns the absolute path of a Python if it has the module; otherwise prints a message and returns None."""
    if has_module(python, module):
        return str(Path(shutil.which(python) or python).absolute())  # programs start in directories of their own
    print(f"{name} is not installed, so nothing is compared with it; --{name.lower()} names a Python that has it")
    return None


def find_port(hosts: Sequence[str], count: int = 1) -> int:
    """Returns the first of `count` consecutive ports that are free on all hosts at this moment."""
    while True:
        first = random.SystemRandom().randrange(20000, 32000)
        try:
            for host in hosts:
                for port in range(first, first + count):
                    with socket.socket() as one:
                        one.bind((host, port))
        except OSError:
            continue
        return first

"""Distributed training on this machine, as bench/train.py --nodes times it: a trainer and a server for each node."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """What the processes of a job said and used, those of node 0 first."""

    logs: Sequence[str]  # of the trainers
    trainer_mb: float
    server_mb: float


def find_port(hosts: Sequence[str]) -> int:
    """Return a port that is free on all hosts at this moment."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        try:
            for host in hosts:
                with socket.socket() as one:
                    one.bind((host, port))
        except OSError:
            continue
        return port


def run_job(nodes: int, directory: Path, environ: Mapping[str, str], flags: Sequence[str]) -> Job:
    """Run trainers and servers to their end; every node has an address of its own.

    Args: directory: where all trainers run.  flags: more flags of the trainers.
    Raises: SystemExit: one of them failed.
    """
    hosts = [f"127.0.0.{node + 1}" for node in range(nodes)]
    port = find_port(hosts)
    common = [f"--port={port}", "--ports_num=1", f"--num_gradient_servers={nodes}"]
    paddle = [sys.executable, "-m", "paddle"]
    commands = [[*paddle, "pserver", *common, f"--nics={host}"] for host in hosts]
    for node, host in enumerate(hosts):
        named = ["--local=0", f"--trainer_id={node}", f"--pservers={','.join(hosts)}", f"--nics={host}"]
        commands.append([*paddle, "train", *named, *common, *flags])
    with tempfile.TemporaryDirectory() as scratch:
        logs = [Path(scratch, str(number)) for number in range(2 * nodes)]
        processes = []
        for command, log in zip(commands, logs, strict=True):
            with log.open("wb") as output:
                processes.append(
                    subprocess.Popen(command, cwd=directory, env=environ, stdout=output, stderr=subprocess.STDOUT)
                )
        peaks = []
        try:
            for process in [*processes[nodes:], *processes[:nodes]]:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                peaks.append(usage.ru_maxrss / 1024)
                if process.returncode:
                    text = "\n".join(log.read_text(encoding="utf-8")[-1000:] for log in logs)
                    raise SystemExit(f"bench/train.py: {' '.join(process.args)} failed:\n{text}")
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    process.wait()
        texts = [log.read_text(encoding="utf-8") for log in logs[nodes:]]
    return Job(texts, max(peaks[:nodes]), max(peaks[nodes:]))

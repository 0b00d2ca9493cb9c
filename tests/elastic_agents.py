"""Agents as processes; each has its own loopback address, and all have the same port."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from forked import Forked, server
from ports import LOWEST
from waiting import until

from paddle_base.runtime.errors import PeerUnreachableError
from paddle_cluster.elastic.agent.client import AgentClient

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 60.0
SECRET = "a secret of the test"


def answers(client: AgentClient) -> bool:
    try:
        client.read_state()
    except PeerUnreachableError:
        return False
    return True


class Agents:
    """The agents of a test; all listen on `port`."""

    def __init__(self, directory: Path, port: int) -> None:
        assert port >= LOWEST
        self.port = port
        self._directory, self._processes = directory, dict[str, Forked]()

    def client(self, address: str) -> AgentClient:
        return AgentClient(address, self.port, SECRET)

    def start(self, address: str, *flags: str) -> None:
        """Start the agent of an address, and wait until it answers."""
        command = ["paddle", "elastic", "agent", "--port", str(self.port), "--address", address, *flags]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PADDLE_SECRET": SECRET}
        with (self._directory / f"agent-{address}.log").open("ab") as log:
            process = server().start(command, self._directory, environ, [log.fileno()] * 2)
        self._processes[address] = process
        until(lambda: process.poll() is not None or answers(self.client(address)), f"the agent of {address}")
        assert process.poll() is None, self.log(address)

    def log(self, address: str) -> str:
        return (self._directory / f"agent-{address}.log").read_text()

    def kill(self, address: str) -> None:
        """Kill an agent by SIGKILL."""
        process = self._processes.pop(address)
        process.kill()
        process.wait(LIMIT_S)

    def stop(self, address: str) -> int:
        """End an agent by SIGTERM; return its status."""
        process = self._processes.pop(address)
        process.send_signal(signal.SIGTERM)
        return process.wait(LIMIT_S)

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(LIMIT_S)


@contextlib.contextmanager
def started_agents(directory: Path, port: int, *addresses: str) -> Iterator[Agents]:
    """Start agents at some addresses, and end them after the block."""
    agents = Agents(directory, port)
    try:
        for address in addresses:
            agents.start(address)
        yield agents
    finally:
        agents.end()

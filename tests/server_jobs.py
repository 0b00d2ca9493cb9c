"""Jobs of trainers and parameter servers, as `paddle` processes on loopback addresses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ports import free_ports


class ServerJob:
    """Trainers, each in a folder of its own, and servers, whose logs are in another; `start` may be called again.

    Attributes: servers, trainers: the processes of the last start.  tells_count: whether the trainers get
    --num_gradient_servers, as the servers do.
    """

    def __init__(
        self,
        paddle: Any,
        root: Path,
        folders: Sequence[Path],
        *flags: str,
        servers: int = 1,
        ports: int = 1,
        rows: int = 0,
    ) -> None:
        """Args: flags: of the trainers.  ports, rows: of each server, for dense parameters and for rows of tables."""
        root.mkdir(parents=True, exist_ok=True)
        self.paddle, self.root, self.folders, self.flags = paddle, root, folders, flags
        self.hosts = [f"127.0.0.{number + 1}" for number in range(servers)]
        self.port = free_ports(ports + rows)[0]
        self.ports = [f"--port={self.port}", f"--ports_num={ports}", f"--ports_num_for_sparse={rows}"]
        self.tells_count = True
        self.servers: list[Any] = []
        self.trainers: list[Any] = []

    def start(self, *arguments: str, each: Sequence[Sequence[str]] = ()) -> list[Any]:
        """Start the servers and the trainers; return the trainers. `each` has further arguments of every trainer."""
        count = [f"--num_gradient_servers={len(self.folders)}"]
        self.servers = [
            self.paddle.start(self.root, "pserver", f"--nics={host}", *self.ports, *count, log=f"server{number}")
            for number, host in enumerate(self.hosts)
        ]
        remote = ["--local=0", f"--pservers={','.join(self.hosts)}", *self.ports, *count * self.tells_count]
        own = each or [()] * len(self.folders)
        self.trainers = [
            self.paddle.start(folder, "train", *self.flags, *remote, f"--trainer_id={number}", *arguments, *own[number])
            for number, folder in enumerate(self.folders)
        ]
        return self.trainers

    def run(self, *arguments: str, timeout: float = 120) -> list[int]:
        """Return the exit statuses of the trainers and of the servers."""
        self.start(*arguments)
        return [one.wait(timeout) for one in (*self.trainers, *self.servers)]

    def log(self, number: int = 0) -> str:
        """Return what a trainer has logged since the last start."""
        return (self.folders[number] / "log").read_text()

"""Masters as processes, and trainers that request tasks from them, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from forked import Forked, server

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.client import MasterClient, PassOver, TaskGrant
from paddle_cluster.master.store.directory import DirectoryStore
from paddle_cluster.master.tasks.events import GRANTED

DEADLINE_S = 60.0


class MasterProcess:
    """`paddle master`, with a file for its log; one that is whole is started as users start it, others are forked."""

    def __init__(self, log: Path, *arguments: str, secret: str = "", is_whole: bool = False) -> None:
        self.log = log
        environment = {**os.environ, "PADDLE_SECRET": secret, "PADDLE_JOB_NAME": "", "PYTHONUNBUFFERED": "1"}
        command = ["paddle", "master", "--port=0", "--nics=lo", *arguments]
        with log.open("wb") as file:
            self.process: subprocess.Popen[bytes] | Forked
            if is_whole:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", *command], stderr=file, stdout=file, env=environment
                )
            else:
                self.process = server().start(command, Path.cwd(), environment, [file.fileno()] * 2)

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, text: str, seconds: float = DEADLINE_S) -> float:
        """Wait until the log has this text; return the seconds that it took."""
        began = time.monotonic()
        while text not in self.text():
            assert time.monotonic() - began < seconds, f"no {text!r} in: {self.text()}"
            assert self.process.poll() is None or text in self.text(), f"it has ended: {self.text()}"
            time.sleep(0.01)
        return time.monotonic() - began

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = DEADLINE_S) -> int:
        """Return the exit status."""
        return self.process.wait(seconds)

    def __enter__(self) -> MasterProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)


def trainer(
    directory: Path, uid: str, *, incarnation: int = 1, secret: str = "", config: str = "", patience: float = 30.0
) -> MasterClient:
    """A trainer of the job "job" whose master uses a directory."""
    book = DirectoryStore(directory / "job")
    return MasterClient(book, "job", MemberId(uid, incarnation), secret=secret, config=config, patience=patience)


def train(master: MasterClient, files: Sequence[str]) -> Iterator[TaskGrant]:
    """Yield the tasks of all passes; a task is reported as finished when the caller asks for the next one."""
    pass_number = master.set_dataset(files)
    while True:
        for task in master.tasks(pass_number):
            yield task
            master.finish(task, 1)
        over = master.get_task(pass_number)
        assert isinstance(over, PassOver)
        if over.is_last:
            return
        pass_number = over.next_pass
        if master.request_save(pass_number - 1, 30.0) == GRANTED:
            master.report_saved(pass_number - 1)

"""Makes a launcher as the main program does, for tests of its parts in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.attempts import AttemptHistory, AttemptResult, JobRecord
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import IdMap
from paddle_cluster.launcher.cluster.waiting import WaitPolicy
from paddle_cluster.launcher.control.channel import ControlChannel
from paddle_cluster.launcher.control.informer import AttemptInformer
from paddle_cluster.launcher.control.job_record import read_record
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.control.sides import RendezvousMember
from paddle_cluster.launcher.programs.process import Stop
from paddle_cluster.launcher.rendezvous import Rendezvous
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import JsonObject, LauncherLog


class FakeControl(ControlChannel, RendezvousMember):
    """Replaces the control messages; the launcher of trainer 0 sends the content of job.json on the test's volume.

    All launchers take part. The attributes record the messages to each of them.
    """

    informer = AttemptInformer()  # receives nothing

    def __init__(self, output: Path) -> None:
        self.side = self
        self.output = output
        self.missing = ""
        self.silent: set[str] = set()  # addresses of launchers that have not joined
        self.served: list[str] = []
        self.admitted: list[str] = []
        self.begun: list[JobRecord] = []
        self.done: list[JobRecord] = []
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self.reports: list[AttemptResult] = []
        self.end: AttemptResult | None = None
        self.failure: JsonObject | None = None

    @property
    def newest(self) -> JobRecord | None:
        return read_record(self.output)

    def serve(self, uid: str, job_uid: str) -> None:
        self.served = ["", uid, job_uid]

    def join(self, server_ip: str, uid: str, job_uid: str) -> None:
        self.served = [server_ip, uid, job_uid]

    def admit(self, addresses: Iterable[str]) -> None:
        self.admitted = list(addresses)

    def why_not_heard(self, ids: IdMap) -> str:
        return self.missing

    def find_silent(self, uids: Mapping[str, str]) -> list[str]:
        return [ip for ip in uids if ip in self.silent]

    def begin(self, record: JobRecord) -> None:
        self.begun.append(record)

    def finish(self, record: JobRecord) -> None:
        self.done.append(record)

    def send(self, kind: str, body: Mapping[str, Any]) -> None:
        self.sent.append((kind, body))

    def is_done(self, record: JobRecord) -> bool:
        return bool(self.done)

    def find_end(self, record: JobRecord, trainer_id: int) -> AttemptResult | None:
        return self.end

    def report(self, record: JobRecord, trainer_id: int, result: AttemptResult) -> AttemptResult:
        self.reports.append(result)
        return result

    def wait_for_first_failure(self, record: JobRecord, limit_s: float) -> JsonObject | None:
        return self.failure

    def judge_late(self, record: JobRecord) -> JsonObject | None:
        return self.failure

    def close(self) -> None:
        pass


def make_launcher(
    config: LauncherConfig,
    policy: WaitPolicy,
    history: AttemptHistory | None = None,
    control: FakeControl | None = None,
    **flags: str,
) -> Launcher:
    """Returns a launcher that receives no signals."""
    launcher = Launcher(config, flags, Stop(), PodApi.for_role(config), policy, history or AttemptHistory())
    launcher.control = control or FakeControl(config.output)
    return launcher


def agree(
    config: LauncherConfig, ids: IdMap, history: AttemptHistory | None = None, limit_s: float = 0.2, **flags: str
) -> JobRecord:
    """The attempt that a launcher finds for a set of pods, by what job.json says."""
    launcher = make_launcher(config, WaitPolicy(limit_s), history)
    launcher.passed = {"num_passes": "10", **flags}
    return Rendezvous(launcher).agree(ids, limit_s).record


@pytest.fixture(autouse=True)
def launcher_log() -> Iterator[LauncherLog]:
    """The log that the main program installs; the launcher's lines go to stdout."""
    log = LauncherLog(Secrets())
    with log.installed():
        yield log

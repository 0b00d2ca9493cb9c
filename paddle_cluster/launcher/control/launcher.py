"""The launcher of one pod: what its main program makes, and what every step of an attempt uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.waiting import WaitPolicy
from paddle_cluster.launcher.command_lines import save_dir_of
from paddle_cluster.launcher.control.channel import ControlChannel
from paddle_cluster.launcher.programs.fork_client import PodForkServer
from paddle_cluster.launcher.programs.probes import PodHealth
from paddle_cluster.launcher.programs.process import Stop
from paddle_cluster.launcher.settings import LauncherConfig


@dataclasses.dataclass
class Launcher:
    """The objects that one launcher uses; the main program makes them and passes them to every step."""

    config: LauncherConfig  # the config of the Job; an attempt may have fewer trainers and pservers
    passed: Mapping[str, str]  # {name of a flag for the trainer, without dashes: its value}
    stop: Stop
    api: PodApi
    policy: WaitPolicy
    history: AttemptHistory = dataclasses.field(default_factory=AttemptHistory)
    attempt: JobRecord | None = None  # the attempt that all pods agreed on; None: startPaddle finds the attempt
    forks: PodForkServer | None = None  # what starts the programs faster; None: they start without it

    def __post_init__(self) -> None:
        self.control = ControlChannel(self.config, self.api.secrets.redact)
        self.health = PodHealth(self.config.pod_ip, self.config.stuck_timeout, self.api)

    def close(self) -> None:
        """Close the connections to the other launchers, and end the fork server."""
        self.control.close()
        if self.forks:
            self.forks.close()

    @property
    def output(self) -> Path:
        """The directory of logs, parameters and job.json, which all pods of the job share."""
        return self.config.output

    @property
    def save_dir(self) -> Path:
        """The directory where trainer 0 saves."""
        return save_dir_of(self.config, self.passed)

"""The control channel of a benchmark's launchers, many of which run in one process: they read only job.json."""

from __future__ import annotations

import functools
import time
from pathlib import Path

from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.control.channel import ControlChannel
from paddle_cluster.launcher.control.job_record import read_record
from paddle_cluster.launcher.settings import LauncherConfig

LOOKS_PER_SECOND = 10  # of all launchers of this process together; a launcher of a real job gets a message


class VolumeControl(ControlChannel):
    """A channel that opens no port, because the addresses of these pods do not belong to this machine."""

    def __init__(self, config: LauncherConfig) -> None:
        super().__init__(config)
        self._output = config.output

    def serve(self, uid: str, job_uid: str) -> None:
        """Do nothing: this channel accepts no launcher."""

    def join(self, server_ip: str, uid: str, job_uid: str) -> None:
        """Do nothing: this channel connects to no launcher."""

    @property
    def newest(self) -> JobRecord | None:
        """The attempt that trainer 0 has written to job.json."""
        return _read_record(self._output, int(time.monotonic() * LOOKS_PER_SECOND))

    def report(self, record: JobRecord, trainer_id: int, result: AttemptResult) -> AttemptResult:
        """Return the result without sending it."""
        return result


@functools.lru_cache(maxsize=1)
def _read_record(output: Path, _moment: int) -> JobRecord | None:
    return read_record(output)

"""`--start_pserver`: a parameter server that the trainer starts in a separate process.

Source: spec/trainer.md 1.2; trainer/TrainerMain.cpp of v0.10.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paddle_base.runtime import glog
from trainer.flags import Values

END_TIMEOUT_S = 20.0  # maximum seconds until the server ends; without messages from trainers it ends earlier by itself
_SHARED = (
    "port",
    "ports_num",
    "ports_num_for_sparse",
    "nics",
    "num_gradient_servers",
    "log_period_server",
    "pserver_num_threads",
    "sock_send_buf_size",
    "sock_recv_buf_size",
    "sock_listen_queue_size",
    "async_lagged_ratio_min",
    "async_lagged_ratio_default",
)


class OwnServer:
    """A running `paddle pserver`, with the trainer's flags that apply to a server."""

    def __init__(self, flags: Values) -> None:
        given = [f"--{name}={getattr(flags, name)}" for name in _SHARED if name in flags.given]
        root = str(Path(__file__).resolve().parents[2])
        # The module path has only the project. A file of the working directory can therefore not replace a module of
        # Python.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "paddle", "pserver", *given], env={**os.environ, "PYTHONPATH": root}
        )

    def end(self) -> None:
        """Wait for the server, which ends after all trainers; terminate a server that does not end in time."""
        try:
            status = self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            status = self._process.wait()
        if status:
            glog.warning(f"the parameter server of --start_pserver ended with status {status}")

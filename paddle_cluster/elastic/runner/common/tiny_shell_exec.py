"""Runs a short command and returns its output. Names are those of `horovod.runner.common.util.tiny_shell_exec`."""

from __future__ import annotations

import io
from collections.abc import Mapping

from paddle_base.runtime import glog
from paddle_cluster.elastic.runner.common import safe_shell_exec


def execute(command: str, env: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return the output of a command on both streams, and its exit code; None if the command could not be started."""
    output = io.StringIO()
    try:
        code = safe_shell_exec.execute(command, env=env, stdout=output, stderr=output)
    except OSError as exc:
        glog.error(f"{glog.clean(command, 200)} could not be started: {exc}")
        return None
    return output.getvalue(), code

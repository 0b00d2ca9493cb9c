"""Runs a user's discovery script within bounds of time and size."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time

MOST_OUTPUT_BYTES = 8 << 20


def run_script(command: str, limit_s: float) -> str:
    """Run a shell command and return its standard output.

    Raises: ValueError: the command fails or prints too much.  subprocess.TimeoutExpired: the command takes longer than
        `limit_s` seconds.  OSError: the command cannot be started.
    """
    until = time.monotonic() + limit_s
    process = subprocess.Popen(
        command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    text = bytearray()
    with process, selectors.DefaultSelector() as selector:
        try:
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise subprocess.TimeoutExpired(command, limit_s)
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                text += chunk
                if len(text) > MOST_OUTPUT_BYTES:
                    raise ValueError(f"the command prints more than {MOST_OUTPUT_BYTES} bytes")
                if not chunk:
                    break
            status = process.wait(max(0.0, until - time.monotonic()))
        finally:
            with contextlib.suppress(ProcessLookupError):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
    if status:
        raise ValueError(f"the command ended with status {status}")
    return text.decode("utf-8", "replace")

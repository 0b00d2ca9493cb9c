"""Runs a user's discovery script within bounds of time and size."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time

LOOK_S = 0.1  # seconds between two checks for the end of the script or of the job
MOST_OUTPUT_BYTES = 8 << 20


def run_script(command: str, limit_s: float, is_stopped: threading.Event | None = None) -> str:
    """Run a shell command and return its standard output.

    The script is over when its process has ended, even if a child of it, e.g. a shared connection of ssh, keeps its
    output open.

    Args: is_stopped: event that ends the command.
    Raises: ValueError: the command fails, prints too much, or was stopped.  subprocess.TimeoutExpired: the command
        takes longer than `limit_s` seconds.  OSError: the command cannot be started.
    """
    process = subprocess.Popen(
        command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    with process:
        try:
            text = _read_output(process, time.monotonic() + limit_s, is_stopped or threading.Event())
            status = process.wait()
        except TimeoutError as exc:
            raise subprocess.TimeoutExpired(command, limit_s) from exc
        finally:
            if process.poll() is None:
                _kill(process)
    if status:
        raise ValueError(f"the command ended with status {status}")
    return text.decode("utf-8", "replace")


def _read_output(process: subprocess.Popen[bytes], until: float, is_stopped: threading.Event) -> bytes:
    """Return what a process has printed until its end.

    Raises: ValueError: the process prints too much, or was stopped.  TimeoutError: it has not ended in time.
    """
    assert process.stdout is not None
    text, is_open = bytearray(), True
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            has_ended = process.poll() is not None  # before the look at the output, which is complete then
            if is_open and selector.select(0 if has_ended else LOOK_S):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                text += chunk
                is_open = bool(chunk)
                if len(text) > MOST_OUTPUT_BYTES:
                    raise ValueError(f"the command prints more than {MOST_OUTPUT_BYTES} bytes")
            elif has_ended:
                return bytes(text)
            elif not is_open:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
            if is_stopped.is_set():
                raise ValueError("the job has been stopped")
            if time.monotonic() > until:
                raise TimeoutError


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a script and its children; a replaced `Popen` of a test may have no process number."""
    with contextlib.suppress(ProcessLookupError, TypeError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()

"""Ctrl-C ends every command by SIGINT (a shell shows status 130), at any moment and without a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

EXIT_STATUS = 130  # 128 + SIGINT, as a shell shows it


def accept() -> None:
    """End the process at once on Ctrl-C; bin/paddle starts it with SIGINT blocked."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if the parent ignores SIGINT, as nohup does
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise KeyboardInterrupt for a Ctrl-C in this block, so that files are closed and removed; then end the process.

    Any exception after a Ctrl-C is its consequence: for example, a C module during its import turns KeyboardInterrupt
    into an ImportError. A program may handle SIGINT itself inside the block.
    """
    came = False

    def handle(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal came
        came = True
        sys.unraisablehook = lambda _: None  # a KeyboardInterrupt inside a finalizer would be printed and ignored
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGINT, handle)
    try:
        yield
    except KeyboardInterrupt:
        end()
    except BaseException:
        if came:
            end()
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, before)


def end() -> NoReturn:
    """End by SIGINT, so that the parent can detect the Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(EXIT_STATUS)  # the first process of a container cannot be ended by its own signals

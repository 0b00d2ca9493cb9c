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
    """Let a Ctrl-C end the process at once; bin/paddle starts it with SIGINT blocked."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where the parent has it ignored, as nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise a Ctrl-C in this block as KeyboardInterrupt, so that files are closed and removed; then end the process.

    Whatever comes out of the block after a Ctrl-C is its consequence: a C module that is being imported, for one,
    turns KeyboardInterrupt into an ImportError. A program may take SIGINT itself in the block.
    """
    came = False

    def handle(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal came
        came = True
        sys.unraisablehook = lambda _: None  # one that meets a finaliser is printed, and goes on
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
    """End by SIGINT itself, so that the parent sees that a Ctrl-C did it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(EXIT_STATUS)  # the first process of a container does not die of its own signals

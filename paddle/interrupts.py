"""Lets Ctrl-C end every command by SIGINT, at any time and without a traceback. A shell then shows status 130."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

EXIT_STATUS = 130  # 128 + SIGINT; the status that a shell shows for a process that SIGINT has ended


def accept() -> None:
    """Let Ctrl-C end the process at once. Until this call, SIGINT is blocked, because bin/paddle has blocked SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # keep SIGINT ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Turn a Ctrl-C in this block into KeyboardInterrupt, whose handlers may clean up; then end the process.

    After a Ctrl-C, an exception of any type ends the process in this way, because KeyboardInterrupt may have caused it:
    for example, a C module that is being imported turns KeyboardInterrupt into an ImportError. A program may install
    its own handler of SIGINT inside the block.
    """
    came = False

    def handle(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal came
        came = True
        sys.unraisablehook = lambda _: None  # print nothing about a KeyboardInterrupt that a finalizer ignores
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
    """End the process by SIGINT, from which the parent process can detect the Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(EXIT_STATUS)  # reached in the first process of a container, for which the kernel ignores SIGINT

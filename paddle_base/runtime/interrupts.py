"""Handle signals that the program does not handle itself; hold back Ctrl-C during work that must not be halved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handle a signal during the `with` block.

    Only Python's own handler of the main thread is replaced: a program that handles the signal itself goes on doing so.
    """
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(number) is not default:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        if signal.getsignal(number) is handler:
            signal.signal(number, default)


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C until the end of the `with` block. A second Ctrl-C ends the block at once.

    Nothing changes if the program handles SIGINT itself.
    """
    waiting = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if waiting:
            raise KeyboardInterrupt
        waiting = True

    try:
        with handling(signal.SIGINT, hold):
            yield
    finally:
        if waiting:
            raise KeyboardInterrupt


@contextmanager
def hold_at_ends(
    context: AbstractContextManager[None], hold: Callable[[], AbstractContextManager[None]]
) -> Iterator[None]:
    """Return a context that enters and leaves `context` without interruption. The `with` block can be interrupted.

    Args: hold: returns a context that holds interruptions back to its end, such as `defer_interrupt`.
    """
    with ExitStack() as stack:
        with hold():
            stack.enter_context(context)
        try:
            yield
        finally:
            with hold():
                stack.close()

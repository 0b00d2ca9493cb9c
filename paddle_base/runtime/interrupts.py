"""Hold back Ctrl-C during work that must not be done by halves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C until the end of the `with` block. A second Ctrl-C ends the block at once.

    Only Python's own handler of the main thread is replaced: a program that handles SIGINT itself goes on doing so.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    waiting = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if waiting:
            raise KeyboardInterrupt
        waiting = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
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

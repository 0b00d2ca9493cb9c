"""Handle signals that end the program at once, or after work that must not be interrupted."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager, nullcontext
from types import FrameType, TracebackType

from paddle_base.runtime.errors import StoppedError, stopped_by
from paddle_base.runtime.interrupts import hold_at_ends


class Stopper:
    """Raise StoppedError for SIGTERM and SIGINT. In a `with` block of this object, the error is held back to the end.

    Only the first SIGTERM has an effect. A second SIGINT (Ctrl-C), or the time limit, raises the error at once.

    Attributes: is_clean: whether no signal has interrupted a block.
    """

    def __init__(self) -> None:
        self.is_clean = True
        self._depth = 0
        self._waiting: StoppedError | None = None
        self._deadline_s = 0

    def install(self, *numbers: int) -> None:
        """Install the signal handlers of this process; by default for SIGTERM and SIGINT."""
        for number in (signal.SIGALRM, *(numbers or (signal.SIGTERM, signal.SIGINT))):
            signal.signal(number, self._handle)

    @property
    def is_waiting(self) -> bool:
        """Whether a signal has arrived whose error is held back until the end of a block."""
        return self._waiting is not None

    def ignore_limit(self) -> None:
        """Remove the time limit for an error that is held back until the end of a block."""
        signal.alarm(0)

    def leave(self) -> None:
        """Raise an error now that is held back until the end of a block.

        Raises: StoppedError: a signal has arrived in the block.
        """
        if self._waiting is not None:
            raise self._take(self._waiting)

    def limit(self, seconds: int) -> None:
        """Set the maximum seconds for which the error of a signal is held back; 0 means no limit."""
        self._deadline_s = seconds

    def hold(self, is_wanted: bool) -> AbstractContextManager[None]:
        """Return a context that holds back the error of a signal, or, if not `is_wanted`, a context without effect."""
        return self if is_wanted else nullcontext()

    def hold_at_ends(self, context: AbstractContextManager[None]) -> AbstractContextManager[None]:
        """Return a context that enters and leaves `context` without interruption by a signal.

        A signal may interrupt the `with` block itself.
        """
        return hold_at_ends(context, lambda: self)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth and self._waiting is not None:
            raise self._take(self._waiting)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, _ignore)
        if self._depth and self._waiting is None and number != signal.SIGALRM:
            self._waiting = stopped_by(number)
            signal.alarm(self._deadline_s)
            return
        self.is_clean = not self._depth
        raise self._take(self._waiting or stopped_by(number))

    def _take(self, error: StoppedError) -> StoppedError:
        """Ignore further signals while the program ends. A signal could interrupt the closing of a connection."""
        ignore_signals()
        self._waiting = None
        return error


def ignore_signals() -> None:
    """Ignore further signals while the program ends."""
    signal.alarm(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing. SIG_IGN is not used, because Python would print an error if a signal had already arrived."""


STOPPER = Stopper()  # there is only one Stopper, because signals belong to the process

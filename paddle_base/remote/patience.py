"""Repeats a failed step of a transfer until a deadline, with growing delays and those that a server asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from paddle_base.remote.addresses import Address
from paddle_base.remote.failures import OWN_BUGS, describe, find_final, retry_after
from paddle_base.runtime import glog
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.errors import PaddleError, PeerUnreachableError

FIRST_DELAY_S, LAST_DELAY_S = 0.2, 10.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """How long a program waits for a store, and what it says meanwhile.

    Args: name: what the addresses are, for messages, such as the name of a variable.  seconds: after them it gives up.
    remedy: what a user can do if that was too short.  say: writes one line of the program's log.  clock, wait, now: for
    tests: monotonic seconds, a pause in place of the real one, and seconds since the epoch.
    """

    name: str
    seconds: float = 120.0
    remedy: str = "check the network and the server"
    say: Callable[[str], None] = glog.warning
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] | None = None
    now: Callable[[], float] = time.time

    def begin(self) -> Deadline:
        """Return the deadline of a step that begins now."""
        return Deadline(self)

    def show(self, address: Address) -> str:
        """Return the address with its name, for a message."""
        return f"{self.name} {address}"


class StoppedTransferError(Exception):
    """Another thread of the same transfer has failed; its error counts."""


class Deadline:
    """The time until which steps are repeated. Other threads of the same transfer have deadlines made by `again`."""

    def __init__(self, patience: Patience, until: float | None = None, stopping: threading.Event | None = None) -> None:
        self.patience = patience
        self._until = patience.clock() + patience.seconds if until is None else until
        self._stopping = stopping or threading.Event()
        self._delays = exponential_backoff(FIRST_DELAY_S, LAST_DELAY_S, spread=0.0)

    def again(self) -> Deadline:
        """Return the same deadline for another thread, which has delays of its own."""
        return Deadline(self.patience, self._until, self._stopping)

    def stop(self) -> None:
        """End the transfers of all threads with this deadline at their next piece."""
        self._stopping.set()

    def check(self, address: Address, had: str) -> None:
        """Raise an error if the time is over.

        Args: had: what has been reached, such as the number of bytes.
        Raises: PeerUnreachableError.
        """
        if self._stopping.is_set():
            raise StoppedTransferError
        if self.patience.clock() > self._until:
            raise PeerUnreachableError(
                f"{self.patience.show(address)}: {had} had arrived when {self.patience.seconds:g} s were over; "
                f"{self.patience.remedy}"
            )

    def progress(self) -> None:
        """Begin again with a short delay, because the last attempt has reached something."""
        self._delays = exponential_backoff(FIRST_DELAY_S, LAST_DELAY_S, spread=0.0)

    def pause(self, error: Exception, address: Address) -> None:
        """Wait before a further attempt.

        Raises: PaddleError: if a further attempt cannot succeed, or the time is over.  Exception: an error of this
        program.
        """
        patience, shown = self.patience, self.patience.show(address)
        if isinstance(error, (*OWN_BUGS, PaddleError, StoppedTransferError)):
            raise error
        final = find_final(error, shown, address.scheme, patience.now())
        if final is not None:
            raise final from error
        delay = max(next(self._delays), retry_after(error))
        if patience.clock() + delay > self._until:
            raise PeerUnreachableError(
                f"{shown}: {describe(error)} (tried for {patience.seconds:g} s); {patience.remedy}"
            ) from error
        patience.say(f"{shown}: {describe(error)}; next try in {delay:.1f} s")
        if patience.wait is not None:
            patience.wait(delay)
        if self._stopping.wait(0.0 if patience.wait else delay):
            raise StoppedTransferError

    def repeat(self, step: Callable[[], Result], address: Address) -> Result:
        """Return the result of a step, which is repeated after temporary errors.

        Raises: see `pause`.
        """
        while True:
            try:
                return step()
            except Exception as error:
                self.pause(error, address)

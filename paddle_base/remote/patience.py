"""Repeats a failed step of a transfer until a deadline, with growing delays and those that a server asks for."""

from __future__ import annotations

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
    tests: monotonic seconds, a pause, and seconds since the epoch.
    """

    name: str
    seconds: float = 120.0
    remedy: str = "check the network and the server"
    say: Callable[[str], None] = glog.warning
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time

    def begin(self) -> Deadline:
        """Return the deadline of a step that begins now."""
        return Deadline(self)

    def show(self, address: Address) -> str:
        """Return the address with its name, for a message."""
        return f"{self.name} {address}"


class Deadline:
    """The time until which steps are repeated."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._until = patience.clock() + patience.seconds
        self._delays = exponential_backoff(FIRST_DELAY_S, LAST_DELAY_S, spread=0.0)

    def check(self, address: Address, had: str) -> None:
        """Raise an error if the time is over.

        Args: had: what has been reached, such as the number of bytes.
        Raises: PeerUnreachableError.
        """
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
        if isinstance(error, (*OWN_BUGS, PaddleError)):
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
        patience.wait(delay)

    def repeat(self, step: Callable[[], Result], address: Address) -> Result:
        """Return the result of a step, which is repeated after temporary errors.

        Raises: see `pause`.
        """
        while True:
            try:
                return step()
            except Exception as error:
                self.pause(error, address)

"""Renew a claim in a thread, and call a function when the claim is lost.

with ClaimKeeper(claim, on_loss):
    ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from paddle_base.registry.interface import Claim
from paddle_base.runtime import glog
from paddle_base.runtime.errors import LeaseLostError, PaddleError, PeerUnreachableError, VolumeError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit

RENEWALS = 3  # number of renewals during the time to live of a claim


class ClaimKeeper:
    """Renew a claim inside a `with` block.

    Args: on_loss: called once, by the thread, with the reason why this process must consider the claim lost.  patience:
        seconds after the end of the claim for which the renewal is still tried while the registry is unreachable.
        renewed: called after each renewal; its errors count like those of the renewal.  what: name of the claim in
        messages; "": the claim of its key.
    """

    def __init__(
        self,
        claim: Claim,
        on_loss: Callable[[PaddleError], None],
        *,
        patience: float = 0.0,
        renewed: Callable[[], None] = lambda: None,
        what: str = "",
    ) -> None:
        self._claim, self._on_loss, self._patience, self._renewed = claim, on_loss, patience, renewed
        self._what = what or f"the claim of {claim.key}"
        self._lines = RateLimit(PROBLEM_LINE_S)
        self._is_over = threading.Event()
        self._thread = ServiceThread(self._run, "lease")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._claim.ttl / RENEWALS) and self.renew():
            pass

    def renew(self) -> bool:
        """Renew the claim once; return whether another renewal may succeed."""
        try:
            self._claim.renew()
            self._renewed()
        except (PeerUnreachableError, VolumeError) as exc:
            now = time.monotonic()
            if now - self._claim.valid_until > self._patience:
                silence = now - self._claim.valid_until + self._claim.ttl
                self._on_loss(LeaseLostError(f"{self._what} could not be renewed for {silence:.0f} s: {exc}"))
                return False
            if self._lines.is_due(now):
                glog.warning(f"{self._what} is not renewed yet: {exc}")
        except PaddleError as exc:
            self._on_loss(exc)
            return False
        return True

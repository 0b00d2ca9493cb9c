"""The claim of a server's index: a thread renews it, and detects the end of the job."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from paddle_base.registry.interface import Claim, Registry
from paddle_base.registry.records import JobEnd, find_job_end
from paddle_base.runtime import glog
from paddle_base.runtime.errors import LeaseLostError, PaddleError, PeerUnreachableError, VolumeError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit

RENEWALS = 3  # number of renewals during the time to live of a claim
# seconds for which a server waits for an unreachable registry; meanwhile the server keeps its state and answers nothing
SUSPENDED_S = 600.0


class LeaseKeeper:
    """Renew a claim inside a `with` block.

    Attributes: error: why the claim is lost, or must be considered lost. end: how the job has ended, or None if it has
        not ended. The thread sets `error` and `end`, and any thread may read them.

    Args: ttl: seconds after which the claim expires if it is not renewed.
    """

    def __init__(self, registry: Registry, claim: Claim, ttl: float) -> None:
        self.claim = claim
        self.error: PaddleError | None = None
        self.end: JobEnd | None = None
        self._registry, self._period = registry, ttl / RENEWALS
        self._lines = RateLimit(PROBLEM_LINE_S)
        self._is_over = threading.Event()
        self._thread = ServiceThread(self._run, "lease")

    @property
    def is_valid(self) -> bool:
        """Whether this process certainly holds the claim now."""
        return self.error is None and time.monotonic() < self.claim.valid_until

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while self.error is None and not self._is_over.wait(self._period):
            self.look()

    def look(self) -> None:
        """Renew the claim once, and check for the end of the job."""
        try:
            self.claim.renew()
            if self.end is None:
                self.end = find_job_end(self._registry)
        except (PeerUnreachableError, VolumeError) as exc:
            silence = time.monotonic() - self.claim.valid_until
            if silence > SUSPENDED_S:
                self.error = LeaseLostError(
                    f"the claim of {self.claim.key} could not be renewed for {silence:.0f} s: {exc}"
                )
            if self._lines.is_due(time.monotonic()):
                glog.warning(f"the claim of {self.claim.key} is not renewed yet: {exc}")
        except PaddleError as exc:
            self.error = exc
        except Exception as exc:  # a server must end after any error that prevents the renewal of its claim
            self.error = LeaseLostError(f"the claim of {self.claim.key} cannot be renewed: {type(exc).__name__}: {exc}")

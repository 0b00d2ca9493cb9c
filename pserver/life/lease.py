"""The claim of a server's index: a thread renews it, and detects the end of the job."""

from __future__ import annotations

import time

from paddle_base.registry.interface import Claim, Registry
from paddle_base.registry.keeping import ClaimKeeper
from paddle_base.registry.records import JobEnd, find_job_end
from paddle_base.runtime.errors import PaddleError

# seconds for which a server waits for an unreachable registry; meanwhile the server keeps its state and answers nothing
SUSPENDED_S = 600.0


class LeaseKeeper(ClaimKeeper):
    """Renew the claim of a server's index inside a `with` block.

    Attributes: error: why the claim is lost, or must be considered lost. end: how the job has ended, or None if it has
        not ended. The thread sets `error` and `end`, and any thread may read them.
    """

    def __init__(self, registry: Registry, claim: Claim) -> None:
        super().__init__(claim, self._lose, patience=SUSPENDED_S, renewed=self._look)
        self.claim = claim
        self.error: PaddleError | None = None
        self.end: JobEnd | None = None
        self._registry = registry

    @property
    def is_valid(self) -> bool:
        """Whether this process certainly holds the claim now."""
        return self.error is None and time.monotonic() < self.claim.valid_until

    def _lose(self, error: PaddleError) -> None:
        self.error = error

    def _look(self) -> None:
        if self.end is None:
            self.end = find_job_end(self._registry)

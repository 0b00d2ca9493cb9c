"""The claim of a server's index: renewed by a thread of its own, which also hears how the job ends."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from registry.interface import Claim, Registry
from registry.records import JobEnd, find_job_end
from runtime import glog
from runtime.errors import LeaseLostError, PaddleError, PeerUnreachableError, VolumeError

RENEWALS = 3  # in a time to live
SUSPENDED_S = 600.0  # that a server answers nothing and waits for a registry that does not answer, with all its state
NOTE_S = 30.0  # between two lines about the same trouble


class LeaseKeeper:
    """Renews a claim inside a `with` block.

    Attributes: error: why the claim is lost for good, or is held to be.  end: how the job has ended, if it has. Both
        are set by the thread and read by any.

    Args: ttl: seconds.
    """

    def __init__(self, registry: Registry, claim: Claim, ttl: float) -> None:
        self.claim = claim
        self.error: PaddleError | None = None
        self.end: JobEnd | None = None
        self._registry, self._period = registry, ttl / RENEWALS
        self._noted = float("-inf")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def is_valid(self) -> bool:
        """Whether no other process can hold the claim at this moment."""
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
        """Renew the claim once, and look for the end of the job."""
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
            self._note(f"the claim of {self.claim.key} is not renewed yet: {exc}")
        except PaddleError as exc:
            self.error = exc
        except Exception as exc:  # whatever it is, a server whose claim nobody renews must end
            self.error = LeaseLostError(f"the claim of {self.claim.key} cannot be renewed: {type(exc).__name__}: {exc}")

    def _note(self, line: str) -> None:
        if time.monotonic() - self._noted >= NOTE_S:
            self._noted = time.monotonic()
            glog.warning(line)

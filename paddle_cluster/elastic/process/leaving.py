"""SIGTERM of a worker: it leaves at its next commit, and the other workers continue without a failed collective.

The worker tells the driver, the driver notifies rank 0, and all workers join the next generation at the same commit;
the worker that leaves gets no rank in it. If the driver itself has sent the signal, or does not answer, the worker ends
at once, as a program without a handler.

The signal may go to the children of the worker, too, such as those of a DataLoader. If the training then ends with an
error, the worker has left at its last commit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.interrupts import handling
from paddle_cluster.elastic.errors import LeftJobError, RemovedFromJobError
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.rendezvous_client import RendezvousClient

ANSWER_S = 2.0  # maximum seconds of the question to the driver; the driver kills a worker 5 s after its SIGTERM


class _LeavingHandler:
    """The handler of SIGTERM of this process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._is_to_end = False
        self.asking: ServiceThread | None = None

    def __call__(self, number: int, _frame: Any) -> None:
        if self._is_to_end or os.getpid() != self._pid:  # a forked child, such as one of a DataLoader, ends as usual
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        # no request in the handler: it interrupts the main thread, which may hold any lock
        self.asking = ServiceThread(self._ask, "leaving")
        self.asking.start()

    def _ask(self) -> None:
        place, settings = WORKER.placement, WORKER.settings
        client = RendezvousClient(settings.address, settings.port, WORKER.secret, ANSWER_S)
        WORKER.is_leaving = True  # before the answer, because the next generation may begin without this worker first
        try:
            leaves = client.leave(place.hostname, place.local_rank, settings.incarnation)
        except PaddleError as exc:
            glog.warning(f"SIGTERM ends this worker at once, because the driver does not answer: {exc}")
            leaves = False
        finally:
            client.close()
        if leaves:
            glog.info("this worker leaves the job at its next commit, after SIGTERM")
            return
        self._is_to_end = True
        os.kill(self._pid, signal.SIGTERM)


@contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end this worker at its next commit.

    Nothing changes if the program has a handler of its own, if this is not the main thread, or if this process is no
    worker of an elastic job.

    Raises: LeftJobError: the training has ended with an error after SIGTERM.
    """
    has_driver = WORKER.client is not None and WORKER.settings.is_elastic
    handler = _LeavingHandler()
    with handling(signal.SIGTERM, handler) if has_driver else nullcontext():
        try:
            yield
        except RemovedFromJobError:
            raise
        except Exception as exc:
            if handler.asking is None:
                raise
            handler.asking.join(ANSWER_S)
            place = WORKER.placement
            raise LeftJobError(
                f"{place.hostname}[{place.local_rank}] has left the job at its last commit, because after SIGTERM its "
                f"training has ended with {type(exc).__name__}: {exc}"
            ) from exc

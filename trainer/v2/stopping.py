"""SIGTERM ends `SGD.train` at the end of a batch, so that a checkpoint can be made and a task given back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from paddle_base.runtime.errors import StoppedError
from trainer.training.stopping import Stopper

# maximum seconds that a batch and its checkpoint may take after a signal. Source: half a pod's grace period, 30 s
LIMIT_S = 15


@contextmanager
def ending_at_batches() -> Iterator[Stopper]:
    """A context in which SIGTERM is noted, for a loop that calls `Stopper.leave` after each batch.

    A program that handles SIGTERM itself goes on doing so. Ctrl-C is not handled here.

    Raises: SystemExit: SIGTERM has arrived; the status is 143.
    """
    stopper = Stopper()
    is_main = threading.current_thread() is threading.main_thread()
    is_handled = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = signal.getsignal(signal.SIGALRM)
    if is_handled:
        stopper.install(signal.SIGTERM)
        stopper.limit(LIMIT_S)
    try:
        with stopper:
            yield stopper
    except StoppedError as error:
        raise SystemExit(error.exit_code) from error
    finally:
        if is_handled:
            signal.alarm(0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, before)

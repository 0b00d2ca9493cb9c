"""Run a long call in a separate thread, while the server's thread continues to answer messages."""

from __future__ import annotations

import threading
from collections.abc import Callable

from paddle_base.runtime.errors import BugError, PaddleError


class BackgroundTask:
    """A call in a separate thread, which starts immediately."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: PaddleError | None = None
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the call has returned, or raised `error`."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the call has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._call()
        except PaddleError as error:
            self.error = error
        except Exception as error:  # the trainer that waits for the task must receive any error
            self.error = BugError(f"{type(error).__name__}: {error}")

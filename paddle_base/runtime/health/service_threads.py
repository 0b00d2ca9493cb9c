"""Threads without which a program is only half alive: if such a thread ends by an error, its program ends, too.

A master whose gate has ended keeps its lead, but no trainer can reach it. A driver without its heartbeat watch never
ends a frozen worker. Such a program is worse than none, because no other program takes its place. So an error that a
service thread does not expect ends the program at once, as if it were killed: a standby, the launcher or Kubernetes
replaces it, as they do after SIGKILL. Errors about one connection, one request or one message belong to the code that
serves them, and must not reach the thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError

REPORT_S = 2.0  # maximum seconds that a report of an error may take


class ServiceThread(threading.Thread):
    """A daemon thread that ends its program, with status 70, if `target` raises an error.

    Args: target: a function without arguments that returns when the program no longer needs the thread.
        name: of the thread, as docs/security.md lists it.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def run(self) -> None:
        """Run the target."""
        try:
            super().run()
        except BaseException as error:
            end_program(self.name, error)


def end_program(name: str, error: BaseException) -> None:
    """End this process with status 70 after an error in a service thread; the main thread gets no chance to go on.

    Nothing happens if the main thread has already ended: Python then takes away what a thread may use.
    Args: name: of the thread. error: what it has raised.
    """
    if sys.is_finalizing() or not threading.main_thread().is_alive():
        return
    try:
        # stderr may be a pipe that nobody reads, and another thread may hold the lock of the log
        threading.Thread(target=_end_soon, name="end", daemon=True).start()
        glog.write("".join(traceback.format_exception(error)))
        glog.fatal(f"the thread {name} has ended by an error, so this program ends: it could only do half of its work")
    finally:
        os._exit(BugError.exit_code)


def _end_soon() -> None:
    time.sleep(REPORT_S)
    os._exit(BugError.exit_code)

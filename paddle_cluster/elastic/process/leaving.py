"""A worker that the driver has removed from its job ends with one line and exit status 75, without a traceback."""

from __future__ import annotations

import sys
from types import TracebackType

from paddle_base.runtime import glog
from paddle_cluster.elastic.errors import RemovedFromJobError


def end_without_traceback() -> None:
    """Install a hook by which an uncaught RemovedFromJobError ends the process with one line and its exit code.

    The hook is `sys.excepthook`. It passes all other exceptions to the hook that was set before. In a process that has
    the hook already, this function does nothing.
    """
    if getattr(sys.excepthook, "is_of_elastic", False):
        return
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, RemovedFromJobError):
            before(kind, error, trace)
            return
        glog.warning(str(error))
        sys.exit(error.exit_code)  # Python ends with the status of a SystemExit that the hook raises

    end.is_of_elastic = True  # type: ignore[attr-defined]
    sys.excepthook = end

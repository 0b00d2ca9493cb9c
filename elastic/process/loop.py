"""The loop around what the user trains: sync, train, and after a failure or a change of hosts again with the others.

    once           listen to the driver
    then           state.sync()      every rank gets the state of rank 0
                   func(state)       ends the loop when it returns
                   on HorovodInternalError:   state.restore()
                   on HostsUpdatedInterrupt:  go on with the state as it is
                   leave the group, join the next generation, state.on_reset()
    at the end     tell the driver that the work is done

Source: spec/elastic.md 1.6; the order is that of Horovod's `run_fn`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from elastic.process.membership import WORKER
from runtime import glog

P = ParamSpec("P")
R = TypeVar("R")


class ElasticState(Protocol):
    """What the loop needs of a state."""

    def sync(self) -> None:
        """Give every rank the state of rank 0."""

    def restore(self) -> None:
        """Go back to the last commit."""

    def on_reset(self) -> None:
        """Take note that the ranks have changed."""


class HostNotices(Protocol):
    """What tells a state of changes: `elastic.worker.WorkerNotificationManager`."""

    def init(self) -> None:
        """Begin to listen."""

    def register_listener(self, listener: Any) -> None:
        """Tell this listener, too."""

    def remove_listener(self, listener: Any) -> None:
        """Tell this listener no more."""


def run_fn(
    func: Callable[Concatenate[Any, P], R],
    reset: Callable[[ElasticState], None],
    notices: HostNotices | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Callable[Concatenate[Any, P], R]:
    """Return the function with the loop around it.

    Args: reset: leaves the group and joins the next generation.  notices: of the driver.  finish: is called when the
        function has returned.
    """

    @functools.wraps(func)
    def wrapper(state: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if notices is not None:
            notices.init()
            notices.register_listener(state)
        try:
            return _repeat(state, *args, **kwargs)
        finally:
            if notices is not None:
                notices.remove_listener(state)

    def _repeat(state: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        skip_sync = False
        WORKER.has_state = bool(WORKER.has_state)
        while True:
            try:
                if not skip_sync:
                    state.sync()
                WORKER.has_state = True
                result = func(state, *args, **kwargs)
            except HorovodInternalError as exc:
                glog.warning(f"a collective failed, and training goes on from the last commit: {exc}")
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as exc:
                glog.info("the hosts have changed, and training goes on with the others of the next generation")
                skip_sync = exc.skip_sync
            else:
                finish()
                return result
            reset(state)
            state.on_reset()

    return wrapper


def reset_worker(state: Any) -> None:
    """Leave the group and join the next generation; what the driver said before it gave the rank is of the past."""
    WORKER.shutdown()
    WORKER.init(on_placed=getattr(state, "forget_host_updates", lambda: None))

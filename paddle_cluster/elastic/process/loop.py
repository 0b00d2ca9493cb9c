"""The loop around the user's training function: sync, train, and repeat after a failure or a change of hosts.

1. Start to receive notices of the driver.
2. Call `state.sync()`, which sends the state of rank 0 to every rank.
3. Call `func(state)`. If `func` returns, report to the driver that the work is done, and end the loop.
4. After HorovodInternalError call `state.restore()`. After HostsUpdatedInterrupt keep the present state.
5. Leave the group, join the next generation, call `state.on_reset()`, and repeat from step 2.

The order is that of Horovod's `run_fn`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from paddle_base.runtime import glog
from paddle_cluster.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from paddle_cluster.elastic.process.membership import WORKER

R = TypeVar("R")
FIXED = "this job ends, because its number of workers is fixed (paddle elastic run --min-np 1 lets the others continue)"


class ElasticState(Protocol):
    """The part of a state that the loop uses."""

    def sync(self) -> None:
        """Send the state of rank 0 to every rank."""

    def restore(self) -> None:
        """Return to the last commit."""

    def on_reset(self) -> None:
        """Adapt the state to changed ranks."""


class HostNotices(Protocol):
    """The source of notices for a state; `paddle_cluster.elastic.worker.WorkerNotificationManager` implements it.

    Attributes: addresses: the addresses at which this process receives notices; empty: no notices arrive.
    """

    addresses: tuple[tuple[str, int], ...]

    def init(self) -> None:
        """Start to receive notices."""

    def register_listener(self, listener: Any) -> None:
        """Add a listener."""

    def remove_listener(self, listener: Any) -> None:
        """Remove a listener."""


def run_loop(
    train: Callable[[], R],
    state: ElasticState,
    reset: Callable[[], None],
    notices: HostNotices,
    finish: Callable[[], None],
) -> R:
    """Run the loop around `train`, and return its result.

    Args: reset: leaves the group and joins the next generation.  notices: source of the driver's notices.  finish:
        called after `train` has returned.
    """
    if WORKER.is_member:  # a child of a worker must not receive its notices
        notices.init()
    WORKER.notice_addresses = notices.addresses
    notices.register_listener(state)
    WORKER.on_placed = getattr(state, "forget_host_updates", lambda: None)
    try:
        return _repeat(train, state, reset, finish)
    finally:
        WORKER.on_placed = lambda: None
        notices.remove_listener(state)


def _repeat(train: Callable[[], R], state: ElasticState, reset: Callable[[], None], finish: Callable[[], None]) -> R:
    skip_sync = False
    WORKER.has_state = bool(WORKER.has_state)
    while True:
        try:
            if not skip_sync:
                state.sync()
            WORKER.has_state = True
            result = train()
        except HorovodInternalError as exc:
            follows = "training continues from the last commit" if WORKER.settings.is_elastic else FIXED
            glog.warning(f"a collective failed, and {follows}: {exc}")
            state.restore()
            skip_sync = False
        except HostsUpdatedInterrupt as exc:
            glog.info("the hosts have changed, and training continues in the next generation")
            skip_sync = exc.skip_sync
        else:
            finish()
            return result
        reset()
        state.on_reset()


def reset_worker() -> None:
    """Leave the group and join the next generation."""
    WORKER.shutdown()
    WORKER.init()

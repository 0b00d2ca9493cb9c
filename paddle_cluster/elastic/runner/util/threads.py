"""Calls functions in threads. Names are those of `horovod.runner.util.threads`."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

JOIN_S = 0.1  # seconds of a single wait; if a signal arrives just before a wait, Python handles it after the wait


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Call a function with each list of arguments, in several threads.

    Returns: the results by index of the list of arguments; None if `block_until_all_done` is False.
    Raises: RuntimeError: a call has raised.
    """
    calls: queue.SimpleQueue[tuple[int, Sequence[Any]]] = queue.SimpleQueue()
    for index, args in enumerate(args_list):
        calls.put((index, list(args)))
    results: dict[int, Any] = {}

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                index, args = calls.get_nowait()
                results[index] = fn(*args)

    count = min(max_concurrent_executions, len(args_list))
    threads = [in_thread(work, daemon=not block_until_all_done) for _ in range(count)]
    if not block_until_all_done:
        return None
    for thread in threads:
        while thread.is_alive():
            thread.join(JOIN_S)
    if len(results) < len(args_list):
        name = getattr(fn, "__name__", repr(fn))
        raise RuntimeError(f"{len(args_list) - len(results)} of {len(args_list)} calls of {name} have failed")
    return results


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls a function.

    Args: daemon: the process ends without waiting for the thread.  silent: an exception of the function is ignored.
    Raises: ValueError: the arguments are no tuple.
    """
    _check_tuple(args)

    def call_silently() -> None:
        with contextlib.suppress(Exception):
            target(*args)

    thread = threading.Thread(target=call_silently if silent else target, args=() if silent else args, name=name)
    thread.daemon = daemon
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls a function when an event is set, unless the event `stop` is set first.

    Args: check_stop_interval_s: seconds between two checks of `stop`.  daemon, silent: see `in_thread`.
    Raises: ValueError: there is no event, the arguments are no tuple, or nothing stops a thread that is no daemon.
    """
    if event is None:
        raise ValueError("on_event() needs an event, and got None")
    _check_tuple(args)
    if stop is None and not daemon:
        raise ValueError("on_event() needs a stop event if the thread is no daemon: the process waits for the thread")

    def wait() -> None:
        if stop is None:
            event.wait()
        else:
            while not event.is_set() and not stop.is_set():
                event.wait(check_stop_interval_s)
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def _check_tuple(args: object) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}; a single argument is (arg,)")

"""What `paddle.init` sets for the process: the flags, and the stream of random numbers."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from paddle_base.kernels import flush_denormals, keep_memory
from paddle_base.runtime import glog
from paddle_base.runtime.errors import PaddleError, UsageError
from paddle_base.runtime.gflags import convert
from paddle_base.runtime.processor.blas import limit_loaded, limit_threads
from trainer.arrays.rng import Stream, start_state
from trainer.config.building.names import closest
from trainer.flags import FLAGS, Values, list_ignored

_VARIABLE = re.compile(r"(?P<prefix>PADDLE_INIT_)(?P<flag>\w+)")  # a variable of the environment that gives a flag
# flags of v0.11 that paddle train does not have
_WITHOUT_MEANING = ("use_mkldnn", "use_mkl_packed")


class Process:
    """The flags of this process, and its random numbers. Every trainer of the process draws from one stream."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.flags = Values(given)
        for sentence in list_ignored(self.flags):
            glog.warning(sentence)
        count = self.flags.trainer_count
        if line := limit_threads(os.environ, count, f"trainer_count={count}"):
            glog.info(line)
        limit_loaded(os.environ)
        self.seed = self.flags.seed or int(time.time())
        if not self.flags.seed:
            glog.info(f"random number seed={self.seed}")
        self.stream = Stream(start_state(self.seed, self.flags.thread_local_rand_use_global_seed))
        keep_memory()
        flush_denormals()  # as in v0.10, denormal numbers are zeros from now on


_found: list[Process] = []
_said: list[dict[str, Any]] = []


def process() -> Process:
    """Return the state of the process. Without a call of `init`, all flags have their defaults."""
    if not _found:
        _found.append(Process({}))
    return _found[0]


def init(**flags: Any) -> None:
    """Set flags of this process, before the first network is trained. Variables PADDLE_INIT_<FLAG> set flags, too.

    A further call may say the same again.

    Args: flags: flags of `paddle train`, for example trainer_count=2 or seed=7.
    Raises: UsageError: a flag is unknown (with the nearest one) or has a wrong value, or another call or a trainer came
        before and the values differ.
    """
    given = _read(flags)
    if not _found:
        _found.append(Process(given))
        _said.append(given)
        return
    before = _said[0] if _said else {}
    for name in sorted(given.keys() | before.keys()):
        new, old = (one.get(name, FLAGS[name].default) for one in (given, before))
        if new != old:
            raise UsageError(
                f"paddle.init({name}={new!r}): this process has begun with {name}={old!r}; call init once, before the "
                "first network is trained, or with the same values"
            )


def end_with_status() -> None:
    """Let an uncaught PaddleError end this process with its exit status, and not with Python's 1.

    The launcher of a pod tells by the status which program has failed, and which one has only lost it.
    """
    if sys.excepthook is not _print_and_end:
        _hooks.append(sys.excepthook)
        sys.excepthook = _print_and_end


def describe_failure() -> str:
    """Return the exception with which this process ends, or "". It is known once Python has printed it."""
    error = getattr(sys, "last_value", None)
    return "" if error is None else str(error) or type(error).__name__


_hooks: list[Callable[[type[BaseException], BaseException, TracebackType | None], Any]] = []


def _print_and_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _hooks[-1](kind, error, trace)
    if isinstance(error, PaddleError):
        raise SystemExit(error.exit_code)


def _read(flags: Mapping[str, Any]) -> dict[str, Any]:
    matches = [(match, value) for variable, value in os.environ.items() if (match := _VARIABLE.fullmatch(variable))]
    found = {match["flag"].lower(): (value, match["prefix"]) for match, value in matches}
    found |= {name: (value, "paddle.init: ") for name, value in flags.items()}
    given: dict[str, Any] = {}
    for name, (value, where) in found.items():
        if name in _WITHOUT_MEANING:
            continue
        if name not in FLAGS:
            near = closest(name, FLAGS)
            raise UsageError(f"{where}{name} is no flag{f'; did you mean {near}?' if near else ''}")
        given[name] = convert(FLAGS[name], str(value), where)
    return given

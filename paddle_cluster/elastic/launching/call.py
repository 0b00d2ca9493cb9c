"""The program of a worker that `run` starts; it calls a function, and sends the result back.

`python -m paddle_cluster.elastic.launching.call` runs a function that is given by name;
`paddle_cluster.elastic.launch.run` starts this program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.environment import read_environment
from paddle_base.runtime.errors import PaddleError, UsageError
from paddle_cluster.elastic import constants as names
from paddle_cluster.elastic.launching.references import (
    ASK_S,
    KEY,
    RESULTS,
    SCOPE,
    VARIABLE,
    describe_function,
    dump_bounded_object,
    find_function,
)
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.process.objects import load_object
from paddle_cluster.elastic.rendezvous.client import RendezvousClient


class FunctionCall(NamedTuple):
    """The function that every worker calls, with its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def main() -> int:
    """Run a function that is given by name; return the exit code."""
    return _report(lambda: _perform(_fetch()))


def work_forked(call: FunctionCall) -> int:
    """Run a function in a process that was forked from the caller of run(); return the exit code."""
    WORKER.forget()
    return _report(lambda: _perform(call))


def _report(work: Callable[[], None]) -> int:
    try:
        work()
    except PaddleError as exc:
        glog.fatal(str(exc))
        return exc.exit_code
    return 0


def _open_store() -> RendezvousClient:
    environ = os.environ
    address, _, port = environ[VARIABLE].rpartition(":")
    return RendezvousClient(address, int(port), read_environment(environ).secret, ASK_S)


def _fetch() -> FunctionCall:
    content = _open_store().get(SCOPE, KEY)
    if content is None:
        raise UsageError(f"the store {VARIABLE}={os.environ[VARIABLE]} has no function; let run() start this program")
    call = load_object(content)
    return FunctionCall(find_function(call["reference"]), call["args"], call["kwargs"])


def _perform(call: FunctionCall) -> None:
    environ = os.environ
    result = call.function(*call.args, **call.kwargs)
    # the variables describe the last generation, in which the rank may differ from the rank at the start
    given = {"size": int(environ[names.HOROVOD_SIZE]), "result": result}
    content = dump_bounded_object(given, f"the results of {describe_function(call.function)}")
    _open_store().put(RESULTS, environ[names.HOROVOD_RANK], content)
    driver = RendezvousClient(
        environ[names.HOROVOD_GLOO_RENDEZVOUS_ADDR],
        int(environ[names.HOROVOD_GLOO_RENDEZVOUS_PORT]),
        read_environment(environ).secret,
        ASK_S,
    )
    place = environ[names.HOROVOD_HOSTNAME], int(environ[names.HOROVOD_LOCAL_RANK])
    driver.done(*place, environ[names.PADDLE_ELASTIC_INCARNATION])


if __name__ == "__main__":
    sys.exit(main())

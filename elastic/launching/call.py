"""A worker of function mode: it asks for its function, calls it, and gives back what that returns.

python -m elastic.launching.call      (`elastic.launch.run` starts it)
"""

from __future__ import annotations

import os
import sys

from elastic import constants as names
from elastic.launching.function import ASK_S, KEY, RESULTS, SCOPE, VARIABLE, dump_bounded_object, find_function
from elastic.process.objects import load_object
from elastic.rendezvous.client import RendezvousClient
from runtime import glog
from runtime.environment import read_environment
from runtime.errors import PaddleError, UsageError


def main() -> int:
    """Do the work; return the exit status."""
    try:
        _work()
    except PaddleError as exc:
        glog.fatal(str(exc))
        return exc.exit_code
    return 0


def _work() -> None:
    environ = os.environ
    address, _, port = environ[VARIABLE].rpartition(":")
    store = RendezvousClient(address, int(port), read_environment(environ).secret, ASK_S)
    content = store.get(SCOPE, KEY)
    if content is None:
        raise UsageError(f"there is no function in {VARIABLE}={environ[VARIABLE]}; let run() start this program")
    call = load_object(content)
    function = find_function(call["reference"])
    result = function(*call["args"], **call["kwargs"])
    # the variables are those of the last generation: the rank may be another one than at the start
    given = {"size": int(environ[names.HOROVOD_SIZE]), "result": result}
    store.put(RESULTS, environ[names.HOROVOD_RANK], dump_bounded_object(given, f"the results of {call['reference']}"))
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

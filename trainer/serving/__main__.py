"""The main program of `paddle serve`."""

from __future__ import annotations

import errno
import signal
import sys
import time
from collections.abc import Sequence

from paddle_base.runtime import glog
from paddle_base.runtime.command import FlagValues, run_program
from paddle_base.runtime.errors import HELD_PORT, ConfigError, PortInUseError, UsageError, stopped_by
from paddle_base.runtime.network.interfaces import resolve_nics
from trainer.serving.flags import FLAGS, format_help

END_S = 5.0  # seconds, beside --request_timeout, in which the last requests are answered


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `paddle serve`, and return its exit status."""
    return run_program(argv, format_help, _run)


def _run(arguments: list[str]) -> int:
    flags = FlagValues.read(arguments, FLAGS)
    if flags.text("log_json"):
        glog.to_json(flags.text("log_json"), role="serve", number=None, attempt="")
    flags.log_command("paddle serve", arguments)
    if not flags.text("model"):
        raise UsageError(f"--model is missing; {format_help().partition(chr(10))[0]}")
    timeout = flags.seconds("request_timeout")
    # these imports take half a second; --help and wrong flags are answered before
    from trainer.serving.server import ModelServer

    server = ModelServer(flags)
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        came.append(number)
        server.batcher.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    hosts, port = resolve_nics(flags.text("nics")), flags.number("port")
    try:
        server.listen(hosts, port)
    except OSError as error:
        where = ", ".join(f"{host}:{port}" for host in hosts)
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(f"cannot listen on {where}: {HELD_PORT}; end it, or set another --port") from error
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}; correct --nics or --port") from error
    server.batcher.run()
    glog.info("stopping: no new requests are accepted, and those that have arrived are answered")
    if not server.end(time.monotonic() + timeout + END_S):
        glog.warning("some clients have not read their answers in time")
    if signal.SIGINT in came:
        raise stopped_by(signal.SIGINT)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The options of the server's loop, made from the flags."""

from __future__ import annotations

from paddle_base.runtime.environment import JobEnvironment
from pserver.aggregate.staleness import StalenessLimits
from pserver.flags import PserverFlags
from pserver.server.event_loop import Options
from pserver.server.service_state import ServiceOptions
from pserver.server.stragglers import BarrierLog


def make_options(line: PserverFlags, job: JobEnvironment, name: str, attempt: str) -> Options:
    """Return the options of a server.

    Args: name, attempt: name and attempt of the job.
    """
    return Options(
        num_trainers=line.number("num_gradient_servers"),
        job=name,
        attempt=attempt,
        secret=job.secret,
        service=ServiceOptions(
            peer_timeout=job.peer_timeout,
            log_period=line.number("log_period_server"),
            staleness_limits=StalenessLimits(
                float(line.values["async_lagged_ratio_min"]), float(line.values["async_lagged_ratio_default"])
            ),
            threads=line.number("pserver_num_threads"),
            barrier_log=BarrierLog(
                is_on=bool(line.values["log_barrier_abstract"]),
                most_trainers=line.number("log_barrier_lowest_nodes"),
                is_always=bool(line.values["log_barrier_show_log"]),
            ),
        ),
        send_buffer=line.number("sock_send_buf_size"),
        receive_buffer=line.number("sock_recv_buf_size"),
        backlog=line.number("sock_listen_queue_size"),
    )

"""The parameter servers of a program, or the other workers of `paddle elastic run`.

Source: spec/v2.md section 13.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.TrainerConfig_pb2 import OptimizationConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, PaddleError
from paddle_base.runtime.processor.thread_pool import ThreadPool
from paddle_cluster.elastic.errors import HorovodInternalError
from trainer.arrays.parameters import ParameterTable
from trainer.collective.updater import DividedTrainers
from trainer.flags import Values, check_together
from trainer.updaters.collective import CollectiveTrainers, join_workers
from trainer.updaters.local import Updater
from trainer.updaters.optimizer_settings import (
    Sending,
    read_optimization,
    read_sending,
    refuse_own_steps,
    warn_of_settings,
)
from trainer.updaters.parameter_servers import ParameterServers
from trainer.updaters.tasks.servers import TaskServers
from trainer.updaters.tasks.updater import TaskUpdater
from trainer.v2.jobs.membership import join
from trainer.v2.jobs.reports import Seat
from trainer.v2.process import describe_failure, end_with_status

_open: list[Connection] = []  # at most one: a trainer has one place at the servers


class Connection:
    """The servers, or the other workers, with which this process trains. They hear when it ends, or why it gives up.

    Attributes: updater: the updater of the servers, which `connect` has not joined yet.  seat: the place of this
        process in a job with a master; None: there is no master, or its job is over.  divides: whether the workers come
        and go, so that each batch is divided among them.

    Args: end: a function to call after this trainer has left the servers.
    Raises: ConfigError: this process trains with servers already.
    """

    def __init__(
        self,
        updater: Updater,
        end: Callable[[], None] = lambda: None,
        *,
        seat: Seat | None = None,
        divides: bool = False,
    ) -> None:
        if _open:
            raise ConfigError(
                "this process trains with parameter servers already: only one SGD(is_local=False) of a program can "
                "train, and a training that shall begin again needs a new process and new servers"
            )
        self.updater, self.seat, self.divides, self._end = updater, seat, divides, end
        _open.append(self)
        end_with_status()
        atexit.register(self._leave)

    def abort(self, reason: str) -> None:
        """Tell the servers why this trainer gives up; they tell the other trainers."""
        self.updater.abort(reason)
        self._forget()

    def _leave(self) -> None:
        error = describe_failure()
        self._forget()
        if error:
            self.updater.abort(error)
            return
        try:
            self.updater.finish()
        except (PaddleError, HorovodInternalError) as lost:  # the training is complete
            glog.warning(f"the other trainers have not heard that this one has finished: {lost}")
        self._end()

    def _forget(self) -> None:
        atexit.unregister(self._leave)
        if self in _open:
            _open.remove(self)


def connect(
    flags: Values, model: ModelConfig, table: ParameterTable, config: OptimizationConfig, pool: ThreadPool
) -> Connection:
    """Return the servers, or the workers, that the flags name, with an updater that has not joined them yet.

    Raises: ConfigError, UsageError: a setting or a flag is wrong. PeerUnreachableError: the servers, or the master,
        are not there.
    """
    optimization = read_optimization(config, local=False)
    specs = [parameter.spec() for parameter in table]
    if flags.collective:
        comes_and_goes = join_workers(flags)
        workers = DividedTrainers(flags) if comes_and_goes else CollectiveTrainers(flags)
        sending = read_sending(config, trainers=2)
        warn_of_settings(config, specs, optimization, sending, local=False)
        updater = workers.make_updater(model, table, optimization, sending, pool)
        return Connection(updater, divides=comes_and_goes)
    if flags.is_task_job:
        refuse_own_steps(config)
        warn_of_settings(config, specs, optimization, Sending(), local=False)
        member = join(flags)
        updater = TaskUpdater(model, table, optimization, TaskServers(member.job.registry, member.job.membership))
        return Connection(updater, seat=member.seat)
    check_together(flags)
    read_sending(config, trainers=2)  # a wrong setting is known before a server is asked
    servers = ParameterServers(flags)
    servers.find_trainers()
    sending = read_sending(config, trainers=flags.num_gradient_servers)
    warn_of_settings(config, specs, optimization, sending, local=False)
    return Connection(servers.make_updater(model, table, optimization, sending, pool), servers.end)

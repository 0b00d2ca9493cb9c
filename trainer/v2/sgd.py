"""The trainer of programs: `paddle.trainer.SGD`.

Source: spec/v2.md section 9.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_cluster.elastic.constants import HOROVOD_RANK
from trainer.arrays.parameters import ParameterTable
from trainer.data.checks import shorten
from trainer.evaluators import Accumulator, make_evaluators
from trainer.flags import Values
from trainer.network.pictures import PictureNetworks, Shapes
from trainer.session import Session, build_network, pool_of
from trainer.updaters.local import LocalUpdater
from trainer.updaters.optimizer_settings import read_optimization
from trainer.v2 import events
from trainer.v2.checkpoints import Checkpoints
from trainer.v2.errors import WrongTypeError, advising
from trainer.v2.feeder import Feeding, FrameFeeder
from trainer.v2.jobs.reports import Reports, add_test, open_reports, testing
from trainer.v2.jobs.stores import store_flags
from trainer.v2.loop import Handler, Reader, TrainingLoop, fetch_tables, read_batches
from trainer.v2.optimizer import UpdateEquation
from trainer.v2.parameters import Parameters
from trainer.v2.process import process
from trainer.v2.stopping import ending_at_batches
from trainer.v2.topology import Topology

if TYPE_CHECKING:
    from trainer.v2.jobs.servers import Connection


class SGD:
    """Trains a network: in this process, or with the parameter servers of a job.

    Args: cost: the layer, or the layers, whose sum is made small. parameters: they get initial values, but for those
        that the program has set, and then change. update_equation: the optimiser. extra_layers: further layers to
        compute. is_local: False: parameter servers make the optimiser's steps. True: this process makes them; among
        the workers of `paddle elastic run`, with the sum of their gradients. pserver_spec: addresses of the servers,
        "host:port,host:port"; None: the flags `pservers` and `port` of `paddle.init`. use_etcd: whether pserver_spec
        is the store of a master, in which the servers are: endpoints of etcd, or the path of --store_dir.
    Raises: TypeError: an argument has the wrong type. ConfigError, UsageError: the network or a setting is not
        supported.
    """

    @advising
    def __init__(
        self,
        cost: Any,
        parameters: Parameters,
        update_equation: UpdateEquation,
        extra_layers: Any = None,
        is_local: bool = True,
        pserver_spec: str | None = None,
        use_etcd: bool = True,
    ) -> None:
        if not isinstance(parameters, Parameters):
            raise WrongTypeError(f"parameters should be parameters of parameters.create, not {shorten(parameters)}")
        if not isinstance(update_equation, UpdateEquation):
            raise WrongTypeError("update equation parameter must be paddle.v2.optimizer.Optimizer")
        self._flags = _read_flags(pserver_spec, is_local=is_local, use_etcd=use_etcd)
        self._topology = Topology(cost, extra_layers)
        model = self._topology.proto()
        for parameter in model.parameters:
            parameter.sparse_remote_update = parameter.sparse_remote_update and not is_local
        update_equation.complete(model)
        parameters.update_param_conf(model)
        state = process()
        table = ParameterTable(model.parameters, tables_first=not is_local, free_names=True)
        network = build_network(
            model,
            table,
            seed=state.seed,
            threads=state.flags.trainer_count,
            use_global_seed=state.flags.thread_local_rand_use_global_seed,
            further=self._topology.extra_names(),
        )
        self._networks = PictureNetworks(network, self._topology.resized, self._topology.extra_names())
        table.randomize(state.stream)
        parameters.append_table(table)
        self._parameters, self._optimizer, self._model = parameters, update_equation, model
        self._session = Session(
            network,
            make_evaluators(model.evaluators),
            state.stream,
            shows_layers=state.flags.show_layer_stat,
            logs_clipping=state.flags.log_error_clipping,
        )
        self._updater: LocalUpdater | None = None
        self._servers: Connection | None = None
        self._loop: type[TrainingLoop] = TrainingLoop

    def get_topology_proto(self) -> ModelConfig:
        """Return the message of the network."""
        return self._topology.proto()

    @advising
    def train(
        self,
        reader: Reader,
        num_passes: int = 1,
        event_handler: Handler | None = None,
        feeding: Feeding = None,
        checkpoint_dir: str | Path | None = None,
        resume: bool = True,
    ) -> None:
        """Train some passes. The learning rate's schedule and the averages begin again; the moments stay.

        With parameter servers, a further call goes on where the last one ended. With a master, its passes are trained
        up to `num_passes`, and a task whose samples are wrong is left to the master.

        Args: reader: a function that returns the batches of a pass, which are lists of samples. event_handler:
            is called with the events of `trainer.v2.events`. feeding: see `DataFeeder`. checkpoint_dir: a folder for
            the whole state of this call, which is saved after each pass, and after so many batches or seconds as the
            flags checkpoint_period_by_batches and checkpoint_period_seconds say. resume: whether to go on from the
            newest checkpoint in this folder: the reader must yield the same batches again, and those that are trained
            are dropped. SIGTERM ends this call after a batch and its checkpoint, with status 143.
        Raises: TypeError: the reader or the handler is no function. DataError: a sample is wrong, the cost is not
            finite, or the master's job has failed. LostPeerError, PeerUnreachableError: the servers or other trainers
            are lost. VolumeError: a checkpoint cannot be written.
        """
        handler = (lambda event: None) if event_handler is None else event_handler
        if not callable(handler):
            raise WrongTypeError("event handler should be a function")
        feeder = FrameFeeder(self._topology.data_type(), feeding, self._take_pictures)
        self._begin()
        reports = self._open_reports(prints=event_handler is None)
        directory = None if checkpoint_dir is None else Path(checkpoint_dir)
        with ending_at_batches() as stopper:
            try:
                checkpoints = Checkpoints(
                    self._session,
                    self._flags,
                    directory,
                    resumes=resume,
                    wants_end=lambda: stopper.is_waiting,
                    tell=reports.add_checkpoint,
                )
                loop = self._loop(self._session, feeder, handler, self._metrics, checkpoints, reports, stopper.leave)
                loop.run(reader, num_passes)
                reports.end()
            except BaseException as error:
                reports.end(error)
                if self._servers is not None:
                    self._servers.abort(str(error) or type(error).__name__)
                    self._servers = None
                raise

    @advising
    def test(self, reader: Reader, feeding: Feeding = None) -> events.TestResult:
        """Return the cost per sample and the metrics of batches, with the present values and not with averages.

        Raises: TypeError: the reader is no function. DataError: there is no sample, a sample is wrong, or the cost is
            not finite.
        """
        feeder = FrameFeeder(self._topology.data_type(), feeding, self._take_pictures)
        if self._servers is not None:
            fetch_tables(self._session)
        total = Accumulator(self._session.evaluators)
        cost = 0.0
        with testing(self._session), self._session.network.states.restored(), np.errstate(all="ignore"):
            self._session.network.states.restart()
            for number, batch in enumerate(read_batches(reader, "the test", 1), 1):
                LIVENESS.turn()
                result = self._session.evaluate(feeder(batch, f"batch {number} of the test"), len(batch), number)
                cost += result.cost
                total.add(*result)
        if not total.samples:
            raise DataError("the reader of the test has no sample")
        total.finish()
        add_test(total)
        return events.TestResult(self._metrics(total), cost / total.samples)

    def save_parameter_to_tar(self, f: IO[Any]) -> None:
        """Write the parameters into a tar archive; averages of the values, if the optimiser averages.

        Raises: ConfigError: `train` has not been called yet.
        """
        if not self._session.updater:
            raise ConfigError("save_parameter_to_tar: call train first; before, parameters.to_tar has the same values")
        with self._session.updater.averaged():
            self._parameters.to_tar(f)

    def _take_pictures(self, shapes: Shapes) -> None:
        """Let the session compute the next batch with the network for pictures of these shapes.

        Raises: ConfigError: there can be none.
        """
        if shapes and self._servers is not None and self._servers.divides:
            raise ConfigError("workers that come and go divide batches of one size")
        self._session.use_network(self._networks.find(shapes))

    def _open_reports(self, *, prints: bool) -> Reports:
        if self._servers is not None and self._servers.divides:
            return Reports()  # the driver's file tells of workers that come and go, as with `paddle train --collective`
        config = TrainerConfig(model_config=self._model, opt_config=self._optimizer.message)
        seat = None if self._servers is None else self._servers.seat
        return open_reports(self._flags, self._session, config, seat, prints=prints)

    def _begin(self) -> None:
        """Give the session its updater: a new one with the moments of the last one, or that of the servers."""
        network, message = self._networks.find({}), self._optimizer.message
        if not self._flags.local:
            if self._servers is None:
                connect, divided = _import_servers()
                self._servers = connect(self._flags, self._model, self._session.table, message, pool_of(network))
                self._session.use(self._servers.updater)
                self._loop = divided if self._servers.divides else TrainingLoop
            return
        before = self._updater
        updater = LocalUpdater(
            network.parameters,
            read_optimization(message, local=True),
            log_clipping=self._flags.log_clipping,
            pool=pool_of(network),
            per_parameter=True,
        )
        if before is not None:
            updater.take_moments(before)
        self._session.use(updater)
        self._updater = updater

    def _metrics(self, total: Accumulator) -> events.Metrics:
        return events.read_metrics(total, self._topology.proto().evaluators)


def _import_servers() -> tuple[Callable[..., Connection], type[TrainingLoop]]:
    """Return the function that connects a trainer with servers, and the loop among workers that come and go.

    A program that trains alone does not import them.
    """
    from trainer.v2.jobs.servers import connect
    from trainer.v2.workers.loop import DividedLoop

    return connect, DividedLoop


def _read_flags(spec: str | None, *, is_local: bool, use_etcd: bool) -> Values:
    """Return the flags of the process, with those that the arguments of a trainer say otherwise."""
    flags = process().flags
    is_worker = is_local and bool(os.environ.get(HOROVOD_RANK))  # `paddle elastic run` has started this program
    more: dict[str, Any] = {"local": is_local and not is_worker, "collective": is_worker}
    if is_local and spec is not None:
        glog.warning(f"SGD(pserver_spec={spec!r}) has no effect without is_local=False")
    elif spec is not None:
        more |= store_flags(spec) if use_etcd else {"pservers": spec}
    return Values({name: getattr(flags, name) for name in flags.given} | more)

"""The trainer of programs: `paddle.trainer.SGD`.

Source: spec/v2.md section 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_base.runtime.interrupts import defer_interrupt
from trainer.arrays.parameters import ParameterTable
from trainer.data.checks import shorten
from trainer.evaluators import Accumulator, make_evaluators
from trainer.session import BatchResult, Session, build_network, pool_of
from trainer.updaters.local import LocalUpdater
from trainer.updaters.optimizer_settings import read_optimization
from trainer.v2 import events
from trainer.v2.errors import WrongTypeError
from trainer.v2.feeder import DataFeeder, Feeding
from trainer.v2.optimizer import UpdateEquation
from trainer.v2.parameters import Parameters
from trainer.v2.process import process
from trainer.v2.topology import Topology

Reader = Callable[[], Iterable[Any]]
Handler = Callable[[Any], object]
_NO_READER = "train_data_reader should be a function, which can return a iterator"


class SGD:
    """Trains a network in this process.

    Args: cost: the layer, or the layers, whose sum is made small. parameters: they get initial values, but for those
        that the program has set, and then change. update_equation: the optimiser. extra_layers: further layers to
        compute. is_local: False is not supported yet.
    Raises: TypeError: an argument has the wrong type. ConfigError: the network or a setting is not supported.
    """

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
        if not is_local:
            raise ConfigError("SGD(is_local=False) is not supported yet; leave it out to train in this process")
        self._topology = Topology(cost, extra_layers)
        model = self._topology.proto()
        for parameter in model.parameters:
            parameter.sparse_remote_update = False
        update_equation.complete(model)
        parameters.update_param_conf(model)
        state = process()
        table = ParameterTable(model.parameters, free_names=True)
        network = build_network(
            model,
            table,
            seed=state.seed,
            threads=state.flags.trainer_count,
            use_global_seed=state.flags.thread_local_rand_use_global_seed,
            further=self._topology.extra_names(),
        )
        table.randomize(state.stream)
        parameters.append_table(table)
        self._parameters, self._optimizer = parameters, update_equation
        self._session = Session(
            network,
            make_evaluators(model.evaluators),
            state.stream,
            shows_layers=state.flags.show_layer_stat,
            logs_clipping=state.flags.log_error_clipping,
        )
        self._machine = events.Machine(self._session)
        self._updater: LocalUpdater | None = None

    def get_topology_proto(self) -> ModelConfig:
        """Return the message of the network."""
        return self._topology.proto()

    def train(
        self,
        reader: Reader,
        num_passes: int = 1,
        event_handler: Handler | None = None,
        feeding: Feeding = None,
    ) -> None:
        """Train some passes. The learning rate's schedule and the averages begin again; the moments stay.

        Args: reader: a function that returns the batches of a pass, which are lists of samples. event_handler:
            is called with the events of `trainer.v2.events`. feeding: see `DataFeeder`.
        Raises: TypeError: the reader or the handler is no function. DataError: a sample is wrong, or the cost is not
            finite.
        """
        handler = (lambda event: None) if event_handler is None else event_handler
        if not callable(handler):
            raise WrongTypeError("event handler should be a function")
        feeder = DataFeeder(self._topology.data_type(), feeding)
        updater = self._begin()
        for pass_id in range(num_passes):
            whole = Accumulator(self._session.evaluators)
            handler(events.BeginPass(pass_id))
            updater.start_pass()
            for batch_id, batch in enumerate(_read(reader, f"pass {pass_id}")):
                handler(events.BeginIteration(pass_id, batch_id))
                result = self._step(feeder, batch, (pass_id, batch_id), handler)
                alone = Accumulator(self._session.evaluators)
                for total in (alone, whole):
                    total.add(*result)
                cost = result.cost / result.samples
                handler(events.EndIteration(pass_id, batch_id, cost, self._metrics(alone), self._machine))
            if not whole.samples:
                glog.warning(f"pass {pass_id}: the reader has yielded no batch, so nothing is trained")
            self._session.finish_pass()
            whole.finish()
            handler(events.EndPass(pass_id, self._metrics(whole), self._machine))

    def _step(self, feeder: DataFeeder, batch: Any, place: tuple[int, int], handler: Handler) -> BatchResult:
        where = "pass {}, batch {}".format(*place)
        if not len(batch):
            raise DataError(f"{where} has no sample; a batch is a list of samples")
        slots = feeder(batch, where)
        with defer_interrupt(), np.errstate(all="ignore"):  # Ctrl-C ends `train` between two steps
            result = self._session.compute(slots, len(batch), where)
            handler(events.EndForwardBackward(*place, self._machine))
            self._session.update(len(batch))
        return result

    def test(self, reader: Reader, feeding: Feeding = None) -> events.TestResult:
        """Return the cost per sample and the metrics of batches, with the present values and not with averages.

        Raises: TypeError: the reader is no function. DataError: there is no sample, a sample is wrong, or the cost is
            not finite.
        """
        feeder = DataFeeder(self._topology.data_type(), feeding)
        total = Accumulator(self._session.evaluators)
        cost = 0.0
        with self._session.network.states.restored(), np.errstate(all="ignore"):
            self._session.network.states.restart()
            for number, batch in enumerate(_read(reader, "the test", 1), 1):
                result = self._session.evaluate(feeder(batch, f"batch {number} of the test"), len(batch), number)
                cost += result.cost
                total.add(*result)
        if not total.samples:
            raise DataError("the reader of the test has no sample")
        total.finish()
        return events.TestResult(self._metrics(total), cost / total.samples)

    def save_parameter_to_tar(self, f: IO[Any]) -> None:
        """Write the parameters into a tar archive; averages of the values, if the optimiser averages.

        Raises: ConfigError: `train` has not been called yet.
        """
        if self._updater is None:
            raise ConfigError("save_parameter_to_tar: call train first; before, parameters.to_tar has the same values")
        with self._updater.averaged():
            self._parameters.to_tar(f)

    def _begin(self) -> LocalUpdater:
        """Return a new updater with the moments of the last one."""
        network, before = self._session.network, self._updater
        updater = LocalUpdater(
            network.parameters,
            read_optimization(self._optimizer.message, local=True),
            log_clipping=process().flags.log_clipping,
            pool=pool_of(network),
            per_parameter=True,
        )
        if before is not None:
            updater.take_moments(before)
        self._session.updater = self._updater = updater
        self._session.connect()
        return updater

    def _metrics(self, total: Accumulator) -> events.Metrics:
        return events.read_metrics(total, self._topology.proto().evaluators)


def _read(reader: Reader, where: str, first: int = 0) -> Iterator[Any]:
    """Yield the batches of a reader. Its error says which batch it was to give, counted from `first`."""
    if not callable(reader):
        raise WrongTypeError(f"{_NO_READER}; it is {shorten(reader)}")
    batches = reader()
    if not isinstance(batches, Iterable):
        raise WrongTypeError(f"{_NO_READER}; it has returned {shorten(batches)}")
    iterator = iter(batches)
    for number in itertools.count(first):
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            error.add_note(f"{where}, batch {number}: the reader has raised {type(error).__name__}: {error}")
            raise
        yield batch

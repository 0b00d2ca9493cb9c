"""A session trains, tests and uses a network in this process. `paddle train` and paddle.v2 stand on it.

    session = make_session(config.model_config, config.opt_config)
    for batch in batches:                         # {data layer: Argument}
        print(session.step(batch).average_cost())
    print(session.test(batches).metrics())
    probabilities = session.infer(batch)["output"].value

A session reads no flags, and handles no signals but Ctrl-C during a step. Errors are exceptions of
`paddle_base.runtime.errors`.
"""

from __future__ import annotations

import math
import operator
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.TrainerConfig_pb2 import OptimizationConfig
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.interrupts import defer_interrupt, hold_at_ends
from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool
from pserver.store.snapshot import CheckpointState
from trainer.arrays.arguments import Argument, join_arguments
from trainer.arrays.encoding import decode_array, decoding, encode_array
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream, replica_state, start_state
from trainer.data.source import BatchSource
from trainer.evaluators import Accumulator, Evaluator, make_evaluators
from trainer.evaluators.printers import GradientPrinter
from trainer.network import nan_checks
from trainer.network.data_parallel import AnyNetwork, DataParallelNetwork, count_samples
from trainer.network.network import Batch, Network
from trainer.storage.checkpoint import write_checkpoint
from trainer.storage.checkpoint_reader import read_checkpoint
from trainer.telemetry import log_lines
from trainer.telemetry.time_breakdown import COMPUTE, EXCHANGE, OTHER, TimeBreakdown
from trainer.updaters.local import LocalUpdater, Updater
from trainer.updaters.optimizer_settings import read_optimization

__all__ = [
    "BatchResult",
    "Session",
    "build_network",
    "count_samples",
    "defer_interrupt",
    "make_session",
    "pool_of",
    "read_batches",
]

# seconds that a thread waits for the interpreter lock before it requests the lock, for example after a matrix product.
# Source: a tenth of Python's default, 5 ms
SWITCH_INTERVAL_S = 0.0005


class BatchResult(NamedTuple):
    """The result of one batch.

    Attributes: cost: the cost, summed over the samples. samples: the number of samples. measures: the result of each
        evaluator.
    """

    cost: float
    samples: int
    measures: list[Any]


class Session:
    """A network with its parameters, its evaluators, and the updater that changes the parameters.

    `step`, `test` and `infer` are for callers that hand over a batch at a time. `compute` and `update` are the two
    halves of a step, for a loop that does something between them.

    Attributes: network, evaluators, stream, updater: as given. table: the parameters of the network. breakdown: divides
        the time into phases. is_open: whether an exchange with the updater has begun and has not ended. The values may
        then contain half of a step, and must not be saved. is_connected: whether the updater is connected.

    Args: stream: the random stream of initial values and dropout masks. updater: may be None if the session never
        trains. shows_layers: whether the statistics of every layer are logged after each forward pass. logs_clipping:
        whether every layer that clips its gradient is logged.
    Thread safety: only one thread may use a session.
    """

    def __init__(
        self,
        network: AnyNetwork,
        evaluators: Sequence[Evaluator],
        stream: Stream,
        updater: Updater | None = None,
        *,
        shows_layers: bool = False,
        logs_clipping: bool = False,
    ) -> None:
        self.network, self.evaluators, self.stream = network, list(evaluators), stream
        self.table: ParameterTable = network.parameters
        self.updater = cast("Updater", updater)  # `connect` refuses None, and nothing trains without it
        self._shows_layers = shows_layers
        self.breakdown = TimeBreakdown()
        self.is_open = False
        self.is_connected = False
        self._gradients = nan_checks.GradientCheck(self.table)
        self._logs_clipping = logs_clipping
        self._watch()

    # ----- Training

    def use(self, updater: Updater) -> None:
        """Train with another updater from now on. It is not connected yet."""
        self.updater, self.is_connected = updater, False
        self._watch()

    def use_network(self, network: AnyNetwork) -> None:
        """Compute the next batches with another network, which has the same parameters."""
        if network is not self.network:
            self.network = network
            self._watch()

    def _watch(self) -> None:
        """Let the network store the gradients that are printed, and log those that are clipped, if it trains."""
        if self.updater is not None:
            asked = (one.config.input_layers for one in self.evaluators if isinstance(one, GradientPrinter))
            self.network.watch(gradients_of=set[str]().union(*asked), clipping=self._logs_clipping)

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Connect the updater, with the present values of the parameters. The first `step` does so if nothing else did.

        Args, Returns: see `Updater.connect`.
        Raises: ConfigError: the session was made without an updater, or see `Updater.connect`.
        """
        if not self.updater:
            raise ConfigError("the session cannot train: it was made without the settings of an optimiser")
        self.is_connected = True
        return self.updater.connect(restored)

    def step(self, batch: Batch, samples: int | None = None) -> Accumulator:
        """Train on a batch. Ctrl-C during a step raises KeyboardInterrupt after it, so that the session stays usable.

        Args: batch: {name of a data layer: its slot}. samples: the size of the batch by which the optimiser counts its
            samples; the number of sequences, or of rows, if None.
        Returns: the cost and the measures of the batch, with the values before the step.
        Raises: DataError: the cost or a gradient is not finite. ConfigError: see `connect`.
        """
        with defer_interrupt(), np.errstate(all="ignore"):  # an infinite cost is an error, without numpy's warnings
            if not self.is_connected:
                self.connect()
            samples = count_samples(batch) if samples is None else samples
            result = self.compute(batch, samples)
            self.update(samples)
        total = Accumulator(self.evaluators)
        total.add(*result)
        return total

    def compute(self, batch: Batch, samples: int, where: object = "this batch") -> BatchResult:
        """Run the forward and the backward pass of a batch.

        When this method returns, the gradients are in the table, or are being sent to the servers.

        Args: where: the text of this object says in messages which batch it is.
        Raises: DataError: the cost or a gradient is not finite.
        """
        LIVENESS.turned = time.monotonic()
        network, updater, breakdown = self.network, self.updater, self.breakdown
        self.table.clear_gradients()
        if updater.prefetches:
            breakdown.switch(EXCHANGE)
            updater.prefetch(batch)
        breakdown.switch(COMPUTE)
        network.forward(batch, self.stream)
        if self._shows_layers:
            log_lines.log_layers(network)
        cost = network.cost()
        if not math.isfinite(cost):
            raise DataError(
                f"the cost of layer {network.find_bad_cost()} is {cost:g} in {where}: "
                f"{nan_checks.describe_source(network)}; a lower learning_rate or corrected data may help"
            )
        network.backward(updater.begin_step(samples))
        wrong = self._gradients.find()
        if wrong:
            raise DataError(
                f"the gradient of parameter {wrong} is not finite in {where}: "
                f"{nan_checks.describe_users(network, wrong)}; a lower learning_rate may help"
            )
        return BatchResult(cost, samples, self.measure())

    def update(self, samples: int, *, checkpoint: bool = False) -> bool:
        """Take the optimiser's step for a batch of `samples` samples.

        Args: checkpoint: whether this trainer requests a checkpoint after the step.
        Returns: whether any trainer has requested a checkpoint after the step.
        """
        with self.exchange():
            return self.updater.step(samples, checkpoint)

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """A context for an exchange with the updater. `is_open` is true in the context.

        After an exception in the context, `is_open` remains true.
        """
        self.is_open = True
        self.breakdown.switch(EXCHANGE)
        yield
        self.breakdown.switch(OTHER)
        self.is_open = False

    def start_pass(self, batch: int = 0) -> None:
        """Begin a pass, or continue in it after `batch` batches. Wait for the other trainers, if there are any.

        A local session that does not count passes needs neither this method nor `finish_pass`.
        """
        if not self.is_connected:
            self.connect()
        self.breakdown.switch(EXCHANGE)
        self.updater.start_pass(batch)
        self.breakdown.switch(OTHER)

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """End a pass: apply the decay that is due, and count the pass for the schedule of the learning rate.

        Args: own: see `Updater.finish_pass`.
        """
        with defer_interrupt(), self.exchange():
            self.updater.finish_pass(own)

    # ----- Testing and inference

    def test(
        self,
        batches: Iterable[Batch | tuple[Batch, int]],
        *,
        values: AbstractContextManager[None] | None = None,
        each_batch: Callable[[int, Accumulator], None] | None = None,
        with_cost: bool = True,
    ) -> Accumulator:
        """Run all batches through the network without training, and return the sum of their results.

        Args: batches: batches, or pairs of a batch and its size (see `step`). values: a context in which the parameters
            have the values to test; by default the averages of the steps, if the optimiser averages. each_batch: a
            function that is called after each batch, with the number of batches and the result so far. with_cost:
            whether the network has a cost; a network for prediction has none, and its cost counts as 0.
        Raises: DataError: there is no sample, the provider raised an error, or a cost is not finite.
        """
        result, network = Accumulator(self.evaluators), self.network
        if values is None:
            values = hold_at_ends(self.updater.averaged(), defer_interrupt) if self.updater else nullcontext()
        with values, network.states.restored(), np.errstate(all="ignore"):
            network.states.restart()
            for number, one in enumerate(batches, 1):
                LIVENESS.turn()
                batch, samples = one if isinstance(one, tuple) else (one, count_samples(one))
                result.add(*self.evaluate(batch, samples, number, with_cost=with_cost))
                if each_batch is not None:
                    each_batch(number, result)
        if not result.samples:
            raise DataError("the test data has no sample; check the list of the test data")
        result.finish()
        return result

    def evaluate(self, batch: Batch, samples: int, number: int = 1, *, with_cost: bool = True) -> BatchResult:
        """Run a batch, which is batch `number` of a test, through the network without training.

        Raises: DataError: the cost is not finite.
        """
        network = self.network
        network.forward(batch)
        if self._shows_layers:
            log_lines.log_layers(network)
        cost = network.cost() if with_cost else 0.0
        if not math.isfinite(cost):
            raise DataError(
                f"the cost of layer {network.find_bad_cost()} is {cost:g} in batch {number} of the test: "
                f"{nan_checks.describe_source(network)}; check the test data and the model"
            )
        return BatchResult(cost, samples, self.measure())

    def infer(self, batch: Batch, layers: Sequence[str] = ()) -> dict[str, Argument]:
        """Return the outputs of layers for a batch, by name. The arrays belong to the caller.

        Args: layers: the names of the layers; by default the outputs of the model.
        Raises: ConfigError: the network does not compute a layer of this name.
        """
        with np.errstate(all="ignore"):
            self.network.forward(batch)
        return self.outputs(layers)

    def outputs(self, layers: Sequence[str] = ()) -> dict[str, Argument]:
        """Return the outputs of layers for the last batch, as `infer` does."""
        computed = [replica.outputs for replica in self.network.replicas]
        for name in layers:
            if computed and name not in computed[0]:
                raise ConfigError(f"the network does not compute a layer {name}; name it as an output of the model")
        return {
            name: join_arguments([outputs[name] for outputs in computed])
            for name in layers or self.network.output_names
        }

    def measure(self) -> list[Any]:
        """Return the result of each evaluator for the last batch, summed over the parts of the batch."""
        measures = [_measure_replica(replica, self.evaluators) for replica in self.network.replicas]
        if len(measures) == 1:
            return measures[0]
        totals = [one.nothing() for one in self.evaluators]
        for of_share in measures:
            for number, one in enumerate(of_share):
                totals[number] += one
        return totals

    # ----- The state

    def state(self) -> dict[str, Any]:
        """Return the random stream, and what the network carries from batch to batch, in a form that JSON can store."""
        return {"stream": self.stream.state, "network": self.network.carried(), "moving": self.moving()}

    def moving(self) -> dict[str, Any]:
        """Return the static parameters that forward passes have updated, for example in batch norm, for JSON."""
        return {one.name: encode_array(one.value) for one in self.table if one.follows}

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. The trained parameters are restored by `connect`."""
        for name, record in state["moving"].items():
            self.table[name].value[:] = decode_array(record)
            self.table[name].follows = True
        self.stream.state = operator.index(state["stream"])
        self.network.carry_on(state["network"])

    def save(self, directory: str | Path, place: Mapping[str, Any] | None = None) -> None:
        """Save the whole state of training in a checkpoint, atomically.

        Args: place: what the caller needs to continue, for example the position in the data; plain JSON.
        Raises: VolumeError: the checkpoint cannot be written. ConfigError: a parameter's name is no name of a file.
        """
        self.table.check_file_names()
        if not self.is_connected:
            self.connect()
        place = dict(place or {})
        gathered = self.updater.gather_checkpoint({"place": place, **self.state()})
        if gathered is not None:  # another trainer than the first one has sent its state to the servers
            write_checkpoint(Path(directory), gathered, self.table, {}, place)

    def restore(self, directory: str | Path) -> dict[str, Any]:
        """Continue from a checkpoint that `save` has written: the following steps are equal, bit for bit.

        Returns: the `place` that was saved.
        Raises: MissingInputError, DamagedError, VolumeError, ConfigError: see `read_checkpoint`. DataError: the state
            is not in the form that `save` writes.
        """
        own = self.resume(read_checkpoint(Path(directory), self.table, str(directory)))
        with decoding("this session"):
            return dict((own or {})["place"])

    def resume(self, restored: CheckpointState | None) -> dict[str, Any] | None:
        """Connect the updater with the content of a checkpoint, which only trainer 0 of a job needs to give.

        Returns: the state of this trainer in the checkpoint; None if trainer 0 has no checkpoint.
        Raises: ConfigError: see `connect`. DataError: the state is not in the form that `state` returns.
        """
        own = self.connect(restored)
        if own is not None:
            with decoding("this session"):
                self.put_back(own)
        return own

    def close(self) -> None:
        """End the threads of the network."""
        if isinstance(self.network, DataParallelNetwork):
            self.network.close()


def make_session(
    model: ModelConfig,
    optimization: OptimizationConfig | None = None,
    *,
    table: ParameterTable | None = None,
    seed: int = 1,
    threads: int = 1,
) -> Session:
    """Return a session with the optimiser in this process.

    Args: optimization: the settings of the optimiser; None for a session that never trains. table: the parameters of
        the model with their values; by default, the initial values are drawn. seed: the seed of the random numbers;
        `paddle train --seed` takes the same one for the same results. threads: the number of threads among which a
        batch is divided.
    Raises: ConfigError: the model or a setting is not supported; the text names it.
    """
    stream = Stream(start_state(seed, use_global_seed=False))
    network = build_network(
        model, ParameterTable(model.parameters) if table is None else table, seed=seed, threads=threads
    )
    if table is None:
        network.parameters.randomize(stream)
    updater = None
    if optimization is not None:
        settings = read_optimization(optimization, local=True)
        updater = LocalUpdater(network.parameters, settings, pool=pool_of(network))
    return Session(network, make_evaluators(model.evaluators), stream, updater)


def build_network(
    model: ModelConfig,
    table: ParameterTable,
    *,
    seed: int,
    threads: int = 1,
    use_global_seed: bool = False,
    further: Collection[str] = (),
) -> AnyNetwork:
    """Return the network of a model, with a replica for each of several threads.

    Args: use_global_seed: see `replica_state`. further: see `Network`.
    Raises: ConfigError: the text names a layer type, activation or attribute that is not supported.
    """
    if threads == 1:
        return Network(model, table, further)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    states = [replica_state(seed, number, use_global_seed) for number in range(threads)]
    return DataParallelNetwork(model, table, [Stream(state) for state in states], further=further)


def pool_of(network: AnyNetwork) -> ThreadPool:
    """Return the threads of a network, which take the optimiser's step between two batches."""
    return network.pool if isinstance(network, DataParallelNetwork) else SINGLE_THREAD


def read_batches(source: BatchSource, size: int) -> Iterator[tuple[Batch, int]]:
    """Begin a pass of a data source, and yield its batches of `size` units, each with its exact size.

    Raises: DataError, MissingInputError: see `DataSource.next_batch`.
    """
    source.start_pass()
    while (batch := source.next_batch(size)) is not None:
        yield batch


def _measure_replica(replica: Network, evaluators: Sequence[Evaluator]) -> list[Any]:
    """Return the result of each evaluator for the part of the batch that a replica has computed."""
    for one in evaluators:
        if isinstance(one, GradientPrinter):
            one.gradients = replica.kept_gradients()
    return [one.measure(replica.outputs) for one in evaluators]

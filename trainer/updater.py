"""From gradients to new values: an optimiser in this process, or the parameter servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from proto.TrainerConfig_pb2 import OptimizationConfig
from pserver import blocks, snapshot
from pserver.crew import ALONE, Crew
from pserver.errors import ConfigError
from pserver.methods import check_supported, list_ignored
from pserver.rules import Array, Optimization, ParameterSpec
from pserver.segments import find_segments
from pserver.shard import Shard
from pserver.snapshot import Captured
from trainer.arguments import Argument
from trainer.network import OnFinal
from trainer.parameters import DenseParameters, Parameter, ParameterTable
from trainer.pruning import Pruning

if TYPE_CHECKING:
    from pserver.client import Client


MASKS = "pruned"  # what an updater adds to what a trainer says of itself in a checkpoint


class Updater(Protocol):
    """Changes the table's values by its gradients, in place."""

    def connect(self, restored: Captured | None = None) -> dict[str, Any] | None:
        """Prepare for the first pass, with the values that the table has now; trainer 0's win.

        Args: restored: trainer 0's, to go on from a checkpoint.
        Returns: what this trainer said of itself in that checkpoint; None without one.
        """

    def check(self) -> None:
        """Return if the others are still there, as far as is known; never waits.

        Raises: LostPeerError: naming who is gone.
        """

    def start_pass(self, batch: int = 0) -> None:
        """Begin a pass, or go on in it after so many batches; waits for the other trainers."""

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """Get ready what the forward pass of a batch needs, and only it."""

    def begin_step(self, samples: int) -> OnFinal | None:
        """Begin the step of a batch of so many samples, before its backward pass.

        Returns: what the backward pass may call as the gradients get complete, if that is of any use.
        """

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Make one step with the gradients of a batch of so many samples.

        Args: checkpoint: whether this trainer asks for a checkpoint after this batch.
        Returns: whether any trainer did; then all call `capture`.
        """

    def capture(self, own: dict[str, Any]) -> Captured | None:
        """Return the state of the job, on trainer 0; the others only say of themselves what is to be kept.

        Args: own: what this trainer needs to go on from here; JSON can hold it.
        """

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """End a pass; waits for the other trainers, and takes the values that all of them made.

        Args: own: as for `capture`, for the checkpoints that others ask for before they end the pass.
        """

    def averaged(self) -> AbstractContextManager[None]:
        """Within it the table has the values to test and to save: averaged where the config says so."""

    def rates(self, parameter: Parameter) -> Array | None:
        """Return the rate that each element of a parameter had in the last step, if the method has such rates."""

    def finish(self) -> None:
        """Leave after the last pass."""

    def abort(self, reason: str) -> None:
        """Leave because of an error, and tell the others why."""


class LocalUpdater:
    """The optimiser in this process.

    As in the legacy, without sparse parameters it is one for all, which neither clips gradients nor knows L1; with
    any, every parameter has one of its own, which does.

    Raises: ConfigError: if the settings of a parameter do not go together, or not with the method.
    """

    def __init__(
        self, table: ParameterTable, optimization: Optimization, *, log_clipping: bool = False, crew: Crew = ALONE
    ) -> None:
        self._table = table
        parameters = [parameter.spec() for parameter in table]
        self._offsets: dict[str, int] = {}
        for parameter in table.trained():
            self._offsets[parameter.name] = sum(table[name].size for name in self._offsets)
        per_parameter = has_sparse_rows(parameters)
        if not per_parameter:
            _refuse_l1(parameters)
        self._shard = Shard(
            parameters,
            blocks.whole(parameters),
            optimization,
            per_parameter=per_parameter,
            log_clipping=log_clipping,
            crew=crew,
        )
        listed = list(table)
        self._with_rows = {
            segment.parameter: listed[segment.parameter] for segment in self._shard.segments if segment.rows
        }
        self._pruning = Pruning(table)
        table.adopt(self._shard.values)

    def connect(self, restored: Captured | None = None) -> dict[str, Any] | None:
        """Prune the first values, or go on from a checkpoint.

        Raises: ConfigError: if the checkpoint does not fit this job.
        """
        if restored is None:
            self._pruning.start()
            return None
        if len(restored.services) != 1:
            raise ConfigError(
                f"the checkpoint is of training with {len(restored.services)} services of parameter servers; go on "
                "with --local=0 and as many"
            )
        snapshot.put_back(self._shard, restored.services[0])
        own = restored.trainers[0] or {}
        self._pruning.go_on(own.get(MASKS, {}))
        return own

    def check(self) -> None:
        """There are no others."""

    def start_pass(self, batch: int = 0) -> None:
        """Nothing to wait for."""

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """All is here."""

    def begin_step(self, samples: int) -> OnFinal | None:
        """Nothing to do meanwhile."""
        return None

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Make one optimiser step, and return `checkpoint`: nobody else asks for one."""
        self._pruning.mask_gradients()
        gradients = self._table.gradients  # before the rows: what nobody added to has none
        touched = {
            number: rows
            for number, parameter in self._with_rows.items()
            if (rows := parameter.touched_rows) is not None
        }
        self._shard.step(gradients, samples, touched)
        return checkpoint

    def capture(self, own: dict[str, Any]) -> Captured | None:
        """Return the state of this trainer and of its optimiser, whose arrays change with the next step."""
        return Captured([snapshot.take(self._shard)], [{**own, MASKS: self._pruning.state()}])

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Apply the decay that is still due, and count the pass."""
        self._shard.finish_pass()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Apply the decay that is still due; average where the config says so."""
        self._shard.apply_average()
        try:
            yield
        finally:
            self._shard.restore()

    def rates(self, parameter: Parameter) -> Array | None:
        """Return the rate that each element had in the last step, if the method has such rates."""
        start = self._offsets.get(parameter.name)
        return None if start is None else self._shard.rates(start, start + parameter.size)

    def finish(self) -> None:
        """Nothing to leave."""

    def abort(self, reason: str) -> None:
        """Nobody to tell."""


class RemoteUpdater:
    """The parameter servers: pushes the gradients, waits for the step of all trainers, pulls the new values.

    Raises: ConfigError: if the settings of a parameter do not go together, or the servers cannot do them.
    """

    def __init__(self, table: ParameterTable | DenseParameters, optimization: Optimization, client: Client) -> None:
        self._table = table
        self._optimization = optimization
        self._client = client
        parameters = [parameter.spec() for parameter in table]
        find_segments(parameters, blocks.whole(parameters), optimization, per_parameter=True)  # as the servers will
        self._pruning = Pruning(table)
        self._has_begun = False

    def connect(self, restored: Captured | None = None) -> dict[str, Any] | None:
        """Join every server; trainer 0 gives its values, or a checkpoint, and the others take them."""
        self._pruning.start()
        self._client.join([parameter.spec() for parameter in self._table], self._optimization)
        own: dict[str, Any] | None = self._client.initialise(self._table.values, restored)
        if own is None:
            self._pruning.start()  # again: all trainers keep what trainer 0 kept
        else:
            self._pruning.go_on(own.get(MASKS, {}))
        return own

    def check(self) -> None:
        """Ask the heartbeat."""
        self._client.check()

    def start_pass(self, batch: int = 0) -> None:
        """Wait for all trainers."""
        self._client.start_pass(batch)

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """All is here, since the last step."""

    def begin_step(self, samples: int) -> OnFinal | None:
        """Push gradients as they get complete, layer by layer; pruned ones wait for their masks."""
        if self._pruning.state():
            return None
        self._client.begin_push(self._table.peek_gradients(), self._table.values, samples)
        self._has_begun = True

        def push(start: int) -> None:
            self._table.gradients_from(start)
            self._client.push_from(start)

        return push

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Push the gradients that are not on their way yet, and pull the values."""
        self._pruning.mask_gradients()
        gradients, values = self._table.gradients, self._table.values
        if not self._has_begun:
            self._client.begin_push(gradients, values, samples)
        self._has_begun = False
        return self._client.finish_push(checkpoint=checkpoint)

    def capture(self, own: dict[str, Any]) -> Captured | None:
        """Let trainer 0 collect what every trainer says of itself, and the state of the servers."""
        return self._client.capture(self._with_masks(own))

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Wait for the trainers that still have batches, then pull the values."""
        self._client.finish_pass(self._table.values, own and self._with_masks(own))

    def _with_masks(self, own: dict[str, Any]) -> dict[str, Any]:
        return {**own, MASKS: self._pruning.state()}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Take the averages from the servers where the config says so."""
        if not self._optimization.average_window:
            yield
            return
        raw = self._table.values.copy()
        self._client.fetch_averages(self._table.values)
        try:
            yield
        finally:
            self._table.values[:] = raw

    def rates(self, parameter: Parameter) -> Array | None:
        """They are on the servers."""
        return None

    def finish(self) -> None:
        """Say goodbye."""
        self._client.goodbye()

    def abort(self, reason: str) -> None:
        """Tell the servers why this trainer leaves."""
        self._client.abort(reason)


def has_sparse_rows(parameters: Sequence[ParameterSpec]) -> bool:
    """Return whether rows of any parameter are updated only when a batch touches them."""
    return any(p.sparse_update and not p.is_static for p in parameters)


def _refuse_l1(parameters: Sequence[ParameterSpec]) -> None:
    for p in parameters:
        if p.decay_rate_l1 and not p.is_static:
            raise ConfigError(
                f"parameter {p.name} has L1 decay (l1_rate), which local training of dense parameters cannot do, as in "
                "the original (SgdLocalUpdater); take l1_rate out of its ParamAttr, or train with parameter servers"
            )


def read_optimization(config: OptimizationConfig, *, local: bool) -> Optimization:
    """Return the settings that the optimiser needs.

    Raises: ConfigError: naming the setting that is not supported yet, or impossible.
    """
    if not config.HasField("batch_size"):
        raise ConfigError("the config does not call settings(batch_size=..., learning_rate=...)")
    if config.batch_size < 1:
        raise ConfigError(f"settings(batch_size={config.batch_size}): it must be at least 1")
    if config.algorithm not in ("sgd", "async_sgd"):
        raise ConfigError(
            f"settings: Unsupported algorithm: {config.algorithm}; supported is sgd, which settings() takes when "
            "learning_method is one of the optimizers"
        )
    if local and config.num_batches_per_send_parameter > 1:
        raise ConfigError(
            f"settings: num_batches_per_send_parameter is {config.num_batches_per_send_parameter}; in local training "
            "it must be 1"
        )
    asked = {
        "asynchronous training (is_async)": config.algorithm == "async_sgd" and not local,
        "num_batches_per_send_parameter over 1": config.num_batches_per_send_parameter > 1,
        "num_batches_per_get_parameter over 1": config.num_batches_per_get_parameter > 1 and not local,
    }
    for what in (name for name, given in asked.items() if given):
        raise ConfigError(f"settings: {what} is not supported yet; supported is synchronous sgd")
    optimization = Optimization(
        learning_method=config.learning_method,
        learning_rate=config.learning_rate,
        learning_rate_schedule=config.learning_rate_schedule,
        learning_rate_decay_a=config.learning_rate_decay_a,
        learning_rate_decay_b=config.learning_rate_decay_b,
        learning_rate_args=config.learning_rate_args,
        adam_beta1=config.adam_beta1,
        adam_beta2=config.adam_beta2,
        adam_epsilon=config.adam_epsilon,
        ada_epsilon=config.ada_epsilon,
        ada_rou=config.ada_rou,
        average_window=config.average_window,
        max_average_window=config.max_average_window if config.HasField("max_average_window") else None,
    )
    check_supported(optimization)
    return optimization


def list_oddities(
    parameters: Sequence[ParameterSpec], optimization: Optimization, *, local: bool, algorithm: str = "sgd"
) -> list[str]:
    """Return a sentence for each setting that has no effect, because it had none in the legacy either."""
    is_common = local and not has_sparse_rows(parameters)
    found = list_ignored(parameters, optimization, per_parameter=not is_common)
    trained = [p for p in parameters if not p.is_static]
    if local and algorithm == "async_sgd":
        found.append("local training is synchronous (algorithm async_sgd, which is_async sets)")
    if is_common and any(p.gradient_clipping_threshold > 0 for p in trained):
        found.append("local training of dense parameters does not clip gradients (gradient_clipping_threshold)")
    if is_common and any(p.num_batches_regularization > 1 and p.decay_rate for p in trained):
        found.append("local training of dense parameters decays in every batch (num_batches_regularization)")
    return [f"{sentence}, as in the original; the setting has no effect" for sentence in found]

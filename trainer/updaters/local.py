"""From gradients to new values: what every updater does, and the one that is an optimiser in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition, snapshot
from pserver.store.shard import DenseShard
from pserver.store.snapshot import CheckpointState, Part
from runtime.errors import ConfigError
from runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool
from trainer.arrays.arguments import Argument
from trainer.arrays.encoding import decoding
from trainer.arrays.parameters import DenseParameters, Parameter, ParameterTable
from trainer.network.network import OnFinal
from trainer.updaters.optimizer_settings import has_sparse_rows, refuse_l1
from trainer.updaters.pruning import Pruning

MASKS = "pruned"  # what an updater adds to what a trainer says of itself in a checkpoint


class Updater(Protocol):
    """Changes the table's values by its gradients, in place."""

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Prepare for the first pass, with the values that the table has now; trainer 0's win.

        Args: restored: trainer 0's, to go on from a checkpoint.
        Returns: what this trainer said of itself in that checkpoint; None without one.
        """

    def check(self) -> None:
        """Return if the others are still there, as far as is known; never waits.

        Raises: LostPeerError: naming the lost peer.
        """

    def start_pass(self, batch: int = 0) -> None:
        """Begin a pass, or go on in it after `batch` batches; waits for the other trainers."""

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """Get ready what the forward pass of a batch needs, and only it."""

    def begin_step(self, samples: int) -> OnFinal | None:
        """Begin the step of a batch of `samples` samples, before its backward pass.

        Returns: what the backward pass may call as the gradients get complete, if that is of any use.
        """

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Make one step with the gradients of a batch of `samples` samples.

        Args: checkpoint: whether this trainer asks for a checkpoint after this batch.
        Returns: whether any trainer did; then all call `gather_checkpoint`.
        """

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """Return the state of the job, on trainer 0; the others only say of themselves what is to be kept.

        Args: own: what this trainer needs to go on from here; JSON can hold it.
        """

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """End a pass; waits for the other trainers, and takes the values that all of them made.

        Args: own: as for `gather_checkpoint`, for the checkpoints that others ask for before they end the pass.
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

    Args: parameters: the settings that count, where they are not the table's own.  per_parameter: every parameter has
        an optimiser of its own, as on the parameter servers.
    Raises: ConfigError: if the settings of a parameter do not go together, or not with the method.
    """

    def __init__(
        self,
        table: ParameterTable | DenseParameters,
        optimization: Optimization,
        *,
        log_clipping: bool = False,
        pool: ThreadPool = SINGLE_THREAD,
        parameters: Sequence[ParameterSpec] = (),
        per_parameter: bool = False,
    ) -> None:
        self._table = table
        parameters = parameters or [parameter.spec() for parameter in table]
        self._offsets: dict[str, int] = {}
        start = 0
        for parameter in table.trained():
            self._offsets[parameter.name] = start
            start += parameter.size
        per_parameter = per_parameter or has_sparse_rows(parameters)
        if not per_parameter:
            refuse_l1(parameters)
        self._shard = DenseShard(
            parameters,
            partition.whole(parameters),
            optimization,
            per_parameter=per_parameter,
            log_clipping=log_clipping,
            pool=pool,
        )
        listed = list(table)
        self._with_rows = {group.parameter: listed[group.parameter] for group in self._shard.groups if group.rows}
        self.pruning = Pruning(table)
        self._shard.work_on(table.values)

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Prune the first values, or go on from a checkpoint.

        Raises: ConfigError: if the checkpoint does not fit this job.
        """
        if restored is None:
            self.pruning.start()
            return None
        if len(restored.services) != 1:
            raise ConfigError(
                f"the checkpoint is of training with {len(restored.services)} services of parameter servers; go on "
                "with --local=0 and as many"
            )
        snapshot.put_back(self._shard, restored.services[0])
        own = restored.trainers[0] or {}
        with decoding("masks"):
            self.pruning.go_on(own.get(MASKS, {}))
        return own

    def take(self) -> Part:
        """Return the state of the optimiser with the values, whose arrays change with the next step."""
        return snapshot.take(self._shard)

    def put_back(self, part: Part) -> None:
        """Go on from such a state.

        Raises: ConfigError: if it does not fit this job.
        """
        snapshot.put_back(self._shard, part)

    def check(self) -> None:
        """Return at once: there are no other programs."""

    def start_pass(self, batch: int = 0) -> None:
        """Return at once: there are no other trainers to wait for."""

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """Return at once: all values are in this process."""

    def begin_step(self, samples: int) -> OnFinal | None:
        """Return None: the step begins after the backward pass."""
        return None

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Make one optimiser step, and return `checkpoint`: no other trainer can ask for one."""
        self.pruning.mask_gradients()
        gradients = self._table.gradients  # read before the rows: a table without gradients has no touched rows
        touched = {
            number: rows
            for number, parameter in self._with_rows.items()
            if (rows := parameter.touched_rows) is not None
        }
        self._shard.step(gradients, samples, touched)
        return checkpoint

    def apply(self, gradients: Array, samples: int) -> None:
        """Make one optimiser step with gradients that are not the table's, of `samples` samples."""
        self._shard.step(gradients, samples, {})

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """Return the state of this trainer and of its optimiser, whose arrays change with the next step."""
        return CheckpointState([snapshot.take(self._shard)], [{**own, MASKS: self.pruning.state()}])

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
        """Return at once: there is no server to leave."""

    def abort(self, reason: str) -> None:
        """Return at once: there is no other program to tell."""

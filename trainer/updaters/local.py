"""The interface of updaters, which compute new values from gradients, and the updater that works in this process."""

# ruff: noqa: B027  # the methods of `Updater` that do nothing are no oversight
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool
from pserver.optim.averaging import SUMS
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition, snapshot
from pserver.store.shard import DenseShard
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.arguments import Argument
from trainer.arrays.dense_parameters import DenseParameters
from trainer.arrays.encoding import decoding
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.network.network import OnFinal
from trainer.updaters.optimizer_settings import has_sparse_rows, refuse_l1
from trainer.updaters.pruning import Pruning

MASKS = "pruned"  # in a checkpoint, the key of the pruning masks in the state of a trainer


class Updater(ABC):
    """Changes the values of a parameter table with its gradients, in place.

    Every updater has the abstract methods. The other methods do nothing, unless an updater needs them.

    Attributes: prefetches: whether `prefetch` does anything. looks_ahead: whether `announce` does anything.
    """

    prefetches = looks_ahead = False

    @abstractmethod
    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Prepare for the first pass, with the present values of the table. All trainers get the values of trainer 0.

        Args: restored: the checkpoint from which trainer 0 resumes.
        Returns: the state of this trainer in the checkpoint; None without a checkpoint.
        """

    def check(self) -> None:
        """Raise an error if the loss of a peer is known. Never block.

        Raises: LostPeerError: the text names the lost peer.
        """

    def set_pass(self, number: int) -> None:
        """Set the number of the pass of the next batches. Only a job with a master needs it."""

    def start_pass(self, batch: int = 0) -> None:
        """Begin a pass, or continue in it after `batch` batches. Wait for the other trainers."""

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """Prepare the values that only this batch needs, before its forward pass."""

    def announce(self, slots: Mapping[str, Argument]) -> None:
        """Take notice of the batch after the present one, before the step of the present one."""

    def begin_step(self, samples: int) -> OnFinal | None:
        """Begin the step of a batch of `samples` samples, before its backward pass.

        Returns: a function for the backward pass to call as gradients become complete, or None.
        """
        return None

    @abstractmethod
    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Take one step with the gradients of a batch of `samples` samples.

        Args: checkpoint: whether this trainer requests a checkpoint after this batch.
        Returns: whether any trainer has requested a checkpoint, so that all trainers must call `gather_checkpoint`.
        """

    @abstractmethod
    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """In trainer 0, return the state of the job. All other trainers send their own state, and return None.

        Args: own: the JSON-compatible state of this trainer, for resuming from this position.
        """

    @abstractmethod
    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """End a pass. Wait for the other trainers, and take the common values.

        Args: own: see `gather_checkpoint`. Other trainers may request checkpoints before they end the pass; such
            checkpoints include `own`.
        """

    def averaged(self) -> AbstractContextManager[None]:
        """A context in which the table has the values to test and to save: averages, if the config asks for them."""
        return nullcontext()

    def rates(self, parameter: Parameter) -> Array | None:
        """Return the rate of each element of a parameter in the last step; None if the method has no separate rates, or
        if the rates are on the servers.
        """
        return None

    def finish(self) -> None:
        """Leave after the last pass."""

    def abort(self, reason: str) -> None:
        """Leave because of an error, and tell the servers or the other trainers the reason."""


@contextmanager
def leaving_after_errors(updater: Updater) -> Iterator[None]:
    """Let the updater leave the servers or the other trainers after an error of the `with` block."""
    try:
        yield
    except BaseException as error:
        updater.abort(str(error) or type(error).__name__)
        raise


class LocalUpdater(Updater):
    """The optimiser in this process.

    As in v0.10, if there are no sparse parameters, one optimiser without clipping and L1 updates all parameters. If
    there are sparse parameters, every parameter has its own optimiser with clipping and L1.

    Args: parameters: the settings of the parameters, if they differ from the settings in the table. per_parameter:
        whether every parameter has its own optimiser, as on the parameter servers.
    Raises: ConfigError: the settings of a parameter are inconsistent, or the method does not support them.
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
        """Prune the initial values, or resume from a checkpoint.

        Raises: ConfigError: the checkpoint does not fit this job.
        """
        if restored is None:
            self.pruning.start()
            return None
        if len(restored.services) != 1:
            raise ConfigError(
                f"the checkpoint was made with {len(restored.services)} services of parameter servers; resume with "
                "--local=0 and as many services"
            )
        snapshot.put_back(self._shard, restored.services[0])
        own = restored.trainers[0] or {}
        with decoding("masks"):
            self.pruning.go_on(own.get(MASKS, {}))
        return own

    def take_moments(self, before: LocalUpdater) -> None:
        """Continue with the moments of an earlier updater of this table. Averages and counters begin again."""
        before._shard.catch_up()
        for name, array in self._shard.state.items():
            if name not in SUMS and name in before._shard.state:
                array[:] = before._shard.state[name]

    def take(self) -> Part:
        """Return the state of the optimiser with the values. The next step changes the returned arrays."""
        return snapshot.take(self._shard)

    def put_back(self, part: Part) -> None:
        """Restore a state that `take` returned.

        Raises: ConfigError: the state does not fit this job.
        """
        snapshot.put_back(self._shard, part)

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Take one optimiser step. Return `checkpoint`, because no other trainer can request a checkpoint."""
        self.pruning.mask_gradients()
        # `gradients` fills the gradient of each unused parameter with zeros. It is read first, because
        # `touched_rows` of an unused parameter is then an empty array. Otherwise it would be None, which means that all
        # rows are updated.
        gradients = self._table.gradients
        touched = {
            number: rows
            for number, parameter in self._with_rows.items()
            if (rows := parameter.touched_rows) is not None
        }
        self._shard.step(gradients, samples, touched)
        return checkpoint

    def apply(self, gradients: Array, samples: int) -> None:
        """Take one optimiser step with gradients of `samples` samples that are not in the table."""
        self._shard.step(gradients, samples, {})

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """Return the state of this trainer and of its optimiser. The next step changes the returned arrays."""
        return CheckpointState([snapshot.take(self._shard)], [{**own, MASKS: self.pruning.state()}])

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Apply the decay that is due, and count the pass."""
        self._shard.finish_pass()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Apply the decay that is due. In the context the values are averages, if the config asks for averages."""
        self._shard.apply_average()
        try:
            yield
        finally:
            self._shard.restore()

    def rates(self, parameter: Parameter) -> Array | None:
        """Return the rate of each element in the last step, if the method has separate rates."""
        start = self._offsets.get(parameter.name)
        return None if start is None else self._shard.rates(start, start + parameter.size)

"""The updater for jobs in which the parameter servers update the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.parameter_groups import find_parameter_groups
from pserver.store.snapshot import CheckpointState
from trainer.arrays.dense_parameters import DenseParameters
from trainer.arrays.encoding import decoding
from trainer.arrays.parameters import ParameterTable
from trainer.network.network import OnFinal
from trainer.updaters.local import MASKS, Updater
from trainer.updaters.pruning import Pruning

if TYPE_CHECKING:
    from pserver.client.client import Client


class DenseUpdater(Updater):
    """The common part of updaters whose dense parameters are on parameter servers.

    Args: pruning: the masks of the table. has_averages: whether the servers have averages of the values.
    """

    def __init__(
        self, table: ParameterTable | DenseParameters, client: Client, pruning: Pruning, *, has_averages: bool
    ) -> None:
        self._table, self._client, self._has_averages, self._pruning = table, client, has_averages, pruning

    def _join(
        self, parameters: Sequence[ParameterSpec], optimization: Optimization, restored: CheckpointState | None
    ) -> dict[str, Any] | None:
        """Join every server. Trainer 0 sends its values or a checkpoint, and the other trainers receive the values."""
        self._pruning.start()
        self._client.join(parameters, optimization)
        own: dict[str, Any] | None = self._client.initialise(self._table.values, restored)
        if own is None:
            self._pruning.start()  # the values must be pruned again: all trainers now have the values of trainer 0
        return own

    def check(self) -> None:
        """Raise the error that the heartbeat has found, if any."""
        self._client.check()

    def _with_masks(self, own: dict[str, Any]) -> dict[str, Any]:
        return {**own, MASKS: self._pruning.state()}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A context in which the table has the averages of the servers, if the config asks for averages."""
        if not self._has_averages:
            yield
            return
        with self._replaced(self._client.fetch_averages):
            yield

    @contextmanager
    def _replaced(self, fetch: Callable[[Array], None]) -> Iterator[None]:
        """A context in which the table has fetched values."""
        raw = self._table.values.copy()
        fetch(self._table.values)
        try:
            yield
        finally:
            self._table.values[:] = raw

    def finish(self) -> None:
        """Tell the servers that this trainer has finished."""
        self._client.goodbye()

    def abort(self, reason: str) -> None:
        """Send the servers the reason why this trainer leaves."""
        self._client.abort(reason)


class RemoteUpdater(DenseUpdater):
    """Pushes the gradients to the parameter servers, waits for the step of all trainers, and pulls the new values.

    Args: batches_per_get: number of gradients after which values are pulled. A checkpoint also waits for a pull,
        because the values of trainers and servers are equal after a pull.
    Raises: ConfigError: the settings of a parameter are inconsistent, or the servers do not support them.
    """

    def __init__(
        self,
        table: ParameterTable | DenseParameters,
        optimization: Optimization,
        client: Client,
        *,
        batches_per_get: int = 1,
    ) -> None:
        super().__init__(table, client, Pruning(table), has_averages=bool(optimization.average_window))
        self._optimization = optimization
        parameters = [parameter.spec() for parameter in table]
        # the servers would report errors of the settings; this call raises these errors in the trainer
        find_parameter_groups(parameters, partition.whole(parameters), optimization, per_parameter=True)
        self._period, self._pushed = batches_per_get, 0  # `_pushed`: number of gradients since the last pull
        self._wants_checkpoint = False

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Join every server. Trainer 0 sends its values or a checkpoint, and the other trainers receive the values."""
        own = self._join([parameter.spec() for parameter in self._table], self._optimization, restored)
        if own is not None:
            with decoding("masks"):
                self._pruning.go_on(own.get(MASKS, {}))
        return own

    def start_pass(self, batch: int = 0) -> None:
        """Wait for all trainers."""
        self._client.start_pass(batch)
        self._pushed = 0

    def begin_step(self, samples: int) -> OnFinal | None:
        """Push gradients layer by layer, as they become complete. With pruning masks, and if all gradients of a service
        are one piece, only `step` pushes gradients.
        """
        if not self._client.sends_early or self._pruning.is_on or self._pushed + 1 < self._period:
            return None
        self._client.begin_push(self._table.peek_gradients(), self._table.values, samples)

        def push(start: int) -> None:
            self._table.gradients_from(start)
            self._client.push_from(start)

        return push

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Push the remaining gradients, and pull the values."""
        if self._pruning.is_on:
            self._pruning.mask_gradients()
        gradients, values = self._table.gradients, self._table.values
        self._wants_checkpoint |= checkpoint
        self._pushed += 1
        if self._pushed < self._period:
            is_due = self._client.push(gradients, samples)
            if is_due:  # another trainer, at its own position, has requested the checkpoint
                self._client.fetch_values(values)
                self._pushed = 0
            return is_due
        self._pushed = 0
        checkpoint, self._wants_checkpoint = self._wants_checkpoint, False
        return self._client.push_pull(gradients, values, samples, checkpoint=checkpoint)

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """Send this trainer's state. Trainer 0 collects the states of all trainers and of the servers."""
        return self._client.gather_checkpoint(self._with_masks(own))

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Wait for the trainers that still have batches, then pull the values."""
        self._client.finish_pass(self._table.values, own and self._with_masks(own))

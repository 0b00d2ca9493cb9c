"""The steps on the parameter servers of a task job, which continue after the loss of servers or trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError
from pserver.client.tasks.pushes import AgreedPushes, CountedPushes, Pushes
from pserver.client.tasks.services import BatchGradient, JoinedServices, TaskModel
from pserver.optim.settings import Array, Optimization
from pserver.store import partition
from pserver.store.parameter_groups import find_parameter_groups
from pserver.store.snapshot import CheckpointState
from pserver.wire.views import EpochChangedError
from trainer.arrays.arguments import Argument
from trainer.arrays.dense_parameters import DenseParameters
from trainer.arrays.parameters import ParameterTable
from trainer.network.network import OnFinal
from trainer.updaters.local import Updater
from trainer.updaters.pruning import Pruning
from trainer.updaters.tables import TableRows
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.servers import LOST, TaskServers


class TaskUpdater(Updater):
    """The parameter servers of a task job, as an `Updater`.

    The methods of a batch are `prefetch`, `begin_step` and `step`, in this order. Each of these methods waits while a
    server is lost, and then continues. `set_pass` is called before the first batch of a pass. Only the trainer that
    tests or saves after a pass calls `finish_pass`.

    Raises: ConfigError: see `RemoteUpdater` and `TableRows`.
        TaskTakenError (prefetch, step): this trainer is no longer among the trainers with a task. The batch is dropped.
        PeerUnreachableError, LostPeerError: not all servers are present within the patience.
    """

    prefetches = True

    def __init__(
        self, model: ModelConfig, table: ParameterTable, optimization: Optimization, servers: TaskServers
    ) -> None:
        has_tables = bool(table.tables())
        self._table = DenseParameters(table) if has_tables else table
        self._tables = TableRows(model, table, optimization) if has_tables else None
        parameters = [parameter.spec() for parameter in self._table]
        # the servers would report errors of the settings; this call raises these errors in the trainer
        find_parameter_groups(parameters, partition.whole(parameters), optimization, per_parameter=True)
        self._model = TaskModel(parameters, self._tables.specs if self._tables else [], optimization)
        self._servers = servers
        self._pruning = Pruning(self._table)
        self._pushes: Pushes = CountedPushes() if optimization.is_asynchronous else AgreedPushes(servers.views)
        self._begun: JoinedServices | None = None  # the services on which the push of the current batch has begun
        self._over = 0  # all passes before this pass are over

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Join every server, and take the servers' values. Send initial values if no other trainer sends them.

        Raises: ConfigError: a setting is wrong, or a checkpoint is given (the servers of a task job have their own
            checkpoints). TaskTakenError: the job is over.
        """
        if restored is not None:
            raise ConfigError("a job with a master resumes by itself; leave --resume_from out")
        self._pruning.start()
        tables = self._table.values[:0] if self._tables is None else self._tables.values
        self._servers.connect(self._model, self._table.values, tables)
        self._pruning.start()  # the values must be pruned again: all trainers now have the values of one trainer
        return None

    def set_pass(self, number: int) -> None:
        """Set the pass of the next batches. All earlier passes are over for all trainers.

        This method is also called before `finish_pass`, which only the trainer that tests or saves the pass calls.
        """
        self._pushes.pass_number = self._over = number

    # ----- A batch -----

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """Begin a batch: take the newest view, which names the trainers of a round. Fetch the rows of the batch."""
        if self._begun is not None:
            # the previous batch failed in its backward pass; the rest of its gradient must not be sent
            self._servers.drop()
        self._begun = None
        self._pushes.open()
        if self._tables is not None:
            self._tables.rows = self._tables.find(slots)
        self._servers.run(self._prepare)

    def _prepare(self, services: JoinedServices) -> None:
        self._pushes.prepare(services, self._table.values)
        if self._tables is not None:
            services.pull(self._tables.rows, self._tables.list_values())

    def begin_step(self, samples: int) -> OnFinal | None:
        """Push gradients layer by layer, as they become complete. With pruning masks, only `step` pushes gradients."""
        services = self._servers.services
        if services is None or self._pruning.is_on:
            return None
        batch = self._make_batch(self._table.peek_gradients(), samples)
        if self._attempt(services, lambda: self._pushes.begin(services, batch)):
            self._begun = services
        tables = self._tables.size if self._tables else 0

        def push(start: int) -> None:
            start = max(start - tables, 0)
            self._table.gradients_from(start)
            if self._begun is services and not self._attempt(services, lambda: services.push_from(start)):
                self._begun = None

        return push

    def _attempt(self, services: JoinedServices, action: Any) -> bool:
        """Return whether an action succeeded. `step` repeats an action that failed."""
        try:
            action()
        except EpochChangedError:
            return False
        except LOST as exc:
            self._servers.lose(exc)
            return False
        return True

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Push the remaining gradients, and wait until the round is complete and the new values have arrived."""
        self._pruning.mask_gradients()
        batch = self._make_batch(self._table.gradients, samples)

        def finish(services: JoinedServices) -> None:
            has_begun, self._begun = self._begun is services, None
            self._pushes.finish(services, batch, has_begun=has_begun)

        try:
            self._servers.run(finish)
        except TaskTakenError:
            self._servers.drop()  # the rest of this gradient must not be sent with the next gradient
            raise
        return False

    def _make_batch(self, gradients: Array, samples: int) -> BatchGradient:
        if self._tables is None:
            return BatchGradient(gradients, self._table.values, samples)
        return BatchGradient(gradients, self._table.values, samples, self._tables.rows, self._tables.list_gradients())

    # ----- After a pass -----

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """Raise an error, because the trainers of a job with a master make no checkpoints.

        Raises: ConfigError.
        """
        raise ConfigError(
            "a job with a master makes no checkpoints of its trainers; give its servers --checkpoint_path"
        )

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Fetch the values from the servers, after the master has reported the end of the pass."""
        self._over = self._pushes.pass_number + 1
        self._servers.run(lambda services: services.fetch(self._table.values, self._over))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Return a context in which all rows of all tables have the servers' values. If the config enables averaging,
        all parameters have their averages in the context.
        """
        is_averaged = self._model.optimization.average_window > 0
        raw = self._table.values.copy() if is_averaged else None
        self._servers.run(lambda services: self._fetch_to_test(services, is_averaged=is_averaged))
        try:
            yield
        finally:
            if raw is not None:
                self._table.values[:] = raw

    def _fetch_to_test(self, services: JoinedServices, *, is_averaged: bool) -> None:
        if is_averaged:
            services.fetch(self._table.values, self._over, averaged=True)
        if self._tables is not None:
            services.fetch_tables(self._tables.values, self._over, averaged=is_averaged)

    # ----- Leaving -----

    def finish(self) -> None:
        """Tell the servers that this trainer has finished."""
        self._servers.leave()

    def abort(self, reason: str) -> None:
        """Send the servers the reason why this trainer leaves."""
        self._servers.abort(reason)

"""Tables (parameters with sparse_update) on parameter servers. The rows of a batch are fetched before the batch.

The gradients of the fetched rows are pushed after the batch. The trainer has the whole table in its address space, but
in a batch only the rows of the batch have the values of the servers. In a test or a save, all rows have the values of
the servers.

Source: spec/distributed.md 3.12; SparseRemoteParameterUpdater of v0.10.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError, PeerUnreachableError
from pserver.client.sparse_rows import WantedRows
from pserver.optim.settings import Array, Optimization
from pserver.store.snapshot import CheckpointState
from pserver.store.sparse_shard import make_table_groups
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.network.network import OnFinal
from trainer.updaters.local import Updater
from trainer.updaters.prefetch import RowFinder

if TYPE_CHECKING:
    from paddle_base.kernels.tables import RowIds
    from pserver.client.sparse_client import SparseClient

SPARSE_PORTS = (
    "give `paddle pserver` and `paddle train` the same --ports_num_for_sparse, at least 1 "
    "(CONF_PADDLE_PORTS_NUM_SPARSE in a pod)"
)


class TableRows:
    """The tables of a trainer, and their rows in the current batch.

    Attributes: size: number of elements of all tables. values: all tables, one after the other. rows: the used rows of
        each table, in ascending order. specs, optimization: descriptions of the tables, and the settings of their
        steps, for the servers.

    Raises: ConfigError: the rows of a table that a layer uses are not known before the forward pass, or tables on
        servers do not support a setting.
    """

    def __init__(self, config: ModelConfig, table: ParameterTable, optimization: Optimization) -> None:
        self._parameters, self.optimization = table.tables(), optimization
        self.size = table.tables_size
        _refuse_hooks(self._parameters)
        self._finder = RowFinder(config, self._parameters)
        self.values: Array = table.values[: self.size]
        self.rows: list[RowIds] = []
        self.specs = [dataclasses.replace(one.spec(), sparse_update=True) for one in self._parameters]
        # the servers would report errors of the settings; this call raises these errors in the trainer
        make_table_groups(self.specs, optimization, is_asynchronous=optimization.is_asynchronous)

    def find(self, slots: Mapping[str, Argument]) -> list[RowIds]:
        """Find the rows that a batch uses.

        Raises: ConfigError, DataError: see `RowFinder.find`.
        """
        return self._finder.find(slots)

    def list_values(self) -> list[Array]:
        """Return the values of each table, row by row."""
        return [_matrix(one, one.value) for one in self._parameters]

    def shrink(self, threshold: float, *, only_rows: bool) -> None:
        """Move all rows of tables with L1, or only the rows of the batch, towards zero (`shrink_parameter_value`).

        Source: SparseRemoteParameterUpdater::getParametersRemote of v0.10.
        """
        for number, parameter in enumerate(self._parameters):
            if parameter.config.decay_rate_l1 > 0:
                values = _matrix(parameter, parameter.value)
                some = self.rows[number] if only_rows else slice(None)
                shrunk = np.maximum(np.abs(values[some]) - np.float32(threshold), 0)
                values[some] = np.copysign(shrunk, values[some])

    def list_gradients(self) -> list[Array]:
        """Return the gradient of each table, row by row."""
        return [_matrix(one, one.peek_gradient()) for one in self._parameters]


class TablesUpdater(Updater):
    """An `Updater` for parameter servers with tables, which exchanges dense parameters and tables at the same time.

    Args: dense: the updater of the parameters that are not tables; there may be no such parameter. dense_services: the
        number of the dense services. shrink: the amount by which the rows of tables with L1 move towards zero at each
        fetch.
    """

    prefetches = True

    def __init__(
        self, dense: Updater, tables: TableRows, client: SparseClient, *, dense_services: int, shrink: float = 0.0
    ) -> None:
        self._dense, self._tables, self._client = dense, tables, client
        self._dense_services, self._shrink = dense_services, shrink
        self.looks_ahead = not tables.optimization.is_asynchronous
        # the next batch and its rows: as `announce` was told, and as the servers have sent them with the step
        self._expected: _NextBatch | None = None
        self._fetched: _NextBatch | None = None

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Join every service. Trainer 0 sends its values, or a checkpoint.

        Raises: ConfigError: the checkpoint belongs to servers with different ports. PeerUnreachableError: a server is
            not reachable, or does not have the port.
        """
        first = rest = None
        if restored is not None:
            # All servers have equal numbers of dense ports and equal numbers of sparse ports. The share of dense
            # services among all services therefore does not depend on the number of servers.
            dense, total = self._dense_services, self._dense_services + self._client.count_services()
            count, left = divmod(len(restored.services) * dense, total)
            if left:
                raise ConfigError(
                    f"the checkpoint was made with {len(restored.services)} services (hosts x ports), but this job has "
                    f"{dense} for dense parameters and {total - dense} for tables; resume with the ports of that job"
                )
            first = dataclasses.replace(restored, services=restored.services[:count])
            rest = dataclasses.replace(restored, services=restored.services[count:])
        own = self._dense.connect(first)
        try:
            self._client.join(self._tables.specs, self._tables.optimization)
        except PeerUnreachableError as error:
            raise PeerUnreachableError(
                f"{error}; this service must hold tables (sparse_update): {SPARSE_PORTS}"
            ) from error
        self._client.initialise(self._tables.values, rest)
        return own

    def check(self) -> None:
        """Raise the error that a heartbeat has found, if any."""
        self._dense.check()
        self._client.check()

    def start_pass(self, batch: int = 0) -> None:
        """Wait for all trainers."""
        self._dense.start_pass(batch)
        self._client.start_pass(batch)

    def announce(self, slots: Mapping[str, Argument]) -> None:
        """Make the next step fetch the rows of the batch that follows it, so that this batch needs no exchange."""
        with suppress(ConfigError, DataError):  # `prefetch` raises the error again, when it is the batch's turn
            self._expected = _NextBatch(slots, self._tables.find(slots))

    def prefetch(self, slots: Mapping[str, Argument]) -> None:
        """Fetch the rows that a batch uses, unless the last step has fetched them.

        Raises: ConfigError, DataError: see `RowFinder.find`.
        """
        fetched, self._fetched = self._fetched, None
        if fetched is not None and fetched.slots is slots:
            self._tables.rows = fetched.rows
        else:
            self._tables.rows = self._tables.find(slots)
            self._client.pull(self._tables.rows, self._tables.list_values())
        if self._shrink > 0:
            self._tables.shrink(self._shrink, only_rows=True)

    def begin_step(self, samples: int) -> OnFinal | None:
        """Push the dense gradients as they become complete."""
        push = self._dense.begin_step(samples)
        if push is None:
            return None
        return lambda start: push(max(start - self._tables.size, 0))

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Push all gradients, and pull the dense values, and the rows of the next batch if it is known."""
        tables, following, self._expected = self._tables, self._expected, None
        wanted = None if following is None else WantedRows(following.rows, tables.list_values())
        self._client.begin_push_rows(tables.rows, tables.list_gradients(), samples, wanted=wanted)
        is_due = self._dense.step(samples, checkpoint)
        self._client.collect()
        self._fetched = following
        return is_due

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """Send this trainer's state. Trainer 0 collects the states of all trainers and of all services."""
        # The states of the tables are collected first, because the dense services may answer only after trainer 0 has
        # the states of all trainers.
        tables, dense = self._client.gather_checkpoint(None), self._dense.gather_checkpoint(own)
        if dense is None or tables is None:
            return None
        return dataclasses.replace(dense, services=[*dense.services, *tables.services])

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Wait for the trainers that still have batches."""
        self._client.begin_end_of_pass()
        self._dense.finish_pass(own)
        self._client.collect()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A context with all rows of the servers. After the context the next batch fetches its own rows again."""
        self._fetched = None  # the averages replace these rows
        with self._dense.averaged():
            self._client.fetch(self._tables.values)
            if self._shrink > 0:
                self._tables.shrink(self._shrink, only_rows=False)
            yield

    def finish(self) -> None:
        """Tell the servers that this trainer has finished."""
        self._client.goodbye()
        self._dense.finish()

    def abort(self, reason: str) -> None:
        """Send the servers the reason why this trainer leaves."""
        self._client.abort(reason)
        self._dense.abort(reason)


@dataclasses.dataclass(frozen=True)
class _NextBatch:
    """The batch that follows a step, and the rows of each table that it uses."""

    slots: Mapping[str, Argument]
    rows: list[RowIds]


def _matrix(parameter: Parameter, flat: Array) -> Array:
    return flat.reshape(-1, parameter.row_width)


def _refuse_hooks(parameters: Sequence[Parameter]) -> None:
    for parameter in parameters:
        if parameter.config.update_hooks:
            raise ConfigError(
                f"parameter {parameter.name} has sparse_update and an update hook, which cannot be combined on "
                "parameter servers; take one of them out of its ParamAttr"
            )

"""The trainer's side of sparse services: rows are pulled before a batch and their gradients pushed after it.

    client = SparseClient(services, trainer_id=1, num_trainers=2)
    client.join(parameters, optimization)                    # tables: parameters with sparse_update
    client.initialise(values)
    for each pass:
        client.start_pass()
        client.pull(rows, tables)                            # before a batch
        client.begin_push_rows(rows, gradients, samples)
        client.collect()
        client.begin_end_of_pass()
        client.collect()
    client.fetch(values)                                     # all rows, to test or to save
    client.goodbye()

For a batch, only its rows, their numbers and their gradients are transferred. If the rows of the next batch are already
known at a push, `begin_push_rows` asks for them, and the next batch needs no `pull`: one exchange instead of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle_base.kernels.row_arrays import TableRows
from paddle_base.kernels.tables import RowIds
from pserver.client.client import BaseClient
from pserver.client.membership import ClientOptions, ModelSetup
from pserver.client.server_channel import ServiceRequest
from pserver.client.sparse_rows import PackedRows, PullRows, RowInboxes, SendRows, SparseRows, WantedRows, name_places
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store.model_setup import describe_setup
from pserver.store.snapshot import CheckpointState
from pserver.wire.protocol import Fetch, MessageFlag, Op


class SparseClient(BaseClient):
    """A trainer's connection to all sparse services of a job.

    Args: see `BaseClient`. For errors and thread safety, see `Client`.
    """

    def __init__(
        self, services: Sequence[tuple[str, int]], options: ClientOptions | None = None, **fields: Any
    ) -> None:
        super().__init__(services, options, **fields)
        self._rows, self._inboxes = SparseRows((), len(services)), RowInboxes()

    def join(self, parameters: Sequence[ParameterSpec], optimization: Optimization) -> None:
        """Connect to every service and register as this trainer.

        Raises: see `Client.join`.
        """
        self._rows = SparseRows(parameters, len(self.member.services))
        model = ModelSetup(list(parameters), describe_setup(parameters, optimization) | {"by_rows": True})
        self._join(model, optimization, self._rows.lay_out())

    def initialise(self, values: Array, restored: CheckpointState | None = None) -> Any:
        """Send trainer 0's rows to the servers; the other trainers wait until the rows are sent.

        The other trainers receive no rows, because rows are fetched when they are used. Fetching all rows now would
        update lazy rows once more than necessary. Args, Returns, Raises: see `Client.initialise`.
        """
        if self.member.options.trainer_id == 0:
            self.send_initial_values(values, restored)
            return None if restored is None else restored.trainers[0]
        request = ServiceRequest(Op.FETCH, "wait for the initial values", Fetch.INITIAL)
        self.request(request)
        return next((note["own"] for note in request.notes.values() if "own" in note), None)

    def pull(self, rows: Sequence[RowIds], tables: Sequence[Array], *, in_place: bool = True) -> None:
        """Fetch the values that rows have after the last step.

        Args: rows: the row numbers of each table, ascending. tables: the target arrays. If `in_place`, row r of table k
            is stored in tables[k][r]; otherwise row rows[k][i] is stored in tables[k][i].
        """
        targets = self._aim(WantedRows(rows, tables, in_place=in_place))
        packed = self._rows.pack(self.channels, (), targets)
        doing = f"pull the rows of batch {self._batch + 1} of pass {self._passes}"
        self.request(PullRows(Op.FETCH, doing, packed, targets, self._inboxes, argument=Fetch.ROWS))

    def _aim(self, wanted: WantedRows) -> list[TableRows]:
        """Divide wanted rows among the services; the rows may be known from an earlier batch with other contents."""
        self._rows.forget()
        return name_places(wanted.rows, wanted.tables, self._rows.deal(wanted.rows), in_place=wanted.in_place)

    def begin_push_rows(
        self,
        rows: Sequence[RowIds],
        gradients: Sequence[Array],
        samples: int,
        *,
        in_place: bool = True,
        wanted: WantedRows | None = None,
    ) -> None:
        """Send the gradients of the rows of a batch; `collect` waits for the step of all trainers.

        Args: rows, gradients, in_place: as `rows`, `tables` and `in_place` of `pull`. samples: see `Client.push_pull`.
            wanted: the rows that the next batch would pull. `collect` puts them into their tables with the values that
            they have after the step. Synchronous services only: in asynchronous training, the rows would be older than
            rows that are pulled before the batch.
        """
        self._batch += 1
        doing = f"push batch {self._batch} of pass {self._passes}"
        pushed = name_places(rows, gradients, self._rows.deal(rows), in_place=in_place)
        if wanted is None:
            packed = self._rows.pack(self.channels, pushed)
            self.begin_all(SendRows(Op.PUSH, doing, packed, samples=samples))
            return
        targets = self._aim(wanted)
        packed, flags = self._rows.pack(self.channels, pushed, targets), MessageFlag.ROWS
        self.begin_all(PullRows(Op.PUSH, doing, packed, targets, self._inboxes, samples=samples, flags=flags))

    def fetch(self, values: Array) -> None:
        """Fetch all rows of all tables in place; the rows are averages if the config enables averaging.

        Shapes: values: all tables, one after the other.
        """
        kind = Fetch.AVERAGES if self._optimization.average_window > 0 else Fetch.CURRENT
        self.fetch_vector("fetch all rows", kind, values)

    def save(self, directory: str) -> None:
        """Make every service write its rows into its file in a directory.

        The rows are averages if the config enables averaging.

        Raises: VolumeError: a service cannot write its file.
        """
        self.request(ServiceRequest(Op.SAVE, f"save tables to {directory}", note={"directory": directory}))

    def load(self, directory: str) -> None:
        """Make every service read its rows from its file in a directory, before the first pass.

        Raises: MissingInputError: a service cannot read its file. DataError: the file does not contain the rows of the
            service.
        """
        self.request(ServiceRequest(Op.LOAD, f"load tables from {directory}", note={"directory": directory}))

    def begin_end_of_pass(self) -> None:
        """Report that this trainer has no more batches in this pass. Later steps of the pass do not wait for it.

        `collect` waits for the trainers that still have batches; no rows are transferred.
        """
        self.begin_all(ServiceRequest(Op.FINISH_PASS, f"finish pass {self._passes}"))
        self._passes += 1

    def pack(self, rows: Sequence[RowIds], gradients: Sequence[Array]) -> PackedRows:
        """Return an array for each service, with the numbers and the gradients of the service's rows of a batch.

        Shapes: row r of table k has its gradient in gradients[k][r].
        """
        return self._rows.pack(self.channels, name_places(rows, gradients, self._rows.deal(rows), in_place=True))

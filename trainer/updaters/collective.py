"""The updater of --collective jobs: an all-reduce adds the gradients of all trainers in each step.

Every trainer has the whole optimiser. The gradients are added in the order of the trainers' ranks, as on parameter
servers. Therefore all trainers compute equal values, which also equal the values of a job with servers. The all-reduce
also adds three counts of a step: the samples, the trainers that request a checkpoint, and the trainers with a batch. A
trainer whose data ends earlier takes part with zeros until no trainer has a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.processor.thread_pool import SINGLE_THREAD, ThreadPool
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.membership import WORKER
from pserver.optim.settings import Array, Optimization
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.encoding import decoding
from trainer.arrays.parameters import ParameterTable
from trainer.flags import Values
from trainer.storage.model_files import SaveTables
from trainer.updaters.local import MASKS, LocalUpdater, Updater
from trainer.updaters.optimizer_settings import Sending, has_sparse_rows


class StepTotals(NamedTuple):
    """The sums over all trainers in a step.

    `wanting`: number of trainers that request a checkpoint. `active`: number of trainers with a batch.
    """

    samples: int
    wanting: int
    active: int


class CollectiveUpdater(LocalUpdater):
    """The optimiser of every trainer of a job without servers. `operations.init` must have been called.

    Raises: ConfigError: parameters have sparse updates, which need servers.
        HorovodInternalError: a trainer is lost. All methods except the constructor may raise this error.
    """

    def __init__(self, table: ParameterTable, optimization: Optimization, pool: ThreadPool = SINGLE_THREAD) -> None:
        names = [parameter.name for parameter in table.tables()]
        if names or has_sparse_rows([parameter.spec() for parameter in table]):
            raise ConfigError(
                f"sparse_update of {', '.join(names) or 'a parameter'} cannot be used with --collective; train with "
                "parameter servers, or leave sparse_update out of its ParamAttr"
            )
        if optimization.is_asynchronous:
            raise ConfigError("settings: is_async=True cannot be used with --collective; train with parameter servers")
        super().__init__(table, optimization, pool=pool, per_parameter=True)
        # the sums have a separate array, because the table records which gradients this trainer has touched
        self._sums: Array = np.zeros_like(table.peek_gradients())

    def connect(self, restored: CheckpointState | None = None) -> dict[str, Any] | None:
        """Take the values of trainer 0, or resume from its checkpoint.

        Raises: ConfigError: the checkpoint does not fit this job.
        """
        rank = operations.rank()
        if rank == 0 and restored is not None and len(restored.services) != 1:
            raise ConfigError(
                f"the checkpoint was made with {len(restored.services)} services of parameter servers; resume without "
                "--collective, and with as many services"
            )
        given = None
        if rank == 0 and restored is not None:
            part = restored.services[0]
            given = {"counters": part.counters, "arrays": dict(part.arrays), "trainers": restored.trainers}
        given = operations.broadcast_object(given, 0, "checkpoint")
        if given is None:
            operations.broadcast_(self._table.values, 0, "values")
            self.pruning.start()
            return None
        self.put_back(Part(given["counters"], given["arrays"]))
        trainers = given["trainers"]
        own: dict[str, Any] | None = trainers[rank] if rank < len(trainers) else None
        if own is not None:
            with decoding("masks"):
                self.pruning.go_on(own.get(MASKS, {}))
        return own

    def start_pass(self, batch: int = 0) -> None:
        """Wait for all trainers."""
        operations.barrier()

    def step(self, samples: int, checkpoint: bool = False) -> bool:
        """Take one step with the gradients of all trainers. Return whether all trainers now make a checkpoint.

        A trainer whose data has ended cannot make a checkpoint. All trainers then ignore a request for a checkpoint.
        """
        self.pruning.mask_gradients()
        totals = self._add_up(self._table.gradients, StepTotals(samples, int(checkpoint), 1))
        self.apply(self._sums, totals.samples)
        return bool(totals.wanting) and totals.active == operations.size()

    def finish_pass(self, own: dict[str, Any] | None = None) -> None:
        """Take part in the steps of the trainers that still have batches, then end the pass."""
        while True:
            self._sums[:] = 0
            totals = self._add_up(self._sums, StepTotals(0, 0, 0))
            if not totals.active:
                break
            self.apply(self._sums, totals.samples)
        super().finish_pass()

    def _add_up(self, gradients: Array, own: StepTotals) -> StepTotals:
        """Add the gradients and the counts of all trainers."""
        if gradients is not self._sums:
            self._sums[:] = gradients
        sums = operations.allreduce_async_(self._sums, name="gradients", op=operations.Sum)
        counts = operations.allreduce_async(np.array(own, np.int64), name="counts", op=operations.Sum)
        operations.synchronize(sums)
        return StepTotals(*operations.synchronize(counts).tolist())

    def gather_checkpoint(self, own: dict[str, Any]) -> CheckpointState | None:
        """In trainer 0, return the state of the job. All other trainers send their own state, and return None."""
        trainers = operations.allgather_object({**own, MASKS: self.pruning.state()}, "trainers")
        return CheckpointState([self.take()], trainers) if operations.rank() == 0 else None

    def finish(self) -> None:
        """Wait until all trainers have ended their training, and leave the group."""
        operations.barrier()
        operations.shutdown()

    def abort(self, reason: str) -> None:
        """Leave the group. The other trainers detect in their next step that this trainer has left."""
        operations.shutdown()


class CollectiveTrainers:
    """Create the updater of a job whose trainers are the workers of `paddle elastic run`.

    Attributes: updater: the class of the updater.
    """

    save_tables: SaveTables | None = None
    updater: type[CollectiveUpdater] = CollectiveUpdater

    def __init__(self, flags: Values) -> None:
        self._flags = flags

    def find_trainers(self) -> None:
        """Do nothing, because `paddle elastic run` has told the number of trainers."""

    def load_tables(self, model: str) -> None:
        """Return at once: there are no tables."""

    def make_updater(
        self, model: ModelConfig, table: ParameterTable, optimization: Optimization, sending: Sending, pool: ThreadPool
    ) -> Updater:
        """Return the updater.

        Raises: ConfigError: the config needs parameter servers.
        """
        if sending != Sending():
            raise ConfigError(
                "settings: num_batches_per_send_parameter and num_batches_per_get_parameter are for parameter servers; "
                "with --collective they must be 1"
            )
        return self.updater(table, optimization, pool)

    def end(self) -> None:
        """Leave the group, if the updater has not left it already."""
        operations.shutdown()


def join_workers(flags: Values) -> bool:
    """Join the job that the environment describes. The job gives this trainer its id and the number of trainers.

    Returns: whether the workers of the job may join and leave.
    Raises: ConfigError, PeerUnreachableError, HorovodInternalError: the job cannot be joined.
    """
    operations.init()
    flags.number_trainer(operations.rank(), operations.size())
    return WORKER.settings.is_elastic

"""The loop of `SGD.train` among workers that come and go: each worker trains its share of each batch."""

from __future__ import annotations

import zlib
from typing import Any, cast

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.elastic.errors import HostsUpdatedInterrupt
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.state import run
from trainer.collective.divided_source import seed_generators, seed_of_pass
from trainer.collective.state import TrainingState
from trainer.collective.updater import DividedUpdater
from trainer.evaluators import Accumulator
from trainer.training.position import BEFORE, INSIDE, Position
from trainer.v2 import events
from trainer.v2.jobs.parts import Part
from trainer.v2.loop import Reader, TrainingLoop, check_batch
from trainer.v2.process import process


class DividedLoop(TrainingLoop):
    """One call of `SGD.train`, which is the only one of its program.

    The reader yields the same batches in every worker. The states of the modules `random` and `numpy.random` are those
    of the number of the pass when the reader is called. After the loss of a worker the others go back to their last
    commit, and the handler gets the events since then again. A worker that joins begins inside a pass, and drops the
    batches that the others have trained.

    Attributes: seed: of the order of samples.
    """

    seed = 0

    def run(self, reader: Reader, num_passes: int) -> None:
        """Train all passes. Raises: see `SGD.train`. RemovedFromJobError: the job goes on without this worker."""
        if self._checkpoints.is_on:
            raise ConfigError(
                "checkpoint_dir: workers that come and go keep their state in memory; leave it out, or --min-np, "
                "--max-np and --host-discovery-script of paddle elastic run"
            )
        if self._session.is_connected:
            raise ConfigError(
                "a program among workers that come and go calls train once, because a worker that joins cannot know "
                "which call the others are in; call it with all passes"
            )
        self._session.connect()
        self.seed = process().seed
        position, whole = Position(0), Accumulator(self._session.evaluators)
        state = TrainingState(self._session, self, position, {"pass": whole}, process().flags.number_trainer)

        def train(state: TrainingState) -> None:
            glog.info(f"worker {operations.rank()} of {operations.size()} goes on before {position}")
            while position.number < num_passes:
                self._run_divided_pass(state, reader, whole)

        run(train)(state)

    def _run_divided_pass(self, state: TrainingState, reader: Reader, whole: Accumulator) -> None:
        position = state.position
        number = position.number
        if position.stage == BEFORE:
            whole.reset()
            self._handler(events.BeginPass(number))
            position.stage = INSIDE
        self._session.updater.set_pass(number)
        seed_generators(seed_of_pass(self.seed, number))
        is_same = False  # whether the workers have the same samples
        with Part(number) as part:
            for batch in self._read(reader, part, number, position.batches):
                is_same = is_same or check_samples(batch, number)
                self._run_share(state, batch, part, whole)
        self._end_pass(position, whole)
        operations.barrier()  # no worker goes on before all handlers have tested and saved
        position.begin_next_pass()
        state.save()

    def _run_share(self, state: TrainingState, batch: Any, part: Part, whole: Accumulator) -> None:
        """Train the share of this worker, and commit the state if a commit is due.

        Raises: HostsUpdatedInterrupt: the driver has told a worker that the hosts have changed.
        """
        position, updater = state.position, cast("DividedUpdater", self._session.updater)
        place, count = (position.number, position.batches), len(batch)
        check_batch(batch, "pass {}, batch {}".format(*place))
        rank, size = operations.rank(), operations.size()
        share = batch[count * rank // size : count * (rank + 1) // size]
        has_news = state.has_news()
        updater.expect(count)
        self._handler(events.BeginIteration(*place))
        if len(share):
            result, is_changed = self._step(share, place, part, is_wanted=has_news)
        else:  # the batch has fewer samples than there are workers
            self._session.table.clear_gradients()
            result, is_changed = None, self._session.update(0, checkpoint=has_news)
        position.batches += 1
        if result is not None:
            self._tell_end(position, result, whole)
        if is_changed or position.batches % process().flags.commit_period_by_batches == 0:
            state.save()
        self._leave()
        if is_changed:
            raise HostsUpdatedInterrupt


def check_samples(batch: Any, number: int) -> bool:
    """Compare the first sample of a batch with that of the other workers. Each worker calls this with the same batch.

    Raises: DataError: the samples differ.
    """
    own = zlib.crc32(repr(batch[:1]).encode())
    found = operations.allgather_object(own, "sample")
    if found != [own] * len(found):
        raise DataError(
            f"the workers have different batches in pass {number}: workers that come and go divide each batch, so "
            "the reader must yield the same batches in all of them; or leave out --min-np, "
            "--max-np and --host-discovery-script of paddle elastic run, and let each worker read its own samples"
        )
    return True

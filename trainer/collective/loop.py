"""Train a job whose trainers join and leave, inside the loop of `paddle_cluster.elastic.state`.

When a trainer is lost, the remaining trainers return to their last commit. When a host joins or leaves, all trainers
react at the same time, after the current batch. The committed state includes the position in the pass. Every sample of
a pass therefore changes the parameter values exactly once. At the end of a pass trainer 0 saves and tests, and the
other trainers wait for it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import cast

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.saves import pass_name
from paddle_cluster.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.state import run
from trainer.collective.divided_source import BatchShare, DividedSource
from trainer.collective.state import TrainingState
from trainer.collective.updater import DividedUpdater
from trainer.storage.save_directory import SaveDirectory
from trainer.training.loop import STEP_LIMIT_S, BatchLoop
from trainer.training.parts import Parts
from trainer.training.position import AFTER, BEFORE, INSIDE, Position
from trainer.training.stopping import Stopper


class TakenDirectory:
    """The save directory. Only the process that is trainer 0 at the moment uses the directory.

    Args: shown: the name that the flags or the config give the directory. first_model: the init_model_path of the
        config, or "".
    """

    def __init__(self, directory: SaveDirectory, shown: str, first_model: str) -> None:
        self._directory, self._shown, self._first_model = directory, shown, first_model
        self._is_taken = False

    def take(self) -> None:
        """Take the directory, so that only this trainer saves in it. A repeated call does nothing.

        Raises: VolumeError: the directory cannot be created or written. DirectoryInUseError: another run writes into
            the directory.
        """
        if not self._is_taken:
            self._directory.prepare(self._shown, self._first_model)
            self._is_taken = True

    def begin(self) -> None:
        """Move the saved passes of an earlier run away.

        Raises: VolumeError: the passes cannot be moved.
        """
        self._directory.begin()

    def leave(self) -> None:
        """Let another trainer save in the directory."""
        self._directory.leave()
        self._is_taken = False


class DividedTraining(BatchLoop):
    """The training of one trainer. After a signal it ends when its step is complete, and the other trainers continue.

    Raises (run): DataError: the provider raised an error, a number is not finite, or the trainers read different data.
    VolumeError: a save failed.  RemovedFromJobError: the job continues without this trainer.  StoppedError: a signal
    ended this trainer.
    """

    def __init__(self, parts: Parts, source: DividedSource, stopper: Stopper, directory: TakenDirectory) -> None:
        super().__init__(parts, stopper, Position(parts.flags.start_pass))
        self._source, self._directory = source, directory
        self._updater = cast("DividedUpdater", parts.session.updater)
        self._state = TrainingState(parts.session, source, self._position, self._log.sums, parts.flags.number_trainer)
        self._state.register_reset_callbacks([self._leave_directory])
        stopper.limit(STEP_LIMIT_S)

    def run(self) -> None:
        """Train all passes. Each batch is divided among the trainers that are in the job at that time."""
        # numpy's warnings are unnecessary, because a cost that is not finite ends the run with an error
        with np.errstate(all="ignore"):
            run(self._train)(self._state)
        self._updater.finish()

    def _train(self, state: TrainingState) -> None:
        """Train from the position in the state, until the set of trainers changes."""
        flags, position = self._flags, self._position
        if flags.trainer_id == 0 and flags.num_passes:
            self._directory.take()
        where = f"pass {position.number}, after {position.batches} batches"
        glog.info(f"trainer {flags.trainer_id} of {flags.num_gradient_servers} continues in {where}")
        try:
            while position.number < flags.start_pass + flags.num_passes:
                self._run_pass(state)
        except (HorovodInternalError, HostsUpdatedInterrupt):
            self._log.end_dots()
            raise

    def _leave_directory(self) -> None:
        """Leave the save directory, unless this trainer is trainer 0, which saves in the directory."""
        if self._flags.trainer_id:
            self._directory.leave()

    def _run_pass(self, state: TrainingState) -> None:
        position, reporter = self._position, self._parts.reporter
        glog.bind(position.number, position.batches)
        if position.stage != AFTER:
            if position.stage == BEFORE:
                self._session.network.states.restart()
                self._log.since_start.reset()
                position.stage = INSIDE
            reporter.start_pass(position.number, position.batches, self._log.since_start.samples)
            self._source.go_to(position.number, position.batches, self._parts.batch_size)
            while (share := self._wait_for(self._next_share)) is not None:
                self._run_batch(state, share)
            self._session.finish_pass()
            position.stage = AFTER
            state.save()  # if trainer 0 is lost while it saves the pass, another process becomes trainer 0 and saves it
        self._finish_pass()
        operations.barrier()  # the barrier ends when trainer 0 has saved the pass
        position.begin_next_pass()
        state.save()
        reporter.show()

    def _next_share(self) -> BatchShare | None:
        flags, position = self._flags, self._position
        share = self._source.next_share(self._parts.batch_size, flags.trainer_id, flags.num_gradient_servers)
        is_first = (position.number, position.batches, flags.trainer_id) == (flags.start_pass, 0, 0)
        if share is not None and is_first:
            self._directory.begin()
        return share

    def _run_batch(self, state: TrainingState, share: BatchShare) -> None:
        """Train on a share of a batch. Commit the state if a commit is due.

        Raises: HostsUpdatedInterrupt: the driver of `paddle elastic run` has notified a trainer of a change of hosts.
        """
        position = self._position
        has_news = state.has_news()
        self._updater.expect(share.whole)
        result = None
        if share.samples:
            result = self._compute(share.slots, share.samples)
        else:  # the batch has fewer samples than there are trainers
            self._session.table.clear_gradients()
        with self._stopper:
            is_changed = self._session.update(share.samples, checkpoint=has_news)
            self._count(result)
        self._write()
        position.is_due = False
        if is_changed or position.batches % self._flags.commit_period_by_batches == 0:
            state.save()
        if is_changed:
            raise HostsUpdatedInterrupt

    # ----- The end of a pass

    def _finish_pass(self) -> None:
        position, flags = self._position, self._flags
        self._log.end_dots()
        self._report_pass()
        if flags.trainer_id:
            return
        is_saved = position.number % flags.saving_period == 0
        with self._saves.before_test(pass_name(position.number), position) if is_saved else nullcontext():
            self._test(self._stopper.hold_at_ends(self._updater.averaged()))

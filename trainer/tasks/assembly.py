"""Assemble a session that trains tasks. It has its own kind of updater and of data source, and its own way to save."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.recordio.index import name_chunks
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.health.liveness import LIVENESS
from trainer.arrays.rng import Stream
from trainer.data.loading import open_provider
from trainer.data.task_source import TaskSource
from trainer.flags import Values
from trainer.tasks.job_end import JobOverError, tell_end
from trainer.tasks.joining import TaskJob, check_entries, digest_config, join_job, open_job
from trainer.tasks.loop import BATCH_LIMIT_S, TaskTraining
from trainer.telemetry.reporter import Reporter, find_task_target
from trainer.training.assembly import Assembly, log_providers
from trainer.training.parts import NO_TRAINING_DATA, Parts
from trainer.training.stopping import STOPPER
from trainer.updaters.local import leaving_after_errors
from trainer.updaters.optimizer_settings import Sending, refuse_own_steps
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.servers import TaskServers
from trainer.updaters.tasks.updater import TaskUpdater


class TaskAssembly(Assembly):
    """Build the training of a trainer whose tasks a master assigns."""

    def __init__(self, flags: Values) -> None:
        self._source: TaskSource | None = None
        self._job: TaskJob | None = None
        super().__init__(flags)
        self.number, self._look = None, look

    def _make_servers(self) -> None:
        return None

    def _make_updater(self) -> TaskUpdater:
        config = self._config
        digest = digest_config(config, is_own=bool(self._path))
        self._job = job = open_job(self._flags, os.environ, digest, look, self._begin_directory)
        refuse_own_steps(config.opt_config)
        self._warn_of_settings(Sending())
        servers = TaskServers(job.registry, job.membership)
        return TaskUpdater(config.model_config, self._table, self._optimization, servers)

    def _open_training(self, data: DataConfig, stream: Stream, check: Callable[[], None]) -> None:
        log_providers(data)
        opened = open_provider(data, self._list_inputs()[0], is_train=True, is_own=bool(self._path))
        self._source = TaskSource(opened, self._make_streams(stream), check)

    def _make_reporter(self, save_dir: str) -> Reporter:
        return Reporter()  # a reporter without files, which is used until the master has assigned a number

    def _start(self, parts: Parts) -> TaskTraining | None:
        """Join the job, and connect to its servers.

        Raises: DataError: the job is over, and it has failed or has discarded tasks.
        """
        job, source = self._job, self._source
        assert job is not None  # `_make_updater` has opened it
        self._fill_parameters(parts)
        if source is None:
            raise ConfigError(NO_TRAINING_DATA)
        check_entries(source.entries, self._config.data_config.files)
        self._directory.prepare(parts.save_dir, self._config.init_model_path)
        offer = list(name_chunks(source.entries))
        STOPPER.limit(BATCH_LIMIT_S)
        with STOPPER:  # the error of a signal is held back until `look` is called
            try:
                first_pass = join_job(job, self._flags, offer)
            except JobOverError as over:
                tell_end(over.end)
                return None
            self.number = job.master.number
            parts = replace(parts, reporter=self._make_task_reporter(parts.save_dir, job))
            training = TaskTraining(parts, source, STOPPER, job.master, first_pass=first_pass)
            with leaving_after_errors(parts.session.updater):
                try:
                    parts.session.connect()
                except TaskTakenError as error:  # the job is over; the next request to the master reports its end
                    glog.info(str(error))
        return training

    def _make_task_reporter(self, save_dir: str, job: TaskJob) -> Reporter:
        number, passes = job.master.number, job.master.num_passes
        target = find_task_target(save_dir, number, os.environ) if self._keeps_records() else None
        return Reporter(target, passes, self._flags.progress_period, in_tasks=True)

    def _begin_directory(self) -> None:
        """Move the passes of an earlier run away, after a look at the data: the provider may have a fault."""
        if self._directory.has_earlier and self._source is not None:
            self._source.look(self._config.opt_config.batch_size)
        self._directory.begin()

    def end(self) -> None:
        """Leave the job, if the trainer has not left it already."""
        super().end()
        # A signal may have interrupted a call that holds a lock of the client. `leave` could then block for ever, so it
        # is not called, and the master removes the trainer when the trainer's lease expires.
        if self._job is not None and STOPPER.is_clean:
            self._job.close(leaves=True)


def look() -> None:
    """Record that this trainer is alive. End its wait if a signal has arrived.

    Raises: StoppedError: a signal has arrived.
    """
    LIVENESS.turn()
    STOPPER.leave()

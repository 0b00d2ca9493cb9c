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
from trainer.data.source import BatchSource
from trainer.data.task_source import TaskSource
from trainer.flags import Values
from trainer.tasks.job_end import EndedTraining, JobOverError
from trainer.tasks.joining import TaskJob, check_entries, digest_config, join_job, open_job
from trainer.tasks.loop import BATCH_LIMIT_S, TaskTraining
from trainer.telemetry.description import describe_run
from trainer.telemetry.legacy_words import AT
from trainer.telemetry.reporter import Reporter, find_task_target
from trainer.training.assembly import Assembly, warn_of_test_flags
from trainer.training.parts import NO_TRAINING_DATA, TrainingSession
from trainer.training.stopping import STOPPER
from trainer.updaters.local import Updater
from trainer.updaters.optimizer_settings import Sending, refuse_own_steps
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.updaters.tasks.servers import TaskServers
from trainer.updaters.tasks.updater import TaskUpdater


class TaskAssembly(Assembly):
    """Build the session of a trainer whose tasks a master assigns."""

    def __init__(self, flags: Values) -> None:
        self._source: TaskSource | None = None
        self._job: TaskJob | None = None
        self._number: int | None = None
        super().__init__(flags)

    def training(self) -> tuple[TrainingSession, Updater, Reporter]:
        """Join the job, and connect the updater. Return the training session, the updater and the reporter.

        An error in the user's config is raised before this method waits for another program.
        """
        self._log_mode()
        config = self._config
        digest = digest_config(config, is_own=bool(self._path))
        self._job = job = open_job(self._flags, os.environ, digest, look, self._begin_directory)
        refuse_own_steps(config.opt_config)
        self._warn_of_settings(Sending())
        servers = TaskServers(job.registry, job.membership)
        updater = TaskUpdater(config.model_config, self._table, self._optimization, servers)
        parts = self._make_parts(updater, look)
        warn_of_test_flags(self._flags, config)
        self._fill_parameters(parts)
        if self._source is None:
            raise ConfigError(NO_TRAINING_DATA)
        check_entries(self._source.entries, config.data_config.files)
        self._directory.prepare(parts.save_dir, config.init_model_path)
        offer = list(name_chunks(self._source.entries))
        STOPPER.limit(BATCH_LIMIT_S)
        with STOPPER:  # the error of a signal is held back until `look` is called
            try:
                first_pass = join_job(job, self._flags, offer)
            except JobOverError as over:
                return EndedTraining(over.end), updater, parts.reporter
            self._number = job.master.number
            parts = replace(parts, reporter=self._make_task_reporter(parts.save_dir, job))
            session = TaskTraining(parts, self._source, STOPPER, job.master, first_pass=first_pass)
            _connect(updater)
        facts = describe_run(self._flags, config, self._table) | {"passes": job.master.num_passes}
        parts.reporter.start(writes=True, **session.place(), **facts)
        return session, updater, parts.reporter

    def end(self) -> None:
        """Leave the job, if the trainer has not left it already."""
        super().end()
        # A signal may have interrupted a call that holds a lock of the client. `leave` could then block for ever, so it
        # is not called, and the master removes the trainer when the trainer's lease expires.
        if self._job is not None and STOPPER.is_clean:
            self._job.close(leaves=True)

    @property
    def number(self) -> int | None:
        """The number that the master has assigned to this trainer, or None before that."""
        return self._number

    def _make_task_reporter(self, save_dir: str, job: TaskJob) -> Reporter:
        number, passes = job.master.number, job.master.num_passes
        target = find_task_target(save_dir, number, os.environ) if self._keeps_records() else None
        return Reporter(target, passes, self._flags.progress_period, in_tasks=True)

    def _make_servers(self) -> None:
        return None

    def _make_reporter(self, save_dir: str) -> Reporter:
        return Reporter()  # a reporter without files, which is used until the master has assigned a number

    def _begin_directory(self) -> None:
        """Move the passes of an earlier run away, after a look at the data: the provider may have a fault."""
        if self._directory.has_earlier and self._source is not None:
            self._source.look(self._config.opt_config.batch_size)
        self._directory.begin()

    def _begin(self, reporter: Reporter) -> None:
        """Do nothing. The trainer that sends the initial values moves the passes of an earlier run away."""

    def _open(
        self, data: DataConfig, stream: Stream, check: Callable[[], None], *, is_train: bool
    ) -> BatchSource | None:
        """Open the test data as `Assembly` does. Open the training data as a source of tasks."""
        if not is_train or not data.type:
            return super()._open(data, stream, check, is_train=is_train)
        glog.info(f"loading dataprovider {data.load_data_module}::{data.load_data_object}", at=AT["provider"])
        opened = open_provider(data, self._list_inputs()[0], is_train=True, is_own=bool(self._path))
        self._source = TaskSource(opened, self._make_streams(stream), check)
        return None


def look() -> None:
    """Record that this trainer is alive. End its wait if a signal has arrived.

    Raises: StoppedError: a signal has arrived.
    """
    LIVENESS.turn()
    STOPPER.leave()


def _connect(updater: TaskUpdater) -> None:
    """Connect to the servers. If the job is over, only log this; the next request to the master reports the end."""
    try:
        updater.connect()
    except TaskTakenError as error:
        glog.info(str(error))
    except BaseException as error:
        updater.abort(str(error) or type(error).__name__)
        raise

"""Assemble the training session of a trainer in a job whose trainers join and leave.

The session reads its data from a `DividedSource`, and updates the parameters by a `DividedUpdater`.
"""

from __future__ import annotations

from collections.abc import Callable

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, UsageError
from trainer.arrays.rng import Stream
from trainer.collective.divided_source import DividedSource, seed_generators
from trainer.collective.loop import DividedTraining
from trainer.collective.updater import DividedTrainers, DividedUpdater
from trainer.data.loading import open_provider
from trainer.data.older import multi
from trainer.data.source import BatchSource
from trainer.flags import FLAGS, Values
from trainer.storage.save_directory import SaveDirectory
from trainer.telemetry.description import describe_run
from trainer.telemetry.legacy_words import AT
from trainer.telemetry.reporter import Reporter
from trainer.training.assembly import Assembly, warn_of_test_flags
from trainer.training.parts import NO_TRAINING_DATA, TrainingSession
from trainer.training.stopping import STOPPER
from trainer.updaters.local import Updater

_COMMITS = "the trainers keep their state in memory and resume from it; --start_pass resumes from the save of a pass"
_ONE_SAVES = "trainer 0 saves and tests at the end of a pass"
# flag -> the reason why it cannot be used with trainers that join and leave
STATIC_ONLY = {
    "resume_from": _COMMITS,
    "checkpoint_period_by_batches": _COMMITS,
    "checkpoint_period_seconds": _COMMITS,
    "saving_period_by_batches": _ONE_SAVES,
    "test_period": _ONE_SAVES,
    "prev_batch_state": "another trainer may have the next batch of a sequence",
}


class DividedAssembly(Assembly):
    """Build the session of one trainer of a job whose trainers join and leave.

    Raises: UsageError: a flag cannot be used with trainers that join and leave.
    """

    def __init__(self, flags: Values) -> None:
        check_flags(flags)
        self._source: DividedSource | None = None
        super().__init__(flags)

    def training(self) -> tuple[TrainingSession, Updater, Reporter]:
        """Return the training session, its updater and its reporter."""
        self._log_mode()
        updater = self._make_updater()
        assert isinstance(updater, DividedUpdater)
        parts = self._make_parts(updater, updater.check)
        warn_of_test_flags(self._flags, self._config)
        self._fill_parameters(parts)
        if self._source is None:
            raise ConfigError(NO_TRAINING_DATA)
        parts.session.connect()
        directory = TakenDirectory(self._directory, parts.save_dir, self._config.init_model_path)
        session = DividedTraining(parts, self._source, STOPPER, directory)
        parts.reporter.start(writes=True, **session.place(), **describe_run(self._flags, self._config, self._table))
        return session, updater, parts.reporter

    def _make_servers(self) -> DividedTrainers:
        return DividedTrainers(self._flags)

    def _make_reporter(self, save_dir: str) -> Reporter:
        # no trainer writes records: a trainer's number changes, so two trainers would write the same files
        flags = self._flags
        return Reporter(None, flags.start_pass + flags.num_passes, flags.progress_period)

    def _keeps_records(self) -> bool:
        return False

    def _begin(self, reporter: Reporter) -> None:
        """Do nothing. When the job begins, trainer 0 moves the saved passes of an earlier run away."""

    def _open(
        self, data: DataConfig, stream: Stream, check: Callable[[], None], *, is_train: bool
    ) -> BatchSource | None:
        """Open the test data as `Assembly` does. Open the training data as a source that trainers divide."""
        if not is_train or not data.type:
            return super()._open(data, stream, check, is_train=is_train)
        if data.type == multi.KIND:
            raise ConfigError("MultiData cannot be used with trainers that come and go; train without --min-np")
        glog.info(f"loading dataprovider {data.load_data_module}::{data.load_data_object}", at=AT["provider"])
        seed_generators(self._seed)  # an init_hook then shuffles in the same way in every process
        opened = open_provider(data, self._list_inputs()[0], is_train=True, is_own=bool(self._path))
        self._source = DividedSource(opened, self._seed, check, data.files)
        return self._source


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


def check_flags(flags: Values) -> None:
    """Check that the flags can be used with trainers that join and leave.

    Raises: UsageError: the text names a flag that cannot be used.
    """
    for flag in (FLAGS[name] for name in STATIC_ONLY if name in flags.given):
        value = getattr(flags, flag.name)
        if value != flag.default:
            raise UsageError(
                f"--{flag.name}={value} cannot be used with trainers that come and go: {STATIC_ONLY[flag.name]}; leave "
                "it out, or --min-np, --max-np and --host-discovery-script of paddle elastic run"
            )

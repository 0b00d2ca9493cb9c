"""Assemble the training session of a trainer in a job whose trainers join and leave.

The session reads its data from a `DividedSource`, and updates the parameters by a `DividedUpdater`.
"""

from __future__ import annotations

from collections.abc import Callable

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.runtime.errors import ConfigError, UsageError
from trainer.arrays.rng import Stream
from trainer.collective.divided_source import DividedSource, seed_generators
from trainer.collective.loop import DividedTraining, TakenDirectory
from trainer.collective.updater import DividedTrainers
from trainer.data.loading import open_provider
from trainer.data.older import multi
from trainer.flags import FLAGS, Values
from trainer.training.assembly import Assembly, log_providers
from trainer.training.parts import NO_TRAINING_DATA, Parts
from trainer.training.stopping import STOPPER

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

    def _make_servers(self) -> DividedTrainers:
        return DividedTrainers(self._flags)

    def _keeps_records(self) -> bool:
        return False  # a trainer's number changes, so two trainers would write the same files

    def _open_training(self, data: DataConfig, stream: Stream, check: Callable[[], None]) -> DividedSource:
        if data.type == multi.KIND:
            raise ConfigError("MultiData cannot be used with trainers that come and go; train without --min-np")
        log_providers(data)
        seed_generators(self._seed)  # an init_hook then shuffles in the same way in every process
        opened = open_provider(data, self._list_inputs()[0], is_train=True, is_own=bool(self._path))
        self._source = DividedSource(opened, self._seed, check, data.files)
        return self._source

    def _start(self, parts: Parts) -> DividedTraining:
        self._fill_parameters(parts)
        if self._source is None:
            raise ConfigError(NO_TRAINING_DATA)
        parts.session.connect()
        directory = TakenDirectory(self._directory, parts.save_dir, self._config.init_model_path)
        return DividedTraining(parts, self._source, STOPPER, directory)


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

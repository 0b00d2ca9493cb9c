"""The parts of which a job of training, testing or checking consists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddle_base.runtime.errors import ConfigError
from trainer.data.source import BatchSource
from trainer.flags import Values
from trainer.session import Session
from trainer.storage.model_files import SaveTables
from trainer.telemetry.reporter import Reporter

_NAMED_BY = "give a {0}_list to define_py_data_sources2, or call {1}Data(...) in a config of the raw form"
NO_TRAINING_DATA = f"the config has no training data; {_NAMED_BY.format('train', 'Train')}"
NO_TEST_DATA = f"TestData is not specified: --job=test needs test data; {_NAMED_BY.format('test', 'Test')}"


@dataclass(frozen=True)
class Parts:
    """The parts of a job.

    Attributes: configs: the files that are copied into every pass directory, by name.  save_dir: the directory of the
        pass directories.  train, test: the data sources; None if the config has no such data.
        averages: whether the optimiser averages the values of its steps. save_tables: a function with which the
        parameter servers save the tables; None if trainer 0 saves the tables. begin: a function that moves the passes
        and records of an earlier run away. It is called before every batch and save, and only the first call has an
        effect. data_text: what to check if the training data has no sample.
    """

    flags: Values
    session: Session
    batch_size: int
    train: BatchSource | None
    test: BatchSource | None
    configs: Mapping[str, bytes]
    save_dir: str
    averages: bool = False
    save_tables: SaveTables | None = None
    reporter: Reporter = field(default_factory=Reporter)
    begin: Callable[[], None] = lambda: None
    data_text: str = "train_list and its files"

    def pass_directory(self, name: str) -> Path:
        """Return the path of a pass directory, or of a save inside a pass."""
        return Path(self.save_dir) / name

    def shown_directory(self, name: str) -> str:
        """Return the path of a pass directory as the log shows it, with `./` before a name that has no directory."""
        return f"{self.save_dir if '/' in self.save_dir else './' + self.save_dir}/{name}"

    def training_data(self) -> BatchSource:
        """Return the training data.

        Raises: ConfigError: the config has no training data.
        """
        if self.train is None:
            raise ConfigError(NO_TRAINING_DATA)
        return self.train

"""The values of all settings of the data job, and the name of the file that shows that the job is done."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from paddle_base.runtime.errors import DataError

MARKER = "prepared.json"  # the file in OUT_DIR that shows that the data set is complete


@dataclass(frozen=True)
class Settings:
    """The checked settings; OPTIONS of settings.py explains each name."""

    out_dir: Path
    require_volume: bool
    split_count: int
    shard_files: int
    data_source: str
    data_url: str
    data_sha256: str
    data_path: Path | None
    data_timeout: float
    data_encoding: str
    data_max_bytes: int
    data_max_memory: int
    csv_delimiter: str
    csv_header: str
    csv_label: str
    csv_task: str
    csv_skip: tuple[str, ...]
    csv_missing: tuple[str, ...]
    min_count: int
    max_words: int
    test_fraction: Fraction
    test_data: str
    seed: int
    synthetic_shape: str
    synthetic_rows: int
    train_config_dir: str
    examples_dir: Path
    replace_config: bool
    data_owner: tuple[int, int] | None

    def check_counts(self, training: int, test: int) -> None:
        """Check that the samples suffice for all shards; a trainer without training or test samples would fail.

        Raises: DataError: if there are too few samples; the message names the numbers of samples and of shards.
        """
        count = self.split_count
        if training < count:
            raise DataError(f"{training} training samples cannot be split into {count} shards; lower SPLIT_COUNT")
        if training < count * self.shard_files:
            parts = f"{count} x {self.shard_files} files"
            raise DataError(f"{training} training samples cannot be split into {parts}; lower SHARD_FILES")
        if self.test_data == "split" and 0 < test < count:
            raise DataError(f"{test} test samples cannot be split into {count} shards; set TEST_DATA=whole")

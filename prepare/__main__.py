"""The `prepare` command: settings -> source -> shards -> the job's directory."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType

from prepare.dataset import Dataset, Source
from prepare.digits import read_digits
from prepare.errors import DataError, MissingInputError, PrepareError, reading_input, writing_to
from prepare.log import say
from prepare.movielens import read_movielens
from prepare.settings import CONFIG_OF_SOURCE, SHAPES, Settings, read_settings
from prepare.split import Sample, deal
from prepare.synthetic import read_synthetic
from prepare.text import read_quick_start
from prepare.tree import Shard, copy_config, give_to, publish, same_files, staging, write_marker, write_shards

SOURCES: Mapping[str, Source] = MappingProxyType(
    {"digits": read_digits, "quick_start": read_quick_start, "movielens": read_movielens, "synthetic": read_synthetic}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the data job and return its exit status."""
    signal.signal(signal.SIGTERM, _stop)
    os.umask(0o002)
    try:
        prepare(read_settings(sys.argv[1:] if argv is None else argv, os.environ))
    except PrepareError as error:
        say(f"error: {error}")
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return PrepareError.exit_code
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def prepare(settings: Settings) -> None:
    """Make the job's directory as the settings say.

    Raises: PrepareError: naming what is wrong; the old directory is then still whole, or without a shard 0.
    """
    _require_example(settings)
    with staging(settings.out_dir, settings.data_owner) as directory:
        scratch = directory / "input"
        with writing_to(scratch):
            scratch.mkdir()
        with reading_input():
            dataset = SOURCES[settings.data_source](settings, scratch)
        shards = make_shards(dataset, settings)
        write_shards(directory, shards, make_common(dataset, settings))
        with writing_to(scratch):
            shutil.rmtree(scratch)
        with reading_input():
            _stage_config(settings, directory)
        write_marker(directory, describe(dataset, settings))
        give_to(settings.data_owner, directory)
        publish(directory, settings.out_dir, settings.split_count, settings.train_config_dir)
    samples = f"{len(dataset.training)} training and {len(dataset.test)} test samples"
    say(f"{settings.out_dir}: {settings.split_count} shards of {settings.data_source}, {samples}; ready")


def make_shards(dataset: Dataset, settings: Settings) -> list[Shard]:
    """Return the files that are each trainer's own.

    Raises: DataError: if there are fewer samples than shards; a trainer ends when it has none to test.
    """
    count = settings.split_count
    if len(dataset.training) < count:
        raise DataError(f"{len(dataset.training)} training samples cannot be split into {count} shards")
    if settings.test_data == "split" and 0 < len(dataset.test) < count:
        raise DataError(f"{len(dataset.test)} test samples cannot be split into {count} shards; TEST_DATA=whole can")
    shards = [{dataset.training_name: _text(samples)} for samples in deal(dataset.training, count)]
    if settings.test_data == "split" and dataset.test:
        for shard, samples in zip(shards, deal(dataset.test, count), strict=True):
            shard[dataset.test_name] = _text(samples)
    return list(shards)


def make_common(dataset: Dataset, settings: Settings) -> Shard:
    """Return the files that all trainers have alike: lists, dictionaries and, unless it is split, the test set."""
    common = {**dataset.common, "train.list": f"data/{dataset.training_name}\n".encode()}
    if dataset.test:
        common["test.list"] = f"data/{dataset.test_name}\n".encode()
        if settings.test_data == "whole":
            common[dataset.test_name] = _text(dataset.test)
    return common


def describe(dataset: Dataset, settings: Settings) -> dict[str, object]:
    """Return what `prepared.json` says about a finished set."""
    return {
        "format": 1,
        "source": settings.data_source,
        "split_count": settings.split_count,
        "training": len(dataset.training),
        "test": len(dataset.test),
        "test_data": settings.test_data,
        "seed": settings.seed,
        "config": settings.train_config_dir,
        **dataset.facts,
    }


def _text(samples: Sequence[Sample]) -> bytes:
    return "".join(f"{sample.line}\n" for sample in samples).encode()


def _require_example(settings: Settings) -> None:
    """Return unless the source's own example is to be copied and is not there; a user's own config may come later.

    Raises: MissingInputError: naming the directory that is missing.
    """
    name = settings.train_config_dir
    own = CONFIG_OF_SOURCE[settings.data_source] or SHAPES[settings.synthetic_shape]
    example, present = settings.examples_dir / name, settings.out_dir / name
    if name == own and not example.is_dir() and not present.is_dir():
        raise MissingInputError(
            f"the example {example} does not exist; set EXAMPLES_DIR to the folder that holds {name}/, "
            f"or put a config into {present} first"
        )


def _stage_config(settings: Settings, directory: Path) -> None:
    """Copy the example's config, unless the volume has one of this name that somebody changed."""
    name = settings.train_config_dir
    example, present = settings.examples_dir / name, settings.out_dir / name
    if not example.is_dir():
        if not present.is_dir():
            say(f"no example is called {name!r} in {settings.examples_dir}; put your config into {present}")
    elif present.is_dir() and not settings.replace_config:
        if not same_files(example, present):
            say(f"{present} differs from the example and is kept; REPLACE_CONFIG=1 replaces it")
    else:
        copy_config(example, directory / name)


if __name__ == "__main__":
    sys.exit(main())

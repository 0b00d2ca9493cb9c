"""`paddle prepare` reads a data set from a source, and writes shards of the data set into the job's directory."""

from __future__ import annotations

import filecmp
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from paddle_base.runtime.environment import find_misspelt
from paddle_base.runtime.errors import MissingInputError, PaddleError
from paddle_cluster.prepare.dataset import Dataset, Split, arrange
from paddle_cluster.prepare.errors import reading_input, writing_to
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.mounts import MOUNTINFO, require_volume
from paddle_cluster.prepare.settings import OPTIONS, name_flags, read_settings
from paddle_cluster.prepare.sources import SOURCES
from paddle_cluster.prepare.split import LabelledLine, deal
from paddle_cluster.prepare.tree import copy_config, give_to, publish, same_files, staging, write_marker, write_shards
from paddle_cluster.prepare.values import Settings

OF_MODEL = ("dict.txt", "labels.list", "columns.json", "meta.bin")  # of a shard, which a trained model needs
SIGNALLED = 128  # exit status of a program that a signal has ended, minus the number of the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the data job and return its exit status."""
    before = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGINT)}
    os.umask(0o002)
    arguments = sys.argv[1:] if argv is None else argv
    for name, close in sorted(find_misspelt(os.environ, [one.name.upper() for one in OPTIONS]).items()):
        say(f"WARNING: {name} is set, but is no variable of the data job: did you mean {close}?")
    try:
        prepare(read_settings(arguments, os.environ))
    except PaddleError as error:
        say(f"error: {error}{name_flags(str(error)) if arguments else ''}")
        return error.exit_code
    except SystemExit as stopped:
        if isinstance(stopped.code, int) and stopped.code > SIGNALLED:  # not after --help
            name = signal.Signals(stopped.code - SIGNALLED).name
            say(f"stopped by {name}: no part of the new data set can be used; run the same command again to make it")
        raise
    except Exception:
        traceback.print_exc()
        return PaddleError.exit_code
    finally:  # the handler must not raise while the interpreter ends
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(SIGNALLED + number)


def prepare(settings: Settings) -> None:
    """Create the job's directory according to the settings.

    Raises: PaddleError: the message describes the error. After an error, the directory contains its old data set, or
    no shard 0. Therefore no job can start with a mixture of two data sets.
    """
    source = SOURCES[settings.data_source]
    if settings.require_volume:
        require_volume(settings.out_dir, MOUNTINFO)
    with reading_input():
        _require_example(settings)
    with staging(settings.out_dir, settings.data_owner) as directory:
        scratch = directory / "input"
        with writing_to(scratch):
            scratch.mkdir()
        with reading_input():
            found = source.read(settings, scratch)
        split = found if isinstance(found, Split) else split_dataset(found, settings)
        write_shards(directory, split.shards, split.common)
        with writing_to(scratch):
            shutil.rmtree(scratch)
        with reading_input():
            _stage_config(settings, directory)
        write_marker(directory, describe(split, settings))
        _warn_of_model(directory, settings.out_dir)
        give_to(settings.data_owner, directory)
        publish(directory, settings.out_dir, settings.split_count, settings.train_config_dir)
    if source.reads == "nothing":
        say(
            f"WARNING: DATA_SOURCE={source.name}: all samples are generated; to use your own data, set DATA_SOURCE "
            "and DATA_PATH or DATA_URL"
        )
    samples = f"{split.training} training and {split.test} test samples"
    shards = "1 shard" if settings.split_count == 1 else f"{settings.split_count} shards"
    say(f"{settings.out_dir}: {shards} of {settings.data_source}, {samples}; ready")


def _warn_of_model(directory: Path, out_dir: Path) -> None:
    """Log a warning if the job's directory has a model whose vocabulary, classes or columns are about to be replaced.

    Args: directory: has the new shards.
    """
    if not (out_dir / "0" / "data").is_dir() or not any((out_dir / "output").glob("pass-*")):
        return
    pairs = [(name, directory / "0" / "data" / name, out_dir / "0" / "data" / name) for name in OF_MODEL]
    changed = [
        name
        for name, new, old in pairs
        if new.exists() != old.exists() or (new.exists() and not filecmp.cmp(new, old, shallow=False))
    ]
    if changed:
        say(
            f"WARNING: {out_dir / 'output'} has a model of the earlier data, which does not fit the new "
            f"{', '.join(changed)}; prepare other data for another OUT_DIR, and the earlier data here again"
        )


def split_dataset(dataset: Dataset, settings: Settings) -> Split:
    """Split a data set that is held in memory into the files of its shards.

    Raises: DataError: if there are fewer samples than shards.
    """
    settings.check_counts(len(dataset.training), len(dataset.test))
    count = settings.split_count
    training = [deal(samples, settings.shard_files) for samples in deal(dataset.training, count)]
    test = deal(dataset.test, count if settings.test_data == "split" else 1) if dataset.test else []
    shards, common = arrange(
        (dataset.training_name, dataset.test_name),
        [[_text(part) for part in parts] for parts in training],
        [_text(part) for part in test],
        dataset.common,
        settings,
    )
    return Split(len(dataset.training), len(dataset.test), shards, common, dataset.facts)


def describe(split: Split, settings: Settings) -> dict[str, object]:
    """Return the content of `prepared.json` for a finished data set."""
    return {
        "format": 1,
        "source": settings.data_source,
        "split_count": settings.split_count,
        "training": split.training,
        "test": split.test,
        "test_data": settings.test_data,
        "seed": settings.seed,
        "config": settings.train_config_dir,
        **split.facts,
    }


def _text(samples: Sequence[LabelledLine]) -> bytes:
    return "".join(f"{sample.line}\n" for sample in samples).encode()


def _require_example(settings: Settings) -> None:
    """Check that the example of the data source exists if its config must be copied.

    A config directory with another name need not exist, because users can add their own config later.
    Raises: MissingInputError: if the example does not exist; the message names its directory.
    """
    name = settings.train_config_dir
    own = SOURCES[settings.data_source].example_for(settings.synthetic_shape)
    example, present = settings.examples_dir / name, settings.out_dir / name
    if name and name == own and not example.is_dir() and not present.is_dir():
        raise MissingInputError(
            f"the example {example} does not exist; set EXAMPLES_DIR to the folder that holds {name}/, "
            f"or put a config into {present} first"
        )


def _stage_config(settings: Settings, directory: Path) -> None:
    """Copy the example's config. Keep a config directory that is already on the volume if REPLACE_CONFIG is 0."""
    name = settings.train_config_dir
    example, present = settings.examples_dir / name, settings.out_dir / name
    if not name:
        return  # the source has no example; the user supplies the config
    if not example.is_dir():
        if not present.is_dir():
            say(f"no example is called {name!r} in {settings.examples_dir}; put your config into {present}")
    elif present.is_dir() and not settings.replace_config:
        if not same_files(example, present):
            say(f"{present} differs from the example and is kept; REPLACE_CONFIG=1 replaces it")
    else:
        copy_config(example, directory / name)

"""Write checkpoints to the volume: the complete state of training in `<save_dir>/state/pass-%05d[-%03d]/`.

job.json          the parameters, the counters of every service, the size and checksum of every other file
trainers.json     each trainer's own state: its position in the data, random states, sums of the pass
parameters/       the values, not averaged, in the files of a pass directory, which --init_model_path also reads;
                  the tables are not here if the servers have their rows
services/<n>/     the arrays of service n, as in memory
done              the mark of a complete checkpoint; it contains the checksum of job.json

A service is one port of a parameter server or, without servers, the optimiser of a trainer.

A checkpoint is written to a temporary directory. The directory is synced and renamed, and then the mark is written.
When a checkpoint is removed, its mark is removed first.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import (
    Content,
    sync_directory,
    warn_if_removed,
    write_directory,
    write_durably,
    write_file,
    write_mark,
)
from paddle_base.runtime.saves import DONE, JOB, VERSION, list_saves, order_of
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.parameters import ParameterTable
from trainer.storage.model_files import list_files
from trainer.storage.sums import Summing

TRAINERS, PARAMETERS, SERVICES = "trainers.json", "parameters", "services"


# ----- Writing -----


def write_checkpoint(
    directory: Path,
    gathered: CheckpointState,
    table: ParameterTable,
    configs: Mapping[str, bytes],
    place: Mapping[str, Any],
) -> None:
    """Write a checkpoint atomically. It replaces an old checkpoint of the same name.

    Args: gathered: the state to write. configs: file name -> content, for the config and the scripts that it imports.
        place: the position of training, for readers of job.json.
    Raises: VolumeError: the volume is full, read-only or not writable. Older checkpoints are unchanged.
    """
    write_durably(directory, lambda: _write(directory, gathered, table, configs, place))


def _write(
    directory: Path,
    gathered: CheckpointState,
    table: ParameterTable,
    configs: Mapping[str, bytes],
    place: Mapping[str, Any],
) -> None:
    mark = b""

    def fill(staging: Path) -> None:
        nonlocal mark
        (staging / PARAMETERS).mkdir()
        with Summing() as sums:
            files = Files(staging, sums)
            elsewhere = {one.name for one in table.tables()}  # only the servers have all rows of the tables
            for name, content in list_files(table, configs):
                if name not in elsewhere:
                    files.write(f"{PARAMETERS}/{name}", content)
            services = [
                {"counters": part.counters, "arrays": _write_arrays(files, number, part, table)}
                for number, part in enumerate(gathered.services)
            ]
            files.write(TRAINERS, [_spell(gathered.trainers)])
            job = {
                "version": VERSION,
                "place": place,
                "parameters": describe_parameters(table),
                "services": services,
                "trainers": len(gathered.trainers),
                "files": files.sizes,
                "sums": sums.result(),
            }
        text = _spell(job)
        write_file(staging / JOB, [text])
        # names of files are durable only with their directory, and the mark says that all of them are
        for folder in [path for path in staging.rglob("*") if path.is_dir()]:
            sync_directory(folder)
        # the mark has the checksum of job.json, which has those of all other files
        mark = hashlib.sha256(text).hexdigest().encode()

    warn_if_removed(directory.parent.parent)
    write_directory(directory, fill, lambda: write_mark(directory / DONE, [mark]))


class Files:
    """Write files below a directory. `sizes` has the number of bytes of each file by name.

    Args: sums: the object that computes the checksum of each file.
    """

    def __init__(self, root: Path, sums: Summing) -> None:
        self.root, self._sums = root, sums
        self.sizes: dict[str, int] = {}

    def write(self, name: str, content: Content) -> None:
        """Write and sync a file. Raises: OSError."""
        self.sizes[name] = write_file(self.root / name, self._sums.add(name, content))


def _write_arrays(files: Files, number: int, part: Part, table: ParameterTable) -> list[dict[str, Any]]:
    (files.root / SERVICES / str(number)).mkdir(parents=True)
    records = []
    for name, array in part.arrays.items():
        file = ""
        if not _is_all_of(array, table):  # the trained values are in the parameter files
            file = f"{SERVICES}/{number}/{name}.bin"
            files.write(file, [np.ascontiguousarray(array).data])
        records.append({"name": name, "type": array.dtype.str, "shape": list(array.shape), "file": file})
    return records


def _is_all_of(array: npt.NDArray[Any], table: ParameterTable) -> bool:
    """Return whether an array contains the values of all trained parameters."""
    return array.nbytes == table.values.nbytes and array.ctypes.data == table.values.ctypes.data


def describe_parameters(table: ParameterTable) -> list[list[Any]]:
    """Return [name, number of elements, whether the parameter is static] for each parameter."""
    return [[parameter.name, parameter.size, parameter.is_static] for parameter in table]


def _spell(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


# ----- Removing -----


def keep_newest(folder: Path, newest: str, count: int) -> None:
    """Remove all checkpoints except `newest` and the `count - 1` checkpoints before it.

    A checkpoint of a later position is also removed, because another run or an attempt that was undone has made it.
    """
    try:
        names = list_saves(folder)
    except OSError as error:
        glog.warning(f"cannot look for old checkpoints in {folder}: {error.strerror}")
        return
    here = order_of(newest) or (0, 0.0)
    later = [name for name in names if (order_of(name) or here) > here]
    for name in later:
        glog.info(f"the checkpoint {folder / name} is removed: this run has not reached the checkpoint's position")
        _remove(folder / name)
    reached = names[: len(names) - len(later)]
    for name in reached[: max(len(reached) - count, 0)]:
        _remove(folder / name)


def _remove(directory: Path) -> None:
    """Remove the mark of a checkpoint, and then the checkpoint. If this fails, only log a warning."""
    try:
        (directory / DONE).unlink(missing_ok=True)
        sync_directory(directory)
        shutil.rmtree(directory)
    except OSError as error:
        glog.warning(f"cannot remove the old checkpoint {directory}: {error.strerror}")

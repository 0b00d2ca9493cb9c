"""Checkpoints on the volume: the complete state of training in `<save_dir>/state/pass-%05d[-%03d]/`.

    job.json          what it is of: parameters, counters of every service, and the size of every other file
    trainers.json     what each trainer says of itself: its place in the data, random states, sums of the pass
    parameters/       the values as a pass directory has them, for --init_model_path too; not averaged, and without
                      tables whose rows lie on servers
    services/<n>/     the arrays of service n, as they lie in memory
    done              the mark, written last; it names job.json by its sum

A checkpoint is written beside its place, synced and renamed into it, and the mark follows: one without the mark is
none. Before one is removed its mark is, so that what is half removed is none either.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pserver import glog
from pserver.durable import sync_directory
from pserver.errors import ConfigError, DataError, MissingInputError, VolumeError, reading_error
from pserver.snapshot import Captured, Part
from trainer.files import (
    old_of,
    remove_if_possible,
    replace_directory,
    staging_of,
    warn_if_removed,
    write_durably,
    write_file,
    write_mark,
)
from trainer.model_files import DONE, HEADER, list_files
from trainer.parameters import ParameterTable

VERSION = 1
FOLDER = "state"
JOB, TRAINERS, PARAMETERS, SERVICES = "job.json", "trainers.json", "parameters", "services"
_NAME = re.compile(r"pass-(\d{5,})(?:-(\d{3,}))?")
_SHOWN = 5


# ----- Writing -----


def write_checkpoint(
    directory: Path, captured: Captured, table: ParameterTable, configs: Mapping[str, bytes], place: Mapping[str, Any]
) -> None:
    """Write a checkpoint, complete or not at all; one of that name is replaced.

    Args: place: what to say of the place in training, for who reads job.json.
    Raises: VolumeError: if the volume is full, read-only or not writable; older checkpoints are as they were.
    """
    write_durably(directory, lambda: _write(directory, captured, table, configs, place))


def _write(
    directory: Path, captured: Captured, table: ParameterTable, configs: Mapping[str, bytes], place: Mapping[str, Any]
) -> None:
    staging = staging_of(directory)
    remove_if_possible(staging)
    try:
        warn_if_removed(directory.parent.parent)
        (staging / PARAMETERS).mkdir(parents=True)
        sizes: dict[str, int] = {}
        elsewhere = {one.name for one in table.tables()}  # only the servers have all their rows
        for name, content in list_files(table, configs):
            if name not in elsewhere:
                sizes[f"{PARAMETERS}/{name}"] = write_file(staging / PARAMETERS / name, content)
        services = [
            {"counters": part.counters, "arrays": _write_arrays(staging, number, part, table, sizes)}
            for number, part in enumerate(captured.services)
        ]
        sizes[TRAINERS] = write_file(staging / TRAINERS, [_spell(captured.trainers)])
        job = {
            "version": VERSION,
            "place": place,
            "parameters": _describe(table),
            "services": services,
            "trainers": len(captured.trainers),
            "files": sizes,
        }
        text = _spell(job)
        write_file(staging / JOB, [text])
        for folder in [path for path in staging.rglob("*") if path.is_dir()]:
            sync_directory(folder)
        sync_directory(staging)
        old = replace_directory(staging, directory)
        sync_directory(directory.parent)
        write_mark(directory / DONE, [hashlib.sha256(text).hexdigest().encode()])
    except BaseException:
        remove_if_possible(staging)
        raise
    remove_if_possible(old)


def _write_arrays(
    staging: Path, number: int, part: Part, table: ParameterTable, sizes: dict[str, int]
) -> list[dict[str, Any]]:
    folder = staging / SERVICES / str(number)
    folder.mkdir(parents=True)
    records = []
    for name, array in part.arrays.items():
        file = ""
        if not _is_all_of(array, table):  # these are in the parameter files
            file = f"{SERVICES}/{number}/{name}.bin"
            sizes[file] = write_file(staging / file, [np.ascontiguousarray(array).data])
        records.append({"name": name, "type": array.dtype.str, "shape": list(array.shape), "file": file})
    return records


def _is_all_of(array: npt.NDArray[Any], table: ParameterTable) -> bool:
    """Return whether an array is the one that holds the values of all trained parameters."""
    return array.nbytes == table.values.nbytes and array.ctypes.data == table.values.ctypes.data


def _describe(table: ParameterTable) -> list[list[Any]]:
    return [[parameter.name, parameter.size, parameter.is_static] for parameter in table]


def _spell(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


# ----- Which there are -----


def order_of(name: str) -> tuple[int, float] | None:
    """Return a key that rises with the place of a checkpoint in training; None: it is no name of one."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), float(found[2] or "inf"))


def list_checkpoints(folder: Path) -> list[str]:
    """Return the names of the complete checkpoints, the oldest place first."""
    if not folder.is_dir():
        return []
    names = [path.name for path in folder.iterdir() if order_of(path.name) and (path / DONE).is_file()]
    return sorted(names, key=lambda name: order_of(name) or (0, 0.0))


def keep_newest(folder: Path, newest: str, count: int) -> None:
    """Remove checkpoints but `newest` and those of the `count - 1` places before it.

    What is of a later place was left by another run, or by one that went on from there and was taken back.
    """
    try:
        names = list_checkpoints(folder)
    except OSError as error:
        glog.warning(f"cannot look for old checkpoints in {folder}: {error.strerror}")
        return
    here = order_of(newest) or (0, 0.0)
    later = [name for name in names if (order_of(name) or here) > here]
    for name in later:
        glog.info(f"checkpoint {folder / name} is of a later place than this run has reached: it is removed")
        _remove(folder / name)
    reached = names[: len(names) - len(later)]
    for name in reached[: max(len(reached) - count, 0)]:
        _remove(folder / name)


def clean(folder: Path) -> None:
    """Remove what an attempt that died left half written or half removed; what it was replacing comes back.

    Raises: VolumeError: if that cannot come back; what cannot be removed only takes room.
    """
    try:
        _clean(folder)
    except OSError as error:
        raise VolumeError(f"cannot put {folder} in order: {error.strerror} ({error.filename})") from error


def _clean(folder: Path) -> None:
    if not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        name = path.name.removeprefix(".").removesuffix(".writing").removesuffix(".old")
        if order_of(name) is None:
            continue
        if path == old_of(folder / name) and (path / DONE).is_file() and not (folder / name / DONE).is_file():
            remove_if_possible(folder / name)
            path.rename(folder / name)
        elif path.name != name or not (path / DONE).is_file():
            remove_if_possible(path)


def _remove(directory: Path) -> None:
    """Remove a checkpoint, its mark first; one that cannot be removed only takes room."""
    try:
        (directory / DONE).unlink(missing_ok=True)
        sync_directory(directory)
        shutil.rmtree(directory)
    except OSError as error:
        glog.warning(f"cannot remove the old checkpoint {directory}: {error.strerror}")


# ----- Reading -----


def read_checkpoint(directory: Path, table: ParameterTable) -> Captured:
    """Return what was captured, and fill the table.

    Raises: MissingInputError: if there is no complete checkpoint.  DataError: if a file is damaged.  ConfigError: if
        it is of another version or of other parameters.
    """
    job = _read_job(directory)
    _check_parameters(directory, job["parameters"], _describe(table))
    for name, size in job["files"].items():
        found = (directory / name).stat().st_size if (directory / name).is_file() else -1
        if found != size:
            what = f"has {found} bytes, not {size}" if found >= 0 else "is missing"
            raise DataError(f"the checkpoint {directory} is damaged: its file {name} {what}; go on from another one")
    for parameter in table:
        if f"{PARAMETERS}/{parameter.name}" in job["files"]:
            data = np.fromfile(directory / PARAMETERS / parameter.name, "<f4", offset=HEADER.size)
            np.copyto(parameter.value, data)
    services = [
        Part(
            service["counters"],
            {
                record["name"]: _read_array(directory, record) if record["file"] else table.values
                for record in service["arrays"]
            },
        )
        for service in job["services"]
    ]
    return Captured(services, _load_json(directory, TRAINERS))


def _read_job(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise MissingInputError(f"--resume_from={directory}: there is no such directory")
    if not (directory / DONE).is_file():
        folders = (directory, directory / FOLDER, directory.parent)
        found = [folder / name for folder in folders for name in list_checkpoints(folder)]
        others = [str(path) for path in found if (path / JOB).is_file()]  # a model's directory has the mark, too
        hint = f"; complete are {', '.join(others)}" if others else ""
        raise MissingInputError(
            f"--resume_from={directory}: it has no file '{DONE}', so it is no complete checkpoint{hint}"
        )
    if not (directory / JOB).is_file():
        raise MissingInputError(
            f"--resume_from={directory}: it has no {JOB}, so it is no checkpoint; these are in <save_dir>/{FOLDER}"
        )
    job = _load_json(directory, JOB)
    if job.get("version") != VERSION:
        raise ConfigError(
            f"the checkpoint {directory} is of version {job.get('version')}, this program reads version {VERSION}; go "
            "on with the program that wrote it"
        )
    mark = (directory / DONE).read_bytes()
    if hashlib.sha256((directory / JOB).read_bytes()).hexdigest().encode() != mark:
        raise DataError(f"the checkpoint {directory} is damaged: {JOB} is not the one that '{DONE}' names")
    return dict(job)


def _load_json(directory: Path, name: str) -> Any:
    try:
        return json.loads((directory / name).read_bytes())
    except OSError as error:
        raise reading_error(DataError, f"of the checkpoint {directory} {name} cannot be read", error) from error
    except ValueError as error:
        raise DataError(f"the checkpoint {directory} is damaged: its {name} cannot be read: {error}") from error


def _read_array(directory: Path, record: Mapping[str, Any]) -> npt.NDArray[Any]:
    return np.fromfile(directory / record["file"], record["type"]).reshape(record["shape"])


def _check_parameters(directory: Path, theirs: list[list[Any]], ours: list[list[Any]]) -> None:
    if theirs == ours:
        return
    there, here = ({name: (size, is_static) for name, size, is_static in one} for one in (theirs, ours))
    differences = [
        *(f"{name} is only there" for name in there.keys() - here.keys()),
        *(f"{name} is only here" for name in here.keys() - there.keys()),
        *(
            f"{name} has {there[name][0]} elements{' (static)' * there[name][1]} there, {here[name][0]}"
            f"{' (static)' * here[name][1]} here"
            for name in there
            if name in here and there[name] != here[name]
        ),
    ] or ["their order differs"]
    shown = "; ".join(differences[:_SHOWN]) + (f"; and {len(differences) - _SHOWN} more" * (len(differences) > _SHOWN))
    raise ConfigError(f"the checkpoint {directory} is of other parameters than the config: {shown}")

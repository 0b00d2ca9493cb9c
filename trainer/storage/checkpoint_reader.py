"""Read a checkpoint. A damaged checkpoint is distinguished from a checkpoint that cannot be read at present.

The content of every file is checked before its use: sizes, checksums, names, types and levels of nesting. If the volume
fails to return a file, VolumeError is raised. The checkpoint is then not regarded as damaged, because the file may be
readable when the volume works again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import NO_SUCH_FILE
from paddle_base.runtime.errors import ConfigError, DamagedError, DataError, MissingInputError, VolumeError
from paddle_base.runtime.regular_files import open_regular
from paddle_base.runtime.saves import DONE, FILES, FOLDER, JOB, VERSION, list_saves
from paddle_base.runtime.schema import (
    Integer,
    Items,
    Maybe,
    Named,
    Record,
    Row,
    SchemaError,
    Shape,
    Such,
    Text,
    Truth,
    Word,
)
from pserver.store.snapshot import COUNTERS, CheckpointState, Part
from trainer.arrays.parameters import ParameterTable
from trainer.storage.checkpoint import PARAMETERS, TRAINERS, describe_parameters
from trainer.storage.model_files import HEADER, VALUE_BYTES
from trainer.storage.sums import Sum

MOST_JOB_BYTES = 64 << 20  # maximum bytes of job.json: enough for a hundred thousand parameters, or a thousand services
# maximum bytes of trainers.json; in local training this file may have four bytes for every sample of a pass
MOST_TRAINERS_BYTES = 4 << 30
MOST_DEPTH = 32  # maximum levels of lists and objects; files of this program have eight levels
LARGEST = 1 << 63  # whole numbers must be below LARGEST, and at least -LARGEST
CHUNK = 4 << 20  # number of bytes that are read and summed at a time
TYPES = ("<f4", "<i8", "|u1")  # types of the arrays of a state
_SHOWN = 5


def read_checkpoint(directory: Path, table: ParameterTable, shown: str = "") -> CheckpointState:
    """Return the state in a checkpoint, and fill the table with its values, which are undefined after an error.

    Args: shown: who has named the directory, for messages; by default, the flag --resume_from.
    Raises: MissingInputError: the directory is no complete checkpoint.  DamagedError: the checkpoint is damaged.
        VolumeError: the checkpoint cannot be read now. ConfigError: the checkpoint has a different version or different
            parameters.
    """
    return _Reader(directory, shown or f"--resume_from={directory}").read(table)


class _Reader:
    """A reader of one checkpoint. `_sizes` and `_sums` are the sizes and checksums of files that job.json lists."""

    def __init__(self, directory: Path, shown: str) -> None:
        self._directory, self._shown = directory, shown
        self._sizes: Mapping[str, int] = {}
        self._sums: Mapping[str, str] = {}

    def read(self, table: ParameterTable) -> CheckpointState:
        job = self._read_job()
        _check_parameters(self._directory, job["parameters"], describe_parameters(table))
        services = [self._read_service(number, one, table) for number, one in enumerate(job["services"])]
        elsewhere = {one.name for one in table.tables()}
        for parameter in table:
            name = f"{PARAMETERS}/{parameter.name}"
            if name in self._sizes:
                header = bytearray(HEADER.size)
                values = np.empty(parameter.size, "<f4")
                places = bytearray(parameter.pattern.file_bytes if parameter.pattern else 0)
                self._read_into(name, memoryview(header), _bytes_of(values), memoryview(places))
                if HEADER.unpack(header) != (0, VALUE_BYTES, parameter.size):
                    self._damaged(f"the file {name} has a different header")
                np.copyto(parameter.value, values)
                if parameter.pattern is not None:
                    try:
                        parameter.pattern.read(bytes(places), name)
                    except DataError as error:
                        self._damaged(str(error))
            elif parameter.name not in elsewhere:
                self._damaged(f"{name} is not among the files of the checkpoint")
        for name in self._sizes.keys() - self._used:
            self._skim(name)  # damage is told also where this job does not need the file
        trainers = self._parse(TRAINERS, self._read_all(TRAINERS, MOST_TRAINERS_BYTES))
        self._check_trainers(trainers, job["trainers"])
        return CheckpointState(services, trainers)

    # ----- job.json

    def _read_job(self) -> dict[str, Any]:
        directory = self._directory
        if not _is_directory(directory):
            raise MissingInputError(
                f"{self._shown}: there is no such directory; name a directory in <save_dir>/{FOLDER}"
            )
        self._check_that_it_is_one()
        mark = self._read_file(DONE, 2 * hashlib.sha256().digest_size)
        text = self._read_file(JOB, MOST_JOB_BYTES)
        # before the parsing, which would call damaged bytes a wrong value
        if hashlib.sha256(text).hexdigest().encode() != mark:
            self._damaged(f"{JOB} does not have the checksum in '{DONE}'")
        job = self._parse(JOB, text)
        if not isinstance(job, dict):
            self._damaged(f"{JOB} is no object")
        version = job.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ConfigError(
                f"the checkpoint {directory} has version {version}, but this program reads version {VERSION}; resume "
                "with the release that wrote the checkpoint"
            )
        if version != VERSION:
            self._damaged(f"{JOB} has no valid version")
        self._check_job(job)
        self._sizes, self._sums = job["files"], job.get("sums", {})
        self._used: set[str] = {TRAINERS}
        if "sums" not in job:
            glog.info(
                f"the checkpoint {directory} has no checksums of its files, because an older release wrote it: "
                "changed bits are not detected"
            )
        return job

    def _check_that_it_is_one(self) -> None:
        directory = self._directory
        if not _is_there(directory / DONE):
            hint = f"; complete checkpoints are {others}" if (others := name_others(directory)) else ""
            raise MissingInputError(f"{self._shown}: it has no file '{DONE}', so it is no complete checkpoint{hint}")
        if not _is_there(directory / JOB):
            if directory.parent.name == FOLDER:
                self._damaged(f"{JOB} is missing")
            raise MissingInputError(
                f"{self._shown}: it has no {JOB}, so it is no checkpoint; checkpoints are in <save_dir>/{FOLDER}"
            )

    def _check_job(self, job: dict[str, Any]) -> None:
        self._check(_JOB, job, JOB)
        if "sums" in job and job["sums"].keys() != job["files"].keys():
            self._damaged(f"{JOB} does not have a checksum of each file")
        if TRAINERS not in job["files"]:
            self._damaged(f"{TRAINERS} is not among the files of the checkpoint")

    def _check(self, shape: Shape, found: object, name: str) -> None:
        try:
            shape.check(found, name)
        except SchemaError as error:
            self._damaged(str(error))

    # ----- Services

    def _read_service(self, number: int, service: Mapping[str, Any], table: ParameterTable) -> Part:
        records = service["arrays"]
        arrays = {record["name"]: self._read_array(number, record, table) for record in records}
        if len(arrays) != len(records):
            self._damaged(f"{JOB} names an array of service {number} twice")
        return Part(service["counters"], arrays)

    def _read_array(self, number: int, record: Mapping[str, Any], table: ParameterTable) -> npt.NDArray[Any]:
        file, kind, shape = record["file"], np.dtype(record["type"]), tuple(record["shape"])
        size = math.prod(shape) * kind.itemsize
        if not file:
            if (kind, shape) != (table.values.dtype, table.values.shape):
                self._damaged(f"{JOB} gives the values of service {number} a type or shape that is not the parameters'")
            return table.values
        if self._sizes.get(file) != size:
            self._damaged(f"the array {record['name'][:50]!r} of service {number} and its file differ in size")
        self._stat(file)  # memory for the array is allocated only after this check
        array = np.empty(shape, kind)
        self._read_into(file, _bytes_of(array))
        return array

    # ----- Trainers

    def _check_trainers(self, trainers: Any, count: int) -> None:
        self._check(_TRAINERS, trainers, TRAINERS)
        if len(trainers) != count:
            self._damaged(f"{TRAINERS} is no list of {count} trainers")

    # ----- Files

    def _parse(self, name: str, text: bytes | bytearray) -> Any:
        """Return the content of a JSON file. Sizes of numbers and levels of nesting are limited."""
        try:
            found = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            self._damaged(f"{name} cannot be read: {str(error)[:200]}")
        if not _is_plain(found, MOST_DEPTH):
            self._damaged(f"{name} has a number that is infinite or too large, or too many levels of lists")
        return found

    def _read_file(self, name: str, most: int) -> bytearray:
        """Return the content of a file whose size job.json does not list."""
        size = self._stat(name)
        if size > most:
            self._damaged(f"the file {name} has {size} bytes; more than {most} are not possible")
        data = bytearray(size)
        self._fill(name, size, [memoryview(data)])
        return data

    def _read_all(self, name: str, most: int) -> bytearray:
        size = self._sizes[name]
        if size > most:
            self._damaged(f"the file {name} has {size} bytes; more than {most} are not possible")
        self._stat(name)
        data = bytearray(size)
        self._read_into(name, memoryview(data))
        return data

    def _read_into(self, name: str, *targets: memoryview) -> None:
        """Fill the targets with the content of a file, and check its checksum."""
        self._used.add(name)
        size = sum(target.nbytes for target in targets)
        if self._sizes[name] != size:
            self._damaged(f"the file {name} should have {self._sizes[name]} bytes, but its content needs {size}")
        self._check_sum(name, self._fill(name, size, targets))

    def _skim(self, name: str) -> None:
        """Check a file that training does not need."""
        self._check_sum(name, self._fill(name, self._sizes[name], []))

    def _check_sum(self, name: str, found: str) -> None:
        if self._sums and self._sums[name] != found:
            self._damaged(f"the file {name} has another checksum: it has changed since it was written")

    def _fill(self, name: str, size: int, targets: Sequence[memoryview]) -> str:
        """Read a file into the targets, and return its checksum. Without targets, only compute the checksum."""
        found = Sum()
        self._stat(name)
        skimmed = bytearray(0 if targets else min(size, CHUNK))
        left = 0 if targets else size
        try:
            with open_regular(self._directory / name) as file:
                for target in targets:
                    for start in range(0, target.nbytes, CHUNK):
                        part = target[start : start + CHUNK]
                        found.add(part[: _read_part(file, part)])
                while left > 0:
                    part = memoryview(skimmed)[: min(left, CHUNK)]
                    left -= part.nbytes
                    found.add(part[: _read_part(file, part)])
        except EOFError:
            self._damaged(f"the file {name} has fewer than {size} bytes")
        except OSError as error:
            self._cannot_read(name, error)
        return found.text

    def _stat(self, name: str) -> int:
        """Return the size of a file. If job.json lists the file, the size must be the listed size."""
        try:
            with open_regular(self._directory / name) as file:
                found = file.seek(0, 2)
        except OSError as error:
            self._cannot_read(name, error)
        expected = self._sizes.get(name, found)
        if found != expected:
            self._damaged(f"the file {name} has {found} bytes, not {expected}")
        return found

    def _cannot_read(self, name: str, error: OSError) -> NoReturn:
        if error.errno in NO_SUCH_FILE:
            why = "is missing" if error.errno in (errno.ENOENT, errno.ENOTDIR) else f"is no file: {error.strerror}"
            self._damaged(f"the file {name} {why}")
        raise VolumeError(
            f"{name} of the checkpoint {self._directory} cannot be read: {error.strerror}; check the volume"
        ) from error

    def _damaged(self, what: str) -> NoReturn:
        others = name_others(self._directory)
        hint = f"go on from another checkpoint: {others}" if others else "there is no other checkpoint"
        raise DamagedError(f"the checkpoint {self._directory} is damaged: {glog.clean(what)}; {hint}")


def name_others(directory: Path) -> str:
    """Return the paths of all other complete checkpoints in the directory, in its `state`, and beside it."""
    folders = (directory, directory / FOLDER, directory.parent)
    try:
        found = [folder / name for folder in folders for name in list_saves(folder)]
        # a model directory also has a mark, but no job.json
        others = [path for path in found if path != directory and _is_there(path / JOB)]
    except (OSError, VolumeError):
        return ""
    return ", ".join(map(str, others))


def _is_directory(path: Path) -> bool:
    """Return whether a path leads to a directory. Raises: VolumeError: the volume returns an error."""
    try:
        return path.is_dir()
    except OSError as error:
        raise VolumeError(f"{path} cannot be inspected: {error.strerror}; check the volume") from error


def _is_there(path: Path) -> bool:
    """Return whether a path exists. Raises: VolumeError: the volume returns an error."""
    try:
        path.lstat()
    except OSError as error:
        if error.errno in NO_SUCH_FILE:
            return False
        raise VolumeError(f"{path} cannot be searched for: {error.strerror}; check the volume") from error
    return True


def _read_part(file: Any, part: memoryview) -> int:
    """Fill `part` from the file, and return its length. Raises: EOFError: the file ends too early.  OSError."""
    done = 0
    while done < part.nbytes:
        count = file.readinto(part[done:])
        if not count:
            raise EOFError
        done += count
    return done


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


# ----- Validity


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether all numbers of a value are finite and within the limit, and it has at most `depth` levels."""
    if isinstance(value, dict):
        return depth > 0 and all(_is_plain(one, depth - 1) for one in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(one, depth - 1) for one in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -LARGEST <= value < LARGEST


_MOST = MOST_JOB_BYTES  # maximum number of values; the sizes of the files limit their number further
_NAME = Text(4096)
_ARRAY = Record(
    name=_NAME,
    type=Word(TYPES),
    file=_NAME,
    shape=Such(Items(Integer(), 2), bool, "a list of one or two sizes"),
)
_JOB = Record(
    "sums",
    files=FILES,
    sums=Named(_NAME, Text(128), _MOST),
    trainers=Integer(),
    parameters=Items(Row((_NAME, Integer(), Truth())), _MOST),
    services=Items(Record(counters=COUNTERS, arrays=Items(_ARRAY, _MOST)), _MOST),
)
# code that uses the other fields of a trainer checks them
_TRAINERS = Items(Maybe(Record(place=Record())), MOST_TRAINERS_BYTES)


def _check_parameters(directory: Path, theirs: list[list[Any]], ours: list[list[Any]]) -> None:
    if theirs == ours:
        return
    there, here = ({name: (size, is_static) for name, size, is_static in one} for one in (theirs, ours))
    differences = [
        *(f"only the checkpoint has {name}" for name in there.keys() - here.keys()),
        *(f"only the config has {name}" for name in here.keys() - there.keys()),
        *(
            f"{name} has {there[name][0]} elements{' (static)' * there[name][1]} in the checkpoint, but {here[name][0]}"
            f"{' (static)' * here[name][1]} in the config"
            for name in there
            if name in here and there[name] != here[name]
        ),
    ] or ["the order of the parameters differs"]
    shown = "; ".join(differences[:_SHOWN]) + (f"; and {len(differences) - _SHOWN} more" * (len(differences) > _SHOWN))
    raise ConfigError(f"the checkpoint {directory} has other parameters than the config: {glog.clean(shown, 2000)}")

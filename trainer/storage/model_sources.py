"""Read a model from a directory with a file for each parameter, from a merged file, or from a tar archive.

Source: spec/trainer.md 3.5 to 3.8.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import stat
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from google.protobuf.message import DecodeError

from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import (
    DamagedError,
    DataError,
    LostFileError,
    MissingInputError,
    PaddleError,
    reading_error,
)
from paddle_base.runtime.regular_files import open_regular
from paddle_base.runtime.saves import DONE, HEADER, VALUE_BYTES, list_saves, pass_name
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.arrays.rng import Stream
from trainer.arrays.sparse_storage import sparse_pattern
from trainer.storage.model_archive import ParameterArchive, is_archive
from trainer.storage.model_files import PATH_FILE, count_file_bytes, decode_parameter
from trainer.telemetry.legacy_words import AT

NAMES_SHOWN = 8
WIDTHS = (VALUE_BYTES, 8)  # possible numbers of bytes of a value; programs of v0.10 with double precision wrote eight
PATH_BYTES = 4096  # maximum bytes of path.txt, which contains the name of the config script
LENGTH = struct.Struct("<q")  # the number of bytes of the config message, at the start of a merged file


def load_model(
    path: str | Path,
    table: ParameterTable,
    strategy: str,
    stream: Stream,
    *,
    needs_done: bool = False,
    elsewhere: Collection[str] = (),
) -> None:
    """Fill the table from a pass directory, a merged file, or an archive of the version-2 API.

    Args: strategy: what happens to a parameter without a file: fail (never: no flag can change that), rand (its values
            are drawn from `stream`) or zero.  needs_done: whether the model must be a directory with the mark of a
            complete pass. elsewhere: names of parameters that the parameter servers load.
    Raises: MissingInputError: the model, the mark, or (with fail) a parameter is missing.
        DataError: a file has a different format or size.
    """
    with contextlib.closing(open_model(path, needs_done=needs_done)) as model:
        glog.info(f"Loading parameters from {path}", at=AT["load"])
        for parameter in table:
            if parameter.name in elsewhere:
                continue
            data = model.read(parameter.name, count_file_bytes(parameter))
            if data is None:
                is_lost = needs_done and set(model.names()) <= {one.name for one in table}
                _make_up(parameter, path, strategy, stream, model.names(), is_lost)
            else:
                _take(parameter, data, f"{path}/{parameter.name}")


def _take(parameter: Parameter, data: bytes, source: str) -> None:
    parameter.value[:] = decode_parameter(data, source, parameter.name, parameter.size)
    if parameter.pattern is not None:
        parameter.pattern.read(data[HEADER.size + parameter.size * VALUE_BYTES :], source)
    elif parameter.config.need_compact:
        share = np.count_nonzero(parameter.value) / parameter.size
        glog.info(f"compact nnz={share:g} name={parameter.name}", at=AT["compact"])


def find_flaw(header: bytes, length: int, expected: int) -> str:
    """Return the reason why a parameter file must be damaged, or "" if there is no sign of damage.

    A complete file of a different size or type belongs to the model of a different config, and is not damaged.

    Args: header: the first bytes of the file. length: the number of bytes of the file. expected: the number of bytes
        for the wanted parameter.
    """
    if len(header) < HEADER.size:
        return f"is no parameter file: it has {length} bytes, but the header alone has {HEADER.size}"
    version, value_bytes, count = HEADER.unpack(header)
    needed = HEADER.size + count * value_bytes
    if version or value_bytes not in WIDTHS:
        return f"is no parameter file: its header has version {version} and {value_bytes} bytes per value"
    if length < needed or (length > needed != expected != length):
        return f"is cut off, or its header is wrong: it has {length} bytes for {count} values"
    return ""


def name_other_passes(directory: Path) -> str:
    """Return ": " and the paths of the other complete passes beside a pass, or "" if there are none."""
    try:
        found = [path for path in sorted(directory.parent.glob("pass-*")) if path != directory and is_complete(path)]
    except (OSError, PaddleError):
        return ""
    return f": {', '.join(map(str, found[-NAMES_SHOWN:]))}" if found else ""


def refuse_save_directory(path: str | Path) -> None:
    """Check that a directory is a pass, and not a directory of passes.

    Raises: MissingInputError: the directory contains passes; the text names the newest complete pass.
    """
    try:
        names = list_saves(Path(path))  # passes have names like checkpoints, so this also lists passes
    except OSError:
        return
    if names:
        newest = Path(path) / names[-1]
        raise MissingInputError(
            f"{path} contains passes, but is not a pass (did you mean {newest}?); name one of the passes"
        )


def _find_mode(path: Path) -> int:
    """Return the mode of a file, or 0 if there is none. Raises: MissingInputError, VolumeError: it is not known."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null character
        return 0
    except OSError as exc:
        raise reading_error(MissingInputError, f"{path} cannot be looked up; check its name and mode", exc) from exc


def _make_up(
    parameter: Parameter, path: str | Path, strategy: str, stream: Stream, there: Sequence[str], is_lost: bool
) -> None:
    """Set the values of a parameter that the model lacks, or refuse the model. The strategy decides.

    Args: there: the names of the model's parameters. is_lost: whether the model is a complete pass of this config. Such
        a model must have contained the parameter.
    """
    glog.info(f"missing parameters [{path}/{parameter.name}] while loading model.", at=AT["missing"])
    if strategy == "rand":
        glog.info(f"{parameter.name} missing, set to random.", at=AT["missing strategy"])
        parameter.randomize(stream)
    elif strategy == "zero":
        glog.info(f"{parameter.name} missing, set to zero.", at=AT["missing strategy"])
        parameter.value.fill(0)
        glog.info(f"{parameter.name} set to 0", at=AT["missing strategy"])
    else:
        if not there:
            refuse_save_directory(path)
        shown = ", ".join(there[:NAMES_SHOWN]) + f" and {len(there) - NAMES_SHOWN} more" * (len(there) > NAMES_SHOWN)
        close = difflib.get_close_matches(parameter.name, there, 1)
        hint = f" (did a layer or ParamAttr change its name from {close[0]}?)" if close else ""
        raise (LostFileError if is_lost else MissingInputError)(
            f"{parameter.name} missing, not allowed: {Path(path).absolute()} has no such parameter; it has "
            f"{shown or 'none'}{hint}; name the model of this config"
            + ", or give --load_missing_parameter_strategy=rand (random values) or =zero"
            * (strategy == "fail")
        )


# ----- The kinds of models -----


class Model(Protocol):
    """A model, from which parameters are read by name."""

    def read(self, name: str, most: int) -> bytes | None:
        """Return the first `most` bytes of the file of a parameter, or None if there is no file."""

    def names(self) -> list[str]:
        """Return the names of the parameters, for messages."""

    def close(self) -> None:
        """Close open files."""


class Directory:
    """A directory with a file for each parameter; other files are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str, most: int) -> bytes | None:
        """Return the first `most` bytes of the file.

        Raises: DamagedError: the file is damaged.
        """
        file = self._path / name
        if not (mode := _find_mode(file)):
            return None
        if not stat.S_ISREG(mode):
            raise LostFileError(f"{file} is no file; name a directory that paddle train has saved")
        try:
            with open_regular(file) as stream:
                flaw = find_flaw(stream.read(HEADER.size), stream.seek(0, 2), most)
                if flaw:
                    raise DamagedError(f"{file} {flaw}; go on from another save{name_other_passes(self._path)}")
                stream.seek(0)
                return stream.read(most)
        except OSError as error:
            raise reading_error(MissingInputError, f"{file} cannot be read", error) from error

    def names(self) -> list[str]:
        """Return the names of the files that begin like parameter files."""
        return [entry.name for entry in _list_directory(self._path) if _is_parameter(entry)]

    def close(self) -> None:
        """Do nothing: no file is open."""


class MergedFile:
    """The output of `paddle merge_model`: the length of a TrainerConfig message, the message, and its parameters.

    Raises: DataError: the file is not a merged model.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.config = TrainerConfig()
        self._places: dict[str, tuple[int, int]] = {}  # maps a name to the offsets of the first byte and of the end
        with open_regular(path) as file:
            size = path.stat().st_size
            start = file.read(LENGTH.size)
            length = LENGTH.unpack(start)[0] if len(start) == LENGTH.size else -1
            if not 0 <= length <= size - LENGTH.size:
                raise self._wrong("its first eight bytes are not the length of a config")
            try:
                self.config.ParseFromString(file.read(length))
            except DecodeError as error:
                raise self._wrong("its config cannot be decoded") from error
            place = LENGTH.size + length
            for parameter in self.config.model_config.parameters:
                file.seek(place)
                header = file.read(HEADER.size)
                count = HEADER.unpack(header)[2] if len(header) == HEADER.size else 0
                pattern = sparse_pattern(parameter)
                end = place + HEADER.size + count * VALUE_BYTES + (pattern.file_bytes if pattern else 0)
                if not count or end > size:
                    raise self._wrong(f"it is cut off at the parameter {parameter.name}")
                self._places[parameter.name] = (place, end)
                place = end

    def read(self, name: str, most: int) -> bytes | None:
        """Return the first `most` bytes of a parameter."""
        if name not in self._places:
            return None
        start, end = self._places[name]
        with open_regular(self._path) as file:
            file.seek(start)
            return file.read(min(end - start, most))

    def names(self) -> list[str]:
        """Return the names of the parameters in the message."""
        return list(self._places)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _wrong(self, why: str) -> DataError:
        return DataError(f"{self._path} is neither a merged model nor a tar archive of parameters: {why}")


def _list_directory(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _is_parameter(path: Path) -> bool:
    """Return whether a file begins with a parameter header that fits the size of the file."""
    try:
        if not path.is_file():
            return False
        with open_regular(path) as file:
            version, value_bytes, count = HEADER.unpack(file.read(HEADER.size))
            size = path.stat().st_size
    except (OSError, struct.error):
        return False
    return (version, value_bytes, HEADER.size + count * VALUE_BYTES) == (0, VALUE_BYTES, size)


def open_model(path: str | Path, *, needs_done: bool = False) -> Model:
    """Return the model at a path.

    Raises: MissingInputError: there is no model, or a directory lacks the mark of a complete pass. DataError: the path
        leads to something that is not a model.
    """
    place = Path(path)
    mode = _find_mode(place)
    if stat.S_ISREG(mode) and not needs_done:
        return ParameterArchive(place) if is_archive(place) else MergedFile(place)
    if mode and not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise DataError(f"the model {path} is neither a directory nor a regular file; give the name of one of them")
    if not stat.S_ISDIR(mode):
        raise MissingInputError(f"there is no model directory {path}; name a pass-* that has its file '{DONE}'")
    if needs_done and not is_complete(path):
        raise MissingInputError(
            f"the model directory {path} has no file '{DONE}': it is incomplete; name a pass that has this file"
        )
    return Directory(place)


def is_complete(directory: str | Path) -> bool:
    """Return whether a pass directory exists and is complete."""
    return _find_mode(Path(directory) / DONE) != 0


# ----- The config of a model -----


def find_config(
    config: str, model: str, save_dir: str = "", first_pass: int = -1, flag: str = "init_model_path"
) -> str:
    """Return the path of the config script. Without `config`, it is the script that the initial model names.

    Args: config: the script in the flags, or "". model: the directory of the initial model, or "". save_dir,
        first_pass: without `model`, the initial model is this pass in this directory. flag: the flag of `model`.
    Raises: MissingInputError: no config is found. DataError: the model's `path.txt` is invalid.
    """
    if config:
        return config
    directory = model or (f"{save_dir}/{pass_name(first_pass)}" if save_dir and first_pass >= 0 else "")
    mark = Path(directory) / PATH_FILE
    if not directory or not _find_mode(mark):
        if directory:
            refuse_save_directory(directory)
        missing = f"{directory} does not exist; " if directory and not _find_mode(Path(directory)) else ""
        raise MissingInputError(
            f"{missing}no valid config: give --config=..., or --{flag} of a directory with path.txt"
        )
    try:
        name = os.fsdecode(read_text_file(mark, PATH_BYTES)).strip()
    except OSError as error:
        raise reading_error(MissingInputError, f"{mark} cannot be read; give --config=...", error) from error
    if "\0" in name:
        raise DataError(f"{mark} holds no name of a config; give --config=...")
    return str(Path(directory) / name)


@contextlib.contextmanager
def naming_modules(config: str, path: str) -> Iterator[None]:
    """Add advice to the error if the script of a model directory imports a module that is not in the directory.

    Args: config: the script in the flags, or "".  path: the result of `find_config`.
    """
    try:
        yield
    except PaddleError as error:
        missing = error.__cause__
        if config or not isinstance(missing, ModuleNotFoundError):
            raise
        raise type(error)(
            f"{error}; {Path(path).parent} holds only the config, and not the modules that it imports: give "
            f"--config=<the script in its own directory>, or --python_path=<the directory that holds {missing.name}>"
        ) from missing


def find_merged_config(config: str, model: str) -> TrainerConfig | None:
    """Return the config inside a merged file; None if `config` names a script, or `model` is not a file.

    Raises: DataError: the file is not a merged model.  MissingInputError: the file is an archive without a config.
    """
    if config or not model or not stat.S_ISREG(_find_mode(Path(model))):
        return None
    if is_archive(Path(model)):
        raise MissingInputError(f"no valid config: the archive {model} has parameters only; give --config=...")
    return MergedFile(Path(model)).config

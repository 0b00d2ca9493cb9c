"""The parameters of a network, as programs see them: by name, and as a tar file.

Source: spec/v2.md section 7.
"""

from __future__ import annotations

import io
import math
import os
import tarfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError
from paddle_base.runtime.saves import HEADER, VALUE_BYTES
from trainer.arrays.parameters import ParameterTable
from trainer.config.scripts.python2 import binary
from trainer.storage.model_archive import DESCRIPTION, EXPANDED_LIMIT, ParameterArchive
from trainer.storage.model_files import decode_parameter
from trainer.v2.errors import WrongTypeError, WrongValueError
from trainer.v2.topology import Topology

Values = npt.NDArray[np.float32]
DESCRIPTION_LIMIT = 1 << 16  # maximum bytes of a description
MOST_VALUES = 1 << 40  # a description with more is no description of an array
MOST_DIMENSIONS = 32  # those of numpy 1; layers have at most 3
MOST_NAMES = 8  # maximum number of parameters that a message names
PIECE = 1 << 20  # bytes that are read at once from a file that cannot move to a position


def create(layers: Any) -> Parameters:
    """Return the parameters of the network of some layers, before any trainer gives them initial values.

    Raises: ValueError: an argument is no layer.
    """
    topology = Topology(layers)
    parameters = Parameters()
    for config in topology.proto().parameters:
        parameters.append_config(config)
    for name, initializer in topology.initializers.items():
        parameters.set(name, np.asarray(initializer(name), np.float32).reshape(parameters.get_shape(name)))
    return parameters


class Parameters:
    """Named arrays of float32. Once a trainer has them, they are the trainer's, and change as it trains."""

    def __init__(self) -> None:
        self._configs: dict[str, ParameterConfig] = {}
        self._given: dict[str, Values] = {}  # what the program or a tar file has set, before there is a trainer
        self._tables: list[ParameterTable] = []

    def append_config(self, config: ParameterConfig) -> None:
        """Add a parameter.

        Raises: ValueError: it is no ParameterConfig, or there is a parameter of this name.
        """
        if not isinstance(config, ParameterConfig):
            raise WrongValueError("param_conf must be ParameterConfig")
        if config.name in self._configs:
            raise WrongValueError(f"duplicated parameter {config.name}")
        self._configs[config.name] = config

    __append_config__ = append_config  # the name of v0.10

    @property
    def __param_conf__(self) -> Mapping[str, ParameterConfig]:
        """The message of each parameter by name, from which programs of the models print the initial deviation."""
        return self._configs

    def update_param_conf(self, model_config: ModelConfig) -> None:
        """Take the attributes of parameters from a network."""
        for config in model_config.parameters:
            if config.name in self._configs:
                self._configs[config.name] = config

    def keys(self) -> list[str]:
        """Return the names, in the order of the network."""
        return list(self._configs)

    names = keys

    def has_key(self, key: str) -> bool:
        """Return whether there is a parameter of this name."""
        return key in self._configs

    def __contains__(self, key: object) -> bool:
        return key in self._configs

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def get_shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of a parameter.

        Raises: ValueError: there is no such parameter.
        """
        config = self._config(key)
        return tuple(config.dims) if config.dims else (1, int(config.size))

    def get(self, key: str) -> Values:
        """Return a copy of the values: flat if there is a trainer, and in the form of `get_shape` before.

        Before, a parameter that nobody has set has zeros.

        Raises: ValueError: there is no such parameter.
        """
        self._config(key)
        for table in reversed(self._tables):
            if key in table:
                return np.array(table[key].value, np.float32)
        if key in self._given:
            return self._given[key]
        return np.zeros(self.get_shape(key), np.float32)

    __getitem__ = get

    def get_grad(self, key: str) -> Values:
        """Return a copy of the gradient of the last batch, which is flat; zeros for a static parameter.

        Raises: ValueError: there is no such parameter.
        """
        config = self._config(key)
        for table in reversed(self._tables):
            if key in table and not table[key].is_static:
                return np.array(table[key].peek_gradient(), np.float32)
        return np.zeros(int(config.size), np.float32)

    def set(self, key: str, value: npt.NDArray[Any]) -> None:
        """Set the values of a parameter, also in the trainers that have it.

        Args: value: an array in the form of `get_shape`, or flat.
        Raises: ValueError: there is no such parameter, or the value is no array or has another shape.
        """
        if not isinstance(value, np.ndarray):
            raise WrongValueError("Must return ndarray")
        shape = self.get_shape(key)
        if value.shape not in (shape, (int(self._configs[key].size),)):
            raise WrongValueError(f"Value shape mismatch, expect {shape}, should {value.shape}")
        values = value.astype(np.float32).reshape(shape)
        tables = [table for table in self._tables if key in table]
        for table in tables:
            table[key].value[:] = values.reshape(-1)
        if not tables:
            self._given[key] = values

    __setitem__ = set

    def append_table(self, table: ParameterTable) -> None:
        """Let a new trainer have these parameters. It gets the values that there are; its other values stay.

        Raises: ValueError: the trainer has none of them, or one of another size.
        """
        lacking = [parameter.name for parameter in table if parameter.name not in self]
        if lacking and len(lacking) == len(table) and self._configs:
            raise WrongValueError(
                f"the network has {lacking[0]} and none of the parameters, which are {self._some_names()}: they are of "
                "another network"
            )
        if lacking:
            glog.warning(f"the parameters lack {lacking[0]} of the network, which begins with random values")
        for parameter in table:
            name = parameter.name
            if name in self._given or any(name in one for one in self._tables):
                self._check_size(name, parameter.size)
                parameter.value[:] = self.get(name).reshape(-1)
        self._tables.append(table)

    # ----- Files

    def serialize(self, name: str, f: IO[Any]) -> None:
        """Write the values of a parameter: a header of 16 bytes, and float32 numbers."""
        values = np.ascontiguousarray(self.get(name), "<f4")
        binary(f).write(HEADER.pack(0, VALUE_BYTES, values.size) + values.tobytes())

    def deserialize(self, name: str, f: IO[Any]) -> None:
        """Read what `serialize` wrote.

        Raises: DataError: it is damaged, or has another number of values.
        """
        size = int(self._config(name).size)
        data = binary(f).read(HEADER.size + size * VALUE_BYTES)
        self.set(name, decode_parameter(data, getattr(f, "name", "the file"), name, size))

    def to_tar(self, f: IO[Any]) -> None:
        """Write all parameters into a tar archive, which is not compressed: two files for each parameter.

        Args: f: a file that is open for writing, also one that compresses, or one in text mode.
        Raises: TypeError: it is a name.
        """
        with tarfile.open(fileobj=_as_binary(f, "wb"), mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name, config in self._configs.items():
                content = io.BytesIO()
                self.serialize(name, content)
                _add(archive, name, content.getvalue())
                _add(archive, name + DESCRIPTION, config.SerializeToString())

    @staticmethod
    def from_tar(f: IO[Any]) -> Parameters:
        """Return the parameters of an archive that `to_tar` wrote.

        Raises: DataError: it is damaged, too large, or another archive; the text says where. TypeError: `f` is a name.
        """
        parameters = Parameters()
        file = _as_binary(f, "rb")
        archive = ParameterArchive(file if _can_move(file) else _read_bounded(file))
        for name in archive.names():
            parameters._read(archive, name, str(getattr(f, "name", "the tar file")))
        return parameters

    def init_from_tar(self, f: IO[Any]) -> None:
        """Set the parameters that an archive has, too. Parameters of the archive that are not here are left out.

        Raises: DataError: see `from_tar`. ValueError: a parameter has another shape in the archive.
        """
        read = Parameters.from_tar(f)
        for name in read:
            if name in self:
                self.set(name, read.get(name))

    def _read(self, archive: ParameterArchive, name: str, source: str) -> None:
        where = f"{source}, {name}"
        description = archive.read(name + DESCRIPTION, DESCRIPTION_LIMIT)
        if description is None:
            raise DataError(f"{where}: the file {name + DESCRIPTION}, which describes the parameter, is missing")
        try:
            config = ParameterConfig.FromString(description)
        except DecodeError as error:
            raise DataError(f"{where}{DESCRIPTION} is no description of a parameter: {error}") from error
        size = int(config.size)
        if config.name != name or size > MOST_VALUES or not _fit(config):
            raise DataError(f"{where}{DESCRIPTION} describes {config.name!r} with {size} values of {list(config.dims)}")
        data = archive.read(name, HEADER.size + size * VALUE_BYTES) or b""
        self.append_config(config)
        self._given[name] = decode_parameter(data, where, name, size).reshape(self.get_shape(name))

    def _check_size(self, name: str, size: int) -> None:
        if size != self._configs[name].size:
            raise WrongValueError(
                f"the parameter {name!r} has {self._configs[name].size} values, but the network needs {size}"
            )

    def make_table(self, model: ModelConfig) -> ParameterTable:
        """Return a table of the parameters of a network, with copies of the values.

        Raises: ValueError: a parameter is missing here, or has another number of values.
        """
        for config in model.parameters:
            if config.name not in self:
                raise WrongValueError(
                    f"No such parameter {config.name}, which the network needs; there are {self._some_names()}: they "
                    "are of another network"
                )
            self._check_size(config.name, config.size)
        table = ParameterTable(model.parameters, free_names=True)
        for parameter in table:
            parameter.value[:] = self.get(parameter.name).reshape(-1)
        return table

    def _some_names(self) -> str:
        names = self.names()
        return ", ".join(names[:MOST_NAMES]) + ", ..." * (len(names) > MOST_NAMES) if names else "none"

    def _config(self, key: str) -> ParameterConfig:
        if not isinstance(key, str):
            raise WrongValueError("parameter name should be string")
        if key not in self._configs:
            raise WrongValueError(f"No such parameter {key}")
        return self._configs[key]


def _fit(config: ParameterConfig) -> bool:
    """Return whether the shape of a parameter is that of as many values as it has."""
    return not config.dims or (len(config.dims) <= MOST_DIMENSIONS and math.prod(config.dims) == config.size)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _as_binary(f: IO[Any], mode: str) -> IO[bytes]:
    """Return a file in binary mode; see `binary`.

    Raises: TypeError: it is the name of a file.
    """
    if isinstance(f, str | bytes | os.PathLike):
        raise WrongTypeError(f"{str(f)!r} is a name, not a file; give open({str(f)!r}, {mode!r})")
    file: IO[bytes] = binary(f)
    return file


def _can_move(file: IO[bytes]) -> bool:
    return bool(hasattr(file, "seekable") and file.seekable())


def _read_bounded(file: IO[bytes]) -> IO[bytes]:
    """Return the content of a pipe or socket as a file.

    Raises: DataError: it is too long.
    """
    content = io.BytesIO()
    while piece := file.read(PIECE):
        content.write(piece)
        if content.tell() > EXPANDED_LIMIT:
            raise DataError(f"the tar file has more than {EXPANDED_LIMIT} bytes: open it from a disk")
    return content

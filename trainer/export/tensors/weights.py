"""Parameters as a file of safetensors: one tensor for each parameter, with the shape that it has in its layer.

The names are those of the parameters. A parameter with sparse storage is the list of its values, and a second tensor
NAME/positions has the positions of the values, as its file in a pass directory has them. The metadata says which layers
read a parameter, as what, and of which parts a flat one consists; and it has the network as text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.export.model import TrainedModel
from trainer.export.tensors.shapes import ParameterShape, Shape, find_shapes

VERSION_KEY, VERSION = "paddle.version", "1"  # of the names and shapes here
POSITIONS = "/positions"  # end of the name of a tensor; no parameter of a pass has a "/" in its name
LENGTH = struct.Struct("<Q")  # the number of bytes of the header, at the start of a file
MOST_HEADER = 32 << 20  # maximum bytes of a header, which is read into memory; the library allows 100,000,000
MOST_TEXT = 12 << 20  # maximum bytes of the network or the script as text; of a longer one there is a digest
METADATA = "__metadata__"  # the name of the metadata among the tensors of a header
FLOAT, INTEGER = "F32", "I32"  # types of elements


def write(model: TrainedModel, target: Path, _arguments: argparse.Namespace) -> str:
    """Write the parameters of a model, and return a description of the file.

    Raises: ConfigError: the names of two tensors are equal, or the header is too large. VolumeError: the file cannot be
        written.
    """
    shapes = find_shapes(model.config)
    tensors = [(name, kind, shape) for one in model.parameters for name, kind, shape in list_tensors(one, shapes)]
    names = [name for name, _, _ in tensors]
    if len(set(names)) != len(names) or METADATA in names:
        raise ConfigError(
            f"a parameter has the name {METADATA}, or that of another with {POSITIONS} at the end: rename it"
        )
    header = _encode_header(tensors, describe(model, shapes))
    write_whole_file(target, _list_content(header, model.parameters))
    values = sum(one.size for one in model.parameters)
    return f"{len(tensors)} tensors, {values} values"


def describe(model: TrainedModel, shapes: Mapping[str, ParameterShape]) -> dict[str, str]:
    """Return the metadata of a file: texts by name."""
    tensors = {name: {key: value for key, value in asdict(one).items() if value} for name, one in shapes.items()}
    return {
        VERSION_KEY: VERSION,
        "paddle.tensors": json.dumps(tensors),
        **_shorten("paddle.config", text_format.MessageToString(model.config)),
        **_shorten("paddle.script", model.script),
    }


def _shorten(key: str, text: str) -> dict[str, str]:
    """Return a text as metadata, or its digest if it is long; {} for an empty one."""
    data = text.encode("utf-8", "replace")  # a script may have bytes that are no UTF-8
    if len(data) > MOST_TEXT:
        return {f"{key}.sha256": hashlib.sha256(data).hexdigest()}
    return {key: data.decode()} if data else {}


def list_tensors(parameter: Parameter, shapes: Mapping[str, ParameterShape]) -> Iterator[tuple[str, str, Shape]]:
    """Yield the name, the type of the elements and the shape of each tensor of a parameter."""
    yield parameter.name, FLOAT, shapes[parameter.name].shape
    if parameter.pattern is not None:
        yield parameter.name + POSITIONS, INTEGER, (parameter.pattern.file_bytes // 4,)


def _encode_header(tensors: Sequence[tuple[str, str, Shape]], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {METADATA: metadata}
    place = 0
    for name, kind, shape in tensors:
        end = place + 4 * math.prod(shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of eight bytes
    if len(text) > MOST_HEADER:
        raise ConfigError(f"the names and shapes have {len(text)} bytes; a header has at most {MOST_HEADER}")
    return LENGTH.pack(len(text)) + text


def _list_content(header: bytes, table: ParameterTable) -> Iterator[bytes | memoryview]:
    yield header
    for parameter in table:
        yield np.ascontiguousarray(parameter.value, "<f4").data
        if parameter.pattern is not None:
            yield parameter.pattern.encode()

"""Read a network that `Topology.serialize_for_inference` wrote, of this project or of v0.11, without running any code.

Source: spec/v2.md section 6.
"""

from __future__ import annotations

from typing import IO, Any

from google.protobuf.message import DecodeError

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import DataError
from trainer.config.scripts.python2 import binary
from trainer.data.input_types import MOST_IDS, DataType, InputType, SequenceType
from trainer.data.plain_pickle import MOST_BYTES, PlainPickleError, load_records

# the class of the types in a file of v0.11
_TYPE_OF_V011 = ("paddle.trainer.PyDataProvider2", "InputType")


def read_topology(file: IO[Any]) -> tuple[ModelConfig, list[tuple[str, InputType]]]:
    """Return the network, and the name and type of each data layer.

    Raises: DataError: the file is damaged, or too large.
    """
    source = getattr(file, "name", "the file of the topology")
    try:
        found: Any = load_records(binary(file).read(MOST_BYTES + 1), [_TYPE_OF_V011])
        message = found["protobin"]
        if isinstance(message, str):  # bytes of Python 2
            message = message.encode("utf-8", "surrogateescape")
        model = ModelConfig.FromString(message)
        types = [(str(name), _read_type(kind)) for name, kind in found["data_type"]]
    except (PlainPickleError, DecodeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{source} is no topology: {error}; give a file that Topology.serialize_for_inference wrote"
        ) from error
    return model, types


def _read_type(kind: Any) -> InputType:
    """Return a type of three numbers, or of the attributes of an object of v0.11.

    Raises: ValueError, TypeError, KeyError: it is none.
    """
    numbers = [kind["dim"], kind["seq_type"], kind["type"]] if isinstance(kind, dict) else kind
    dim, levels, element = map(int, numbers)
    if not (
        0 <= dim <= MOST_IDS
        and SequenceType.NO_SEQUENCE <= levels <= SequenceType.SUB_SEQUENCE
        and DataType.Dense <= element <= DataType.Index
    ):
        raise ValueError(f"{[dim, levels, element]} is no type of data")
    return InputType(dim, levels, element)

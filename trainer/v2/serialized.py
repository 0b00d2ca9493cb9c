"""Read a network that `Topology.serialize_for_inference` wrote, of this project or of v0.11, without running any code.

Source: spec/v2.md section 6.
"""

from __future__ import annotations

from typing import IO, Any

from google.protobuf.message import DecodeError

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import DataError
from trainer.config.scripts.python2 import binary
from trainer.data.input_types import InputType
from trainer.data.plain_pickle import MOST_BYTES, PlainPickleError, load_plain


def read_topology(file: IO[Any]) -> tuple[ModelConfig, list[tuple[str, InputType]]]:
    """Return the network, and the name and type of each data layer.

    Raises: DataError: the file is damaged, or too large.
    """
    source = getattr(file, "name", "the file of the topology")
    try:
        found: Any = load_plain(binary(file).read(MOST_BYTES + 1))
        model = ModelConfig.FromString(found["protobin"])
        types = [(str(name), InputType(*map(int, kind))) for name, kind in found["data_type"]]
    except (PlainPickleError, DecodeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{source} is no topology: {error}; give a file that Topology.serialize_for_inference wrote"
        ) from error
    return model, types

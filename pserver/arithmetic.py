"""Between the wire and the shard: the service's only use of numpy.

The service imports this module when there is something to compute: a server that has not yet imported numpy
answers its first hello 0.15 s sooner.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pserver import blocks, glog, protocol
from pserver.errors import BugError, ConfigError
from pserver.protocol import Buffer, Message
from pserver.rules import Optimization, ParameterSpec
from pserver.shard import Shard


def describe_setup(parameters: Sequence[ParameterSpec], optimization: Optimization) -> dict[str, Any]:
    """Return the note of INITIALISE: everything that a server must know of the model."""
    return {
        "optimization": dataclasses.asdict(optimization),
        "fields": [field.name for field in dataclasses.fields(ParameterSpec)],
        "parameters": [list(dataclasses.astuple(parameter)) for parameter in parameters],
    }


def build_shard(hello: Mapping[str, Any], message: Message) -> Shard:
    """Return the shard of a service from trainer 0's setup and values.

    Args: hello: trainer 0's hello to this service (which service of how many it is).
    Raises: BugError: if the setup does not fit the hello or itself.  ConfigError: if it is not supported.
    """
    try:
        fields = message.note["fields"]
        parameters = [ParameterSpec(**dict(zip(fields, row, strict=True))) for row in message.note["parameters"]]
        optimization = Optimization(**message.note["optimization"])
        _refuse_unsupported(parameters)
        service, services = int(hello["service"]), int(hello["services"])
        ranges = blocks.layout(parameters, services)[service]
        digest = blocks.digest(parameters)
        shard = Shard(parameters, ranges, optimization, per_parameter=True)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as exc:
        raise BugError(f"the setup of the parameters does not parse ({type(exc).__name__}: {exc})") from exc
    sizes = [memoryview(part).nbytes for part in message.payload]
    if digest != hello.get("parameters") or sizes != [shard.values.nbytes]:
        raise BugError(
            f"the setup (digest {digest}, {shard.values.nbytes} bytes here) is not that of the hello "
            f"(digest {hello.get('parameters')}) and of the values ({sizes} bytes)"
        )
    shard.values[:] = as_array(message.payload[0])
    glog.info("pserver: setParameter", at="ParameterServer2.cpp:260")
    if ranges:
        slots = blocks.count_slots(ranges, blocks.block_size(blocks.count_elements(parameters), services))
        glog.info(f"pserver: new cpuvector: size={slots}", at="ParameterServer2.cpp:306")
    return shard


def _refuse_unsupported(parameters: Sequence[ParameterSpec]) -> None:
    for p in parameters:
        if p.sparse_update:
            raise ConfigError(f"parameter {p.name}: sparse_update with parameter servers is not supported yet")


def step(shard: Shard, gradients: Sequence[Buffer], samples: int) -> None:
    """Take one step with the sum of the gradients, added in the order given."""
    shard.step([as_array(gradient) for gradient in gradients], samples)


def average(shard: Shard) -> Buffer:
    """Return the averages of the last steps' values for the wire."""
    return shard.averages().view("B").data


def as_array(part: Buffer) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the float32 values of a received frame without copying them."""
    return np.frombuffer(part, dtype=protocol.DTYPE)

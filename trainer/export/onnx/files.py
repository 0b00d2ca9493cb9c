"""Checks a graph of ONNX strictly, and writes it with the facts that a program needs to feed it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf import text_format
from onnx import helper

from paddle_base.runtime import VERSION
from paddle_base.runtime.durable_files import write_whole_file
from paddle_base.runtime.errors import BugError, ConfigError, UsageError
from paddle_base.runtime.saves import VALUE_BYTES
from trainer.export.dictionaries import read_dictionaries
from trainer.export.model import TrainedModel
from trainer.export.onnx.graph import NEWEST, OLDEST, OPSET, Graph
from trainer.export.onnx.network import build
from trainer.export.onnx.types import infer_types

MOST_BYTES = (1 << 31) - 1  # a message of protobuf, and so a file of ONNX with its values inside, has at most 2 GiB
# the oldest version of the file's format that has an opset; onnxruntime refuses versions newer than itself
IR_VERSIONS = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10}


def write(model: TrainedModel, target: Path, arguments: argparse.Namespace) -> str:
    """Write a model as a file of ONNX, and return a description of it.

    Raises: UsageError: the opset is not supported. ConfigError: layers have no form in ONNX, or the model is too large.
        VolumeError: the file cannot be written.
    """
    opset = arguments.opset or OPSET
    if not OLDEST <= opset <= NEWEST:
        raise UsageError(f"--opset={opset} is not supported; give {OLDEST} to {NEWEST}")
    dictionaries = {**model.dictionaries, **read_dictionaries(model.config, arguments.dictionary)}
    proto = to_onnx(model, arguments.outputs, opset, dictionaries)
    write_whole_file(target, [proto.SerializeToString()])
    inputs, outputs = ([one.name for one in part] for part in (proto.graph.input, proto.graph.output))
    return f"opset {opset}, inputs {', '.join(inputs)}, outputs {', '.join(outputs)}"


def to_onnx(
    model: TrainedModel,
    outputs: Sequence[str] = (),
    opset: int = OPSET,
    dictionaries: Mapping[str, str] = {},
) -> onnx.ModelProto:
    """Return the checked message of a model.

    Args: outputs: names of layers; (): the outputs of the network. dictionaries: the text of the dictionary file of
        data layers, by name.
    Raises: ConfigError: layers have no form in ONNX, or the model is too large.
    """
    size = sum(one.size for one in model.parameters) * VALUE_BYTES
    if size > MOST_BYTES:
        raise ConfigError(f"the parameters have {size} bytes; a file of ONNX has at most {MOST_BYTES}")
    types = {**infer_types(model.config), **model.types}
    graph = build(model.config, model.parameters, types, outputs or model.outputs, opset)
    return check(make_proto(graph, model, opset, dictionaries))


def make_proto(graph: Graph, model: TrainedModel, opset: int, dictionaries: Mapping[str, str]) -> onnx.ModelProto:
    """Return the message of a graph with the metadata of the model."""
    proto = helper.make_model(
        graph.to_proto("network"),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=IR_VERSIONS[opset],
        producer_name="paddle export",
        producer_version=VERSION,
    )
    names = {one.name.removesuffix(".lengths").removesuffix(".inner_lengths") for one in graph.inputs}
    facts = {
        "layers": "\n".join(f"{one.name}: {one.type}" for one in model.config.layers),
        "config": text_format.MessageToString(model.config),
        **({"script": model.script} if model.script else {}),
        **{f"input_type.{name}": str(kind) for name, kind in model.types.items() if name in names},
        **{f"dictionary.{name}": text for name, text in dictionaries.items()},
    }
    helper.set_model_props(proto, facts)
    return proto


def check(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a message that onnx.checker and its inference of shapes accept.

    Raises: ConfigError: the message is too large. BugError: it is not accepted.
    """
    size = proto.ByteSize()
    if size > MOST_BYTES:
        raise ConfigError(f"the model has {size} bytes; a file of ONNX has at most {MOST_BYTES}")
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise BugError(f"the exported graph is not valid: {error}") from error
    return proto

"""Describe a run for its start record, with its flags, network, parameters and settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict

from paddle_base.proto.ModelConfig_pb2 import SubModelConfig
from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from trainer.arrays.parameters import ParameterTable
from trainer.flags import Values


def describe_run(flags: Values, config: TrainerConfig, table: ParameterTable) -> dict[str, Any]:
    """Return the fields of a start record (trainer/records/records.py), except the position in training."""
    model = config.model_config
    sources, memories = _link_groups(model.sub_models)
    return {
        "trainers": 1 if flags.local else flags.num_gradient_servers,
        "start_pass": flags.start_pass,
        "passes": flags.start_pass + flags.num_passes,
        "resumed_from": flags.resume_from,
        "config": flags.config,
        "flags": {name: getattr(flags, name) for name in sorted(flags.given)},
        "layers": [
            {
                "name": layer.name,
                "type": layer.type,
                "size": layer.size,
                "active_type": layer.active_type,
                "inputs": [one.input_layer_name for one in layer.inputs] or sources.get(layer.name, []),
                "memory_of": memories.get(layer.name, ""),
                "parameters": _parameters_of(layer),
            }
            for layer in model.layers
        ],
        "parameters": [
            {
                "name": one.name,
                "dims": list(one.config.dims),
                "size": one.config.size,
                "is_static": one.config.is_static,
                "is_sparse": one.config.sparse_update or one.config.sparse_remote_update,
            }
            for one in table
        ],
        "evaluators": [one.name for one in model.evaluators],
        "method": MessageToDict(config.opt_config, preserving_proto_field_name=True),
    }


def _link_groups(groups: Iterable[SubModelConfig]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the sources and the memories of recurrent groups.

    The first mapping names for each agent the layer whose output it passes on, and for each memory with an initial
    value the layer of this value. The second mapping names for each memory the layer whose output of the previous step
    it passes on.
    """
    sources: dict[str, list[str]] = {}
    memories: dict[str, str] = {}
    for group in groups:
        sources.update({link.link_name: [link.layer_name] for link in (*group.in_links, *group.out_links)})
        for memory in group.memories:
            if memory.boot_layer_name:
                sources[memory.link_name] = [memory.boot_layer_name]
            if memory.layer_name != memory.link_name:  # a memory that names itself keeps its initial value
                memories[memory.link_name] = memory.layer_name
    return sources, memories


def _parameters_of(layer: Any) -> list[str]:
    names = [one.input_parameter_name for one in layer.inputs] + [layer.bias_parameter_name]
    return list(dict.fromkeys(filter(None, names)))

"""What a start record says of a run: its flags, its network, its parameters and its settings."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from proto.TrainerConfig_pb2 import TrainerConfig
from trainer.flags import Values
from trainer.parameters import ParameterTable


def describe_run(flags: Values, config: TrainerConfig, table: ParameterTable) -> dict[str, Any]:
    """Return what a start record has beside its place (trainer/records.py)."""
    model = config.model_config
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
                "inputs": [one.input_layer_name for one in layer.inputs],
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


def _parameters_of(layer: Any) -> list[str]:
    names = [one.input_parameter_name for one in layer.inputs] + [layer.bias_parameter_name]
    return list(dict.fromkeys(filter(None, names)))

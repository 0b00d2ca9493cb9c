"""Costs are no part of inference: the layers from which a cost is computed take its place. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.layers import LAYERS

COSTS = sorted(kind for kind in LAYERS if LAYERS[kind].is_cost or LAYERS[kind].is_likelihood)
_PAIRED = {"rank-cost"}  # costs whose second input is a prediction, too
_WEIGHTED = {"hsigmoid", "nce"}  # costs whose inputs with a parameter are predictions


def find_predictions(configs: Mapping[str, LayerConfig], outputs: Sequence[str]) -> list[str]:
    """Return the outputs with the predictions of a cost in place of each cost.

    Args: configs: the layers by name.
    Raises: ConfigError: there is no such layer, or nothing is left.
    """
    found: list[str] = []
    waiting = list(reversed(outputs))
    while waiting:
        name = waiting.pop()
        if name not in configs:
            raise ConfigError(f"the network has no layer {name}")
        config = configs[name]
        if config.type not in COSTS:
            found.append(name)
            continue
        count = 2 if config.type in _PAIRED else 1
        if config.type in _WEIGHTED:
            count = sum(bool(one.input_parameter_name) for one in config.inputs)
        waiting += reversed([one.input_layer_name for one in config.inputs[:count]])
    kept = [name for name in dict.fromkeys(found) if configs[name].type != "data"]
    if not kept:
        raise ConfigError("the outputs of the network are costs of its inputs alone; there is nothing to export")
    return kept

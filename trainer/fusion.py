"""Layers that compute faster as one: a rewriting of the message's layers before the network is built. Pure.

The names that remain have the same outputs as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from proto.ModelConfig_pb2 import LayerConfig
from trainer.layers import window_fc


def fuse(layers: Sequence[LayerConfig], kept: Set[str]) -> list[LayerConfig]:
    """Return the layers with each context projection that only a fully connected layer reads put into that layer.

    Args: kept: names of layers whose output somebody else asks for, which remain.
    """
    readers: dict[str, list[LayerConfig]] = {}
    for layer in layers:
        for one in layer.inputs:
            readers.setdefault(one.input_layer_name, []).append(layer)
    windows = {
        layer.name: layer
        for layer in layers
        if layer.name not in kept and _is_window(layer) and _all_connected(readers.get(layer.name, ()))
    }
    return [_join(layer, windows) for layer in layers if layer.name not in windows]


def _is_window(layer: LayerConfig) -> bool:
    """Whether all the layer does is one context projection without padding of its own."""
    kinds = [one.proj_conf.type for one in layer.inputs]
    extras = layer.operator_confs or layer.bias_parameter_name or layer.active_type or layer.drop_rate
    return (
        layer.type == "mixed"
        and kinds == ["context"]
        and not layer.inputs[0].input_parameter_name
        and not extras
        and not layer.error_clipping_threshold
    )


def _all_connected(readers: Iterable[LayerConfig]) -> bool:
    return all(reader.type == "fc" and len(reader.inputs) == 1 for reader in readers)


def _join(layer: LayerConfig, windows: dict[str, LayerConfig]) -> LayerConfig:
    source = windows.get(layer.inputs[0].input_layer_name) if layer.inputs else None
    if source is None:
        return layer
    joined = LayerConfig()
    joined.CopyFrom(layer)
    joined.type = window_fc.KIND
    joined.inputs[0].input_layer_name = source.inputs[0].input_layer_name
    joined.inputs[0].proj_conf.CopyFrom(source.inputs[0].proj_conf)
    return joined

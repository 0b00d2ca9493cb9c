"""Replace chains of layers by single layers that compute faster, before the network is built.

A new layer has the name and the output of the last layer of its chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from trainer.layers.sequence import attention, window_fc

RISING = frozenset({"", "brelu", "exponential", "linear", "relu", "sigmoid", "softrelu", "softsign", "stanh", "tanh"})

Layers = Sequence[LayerConfig]


def fuse(layers: Layers, kept: Set[str]) -> Layers:
    """Return the layers, with one layer in place of each chain of the following kinds:

    1. A context projection, the fully connected layer that reads it, and the maximum over sequences that reads the
       fully connected layer. The first two layers are combined even if no maximum follows.
    2. In attention: the layer that scales the frames by their weights, and the layer that sums the scaled frames.
    3. In attention: the layer that repeats the decoder's state for all frames, the layer that computes the tanh of the
       repeated state plus the frames, and the layer that computes a score from the tanh.

    A chain is replaced only if every layer that reads an inner layer (any layer except the last) is in such a chain.

    Args: kept: names of layers that are not replaced, because other code needs their output.
    """
    layers = _join_pairs(layers, kept, _is_window, _is_connected, _join_window)
    layers = _join_pairs(layers, kept, _is_plain_window_sum, _is_maximum, _join_maximum)
    layers = _join_pairs(layers, kept, _is_scaling, _is_sum, _join_weighted_sum)
    return _join_scores(layers, kept)


def _join_pairs(
    layers: Layers,
    kept: Set[str],
    is_first: Callable[[LayerConfig], bool],
    is_second: Callable[[LayerConfig], bool],
    join: Callable[[LayerConfig, LayerConfig], LayerConfig],
) -> Layers:
    readers = _find_readers(layers)
    firsts = {
        layer.name: layer
        for layer in layers
        if layer.name not in kept and is_first(layer) and all(map(is_second, readers.get(layer.name, ())))
    }
    result = []
    for layer in layers:
        first = firsts.get(layer.inputs[0].input_layer_name) if layer.inputs else None
        if layer.name not in firsts:
            result.append(layer if first is None else join(first, layer))
    return result


def _find_readers(layers: Layers) -> dict[str, list[LayerConfig]]:
    readers: dict[str, list[LayerConfig]] = {}
    for layer in layers:
        for one in layer.inputs:
            readers.setdefault(one.input_layer_name, []).append(layer)
    return readers


def _join_scores(layers: Layers, kept: Set[str]) -> Layers:
    """Return the layers after all chains of the third kind (see `fuse`) are replaced."""
    readers, by_name = _find_readers(layers), {one.name: one for one in layers}
    joined: dict[str, LayerConfig | None] = {}
    for score in layers:
        sums = by_name[score.inputs[0].input_layer_name] if _is_score(score) else None
        expanded = by_name[sums.inputs[0].input_layer_name] if sums is not None and _is_tanh_sum(sums) else None
        if sums is None or expanded is None or not _is_expansion(expanded):
            continue
        if all(one.name not in kept and len(readers[one.name]) == 1 for one in (sums, expanded)):
            joined |= {score.name: _join_score(expanded, sums, score), sums.name: None, expanded.name: None}
    return [one for layer in layers if (one := joined.get(layer.name, layer)) is not None]


def _is_window(layer: LayerConfig) -> bool:
    """Return whether the layer consists of one context projection without trainable padding."""
    if layer.type != "mixed" or [one.proj_conf.type for one in layer.inputs] != ["context"]:
        return False
    extras = layer.operator_confs or layer.bias_parameter_name or layer.active_type
    return not extras and not layer.inputs[0].input_parameter_name and _is_left_alone(layer)


def _is_connected(layer: LayerConfig) -> bool:
    return layer.type == "fc" and len(layer.inputs) == 1


def _is_plain_window_sum(layer: LayerConfig) -> bool:
    return layer.type == window_fc.SUMS and layer.active_type in RISING and _is_left_alone(layer)


def _is_maximum(layer: LayerConfig) -> bool:
    """Return whether the layer is only the maximum over whole sequences."""
    extras = layer.bias_parameter_name or layer.active_type not in ("", "linear") or layer.output_max_index
    return layer.type == "max" and layer.trans_type == "non-seq" and layer.seq_pool_stride <= 0 and not extras


def _is_scaling(layer: LayerConfig) -> bool:
    return layer.type == "scaling" and layer.active_type in ("", "linear") and _is_left_alone(layer)


def _is_sum(layer: LayerConfig) -> bool:
    """Return whether the layer is only the sum over whole sequences."""
    is_whole = layer.trans_type == "non-seq" and layer.seq_pool_stride <= 0
    return layer.type == "average" and layer.average_strategy == "sum" and is_whole and not layer.bias_parameter_name


def _is_expansion(layer: LayerConfig) -> bool:
    is_plain = layer.active_type in ("", "linear") and not layer.bias_parameter_name and _is_left_alone(layer)
    return layer.type == "expand" and layer.trans_type == "non-seq" and is_plain


def _is_tanh_sum(layer: LayerConfig) -> bool:
    """Return whether the layer is the hyperbolic tangent of the sum of two layers."""
    kinds = [one.proj_conf.type for one in layer.inputs]
    extras = layer.operator_confs or layer.bias_parameter_name or not _is_left_alone(layer)
    return layer.type == "mixed" and kinds == ["identity"] * 2 and layer.active_type == "tanh" and not extras


def _is_score(layer: LayerConfig) -> bool:
    return layer.type == "fc" and layer.size == 1 and len(layer.inputs) == 1


def _is_left_alone(layer: LayerConfig) -> bool:
    return not layer.drop_rate and not layer.error_clipping_threshold


def _join_window(window: LayerConfig, connected: LayerConfig) -> LayerConfig:
    joined = LayerConfig()
    joined.CopyFrom(connected)
    joined.type = window_fc.SUMS
    joined.inputs[0].input_layer_name = window.inputs[0].input_layer_name
    joined.inputs[0].proj_conf.CopyFrom(window.inputs[0].proj_conf)
    return joined


def _join_maximum(sums: LayerConfig, maximum: LayerConfig) -> LayerConfig:
    joined = LayerConfig()
    joined.CopyFrom(maximum)
    joined.type, joined.active_type, joined.bias_parameter_name = (
        window_fc.MAXIMA,
        sums.active_type,
        sums.bias_parameter_name,
    )
    joined.inputs[0].CopyFrom(sums.inputs[0])
    return joined


def _join_weighted_sum(scaling: LayerConfig, total: LayerConfig) -> LayerConfig:
    joined = LayerConfig()
    joined.CopyFrom(total)
    joined.type = attention.WEIGHTED_SUMS
    del joined.inputs[:]
    joined.inputs.extend(scaling.inputs)
    return joined


def _join_score(expanded: LayerConfig, sums: LayerConfig, score: LayerConfig) -> LayerConfig:
    joined = LayerConfig()
    joined.CopyFrom(score)
    joined.type = attention.SCORES
    joined.inputs[0].input_layer_name = expanded.inputs[0].input_layer_name
    joined.inputs.add(input_layer_name=sums.inputs[1].input_layer_name)
    joined.inputs.add(input_layer_name=expanded.inputs[1].input_layer_name)
    return joined

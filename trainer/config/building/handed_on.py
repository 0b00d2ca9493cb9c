"""The heights and widths of maps that a layer of v0.10 took over from its first input.

Source: legacy config_parser.py of v0.10, LayerBase and g_pass_height_width.
"""

from __future__ import annotations

from paddle_base.proto import ModelConfig_pb2


def handed_on_maps(model: ModelConfig_pb2.ModelConfig) -> dict[str, tuple[int, int]]:
    """Return the (height, width) in pixels that each layer without its own map takes over from its first input.

    After the first recurrent group of a configuration, layers of v0.10 did not take over a height and width.
    """
    maps: dict[str, tuple[int, int]] = {}
    given: dict[str, tuple[int, int]] = {}
    for layer in model.layers:
        if layer.type == "recurrent_layer_group":
            break
        maps[layer.name] = layer.height, layer.width
        if layer.type == "data" or not layer.inputs or layer.HasField("height"):
            continue
        source = maps[layer.inputs[0].input_layer_name]
        if all(source):
            maps[layer.name] = given[layer.name] = source
    return given

"""The height and width of maps that v0.10 passed on from layer to layer.

Source: legacy config_parser.py of v0.10, LayerBase and g_pass_height_width.
"""

from __future__ import annotations

from proto import ModelConfig_pb2


def handed_on_maps(model: ModelConfig_pb2.ModelConfig) -> dict[str, tuple[int, int]]:
    """Return the (height, width) in pixels that layers without a map of their own get from their first input.

    v0.10 did not pass height and width on after the first recurrent group of the configuration.
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

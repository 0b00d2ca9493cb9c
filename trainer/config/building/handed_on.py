"""Height and width that v0.10 handed on from layer to layer.

Source: legacy config_parser.py of v0.10, LayerBase and g_pass_height_width.
"""

from __future__ import annotations

from proto import ModelConfig_pb2


def handed_on_maps(model: ModelConfig_pb2.ModelConfig) -> dict[str, tuple[int, int]]:
    """Return (height, width) in pixels of the layers that have those of their first input and none of their own.

    v0.10 handed them on until the config's first recurrent group, and from there on no more.
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

"""The conversion of a configuration into the form that PaddlePaddle v0.10 printed.

The config language writes the form of the last PaddlePaddle version that had this language. The two forms describe
equal networks. The conversion removes a field that v0.10 did not have, if the field has the value that v0.10 used. The
conversion also adds heights and widths. In v0.10, each layer took over the height and width of its first input; in the
last version, only a few types of layers take over these numbers.

Source: legacy config_parser.py of v0.10; spec/config.md section 19.
"""

from __future__ import annotations

from paddle_base.proto import ModelConfig_pb2, TrainerConfig_pb2
from trainer.config.building.handed_on import handed_on_maps
from trainer.config.building.state import OlderMarks
from trainer.config.older_groups import rewrite_groups

# for layers of these types without an activation, v0.10 wrote the activation "linear"
_LINEAR = frozenset({"average", "max", "seqlastins", "seqreshape"})
# for each type of layer, the fields that v0.10 did not have
_LATER_FIELDS = {
    "addto": ("height", "width", "depth"),
    "average": ("seq_pool_stride",),
    "batch_norm": ("depth", "epsilon"),
    "concat": ("height", "width", "depth"),
    "cudnn_batch_norm": ("depth", "epsilon"),
    "max": ("seq_pool_stride",),
    "prelu": ("height", "width", "depth"),
    "print": ("user_arg",),
    "scatter_agent": ("height", "width"),
}


def as_v0_10(
    config: TrainerConfig_pb2.TrainerConfig, marks: OlderMarks | None = None
) -> TrainerConfig_pb2.TrainerConfig:
    """Return a copy of a configuration in the form of v0.10.

    Args: marks: facts about the script that the message does not contain.
    """
    older = TrainerConfig_pb2.TrainerConfig()
    older.CopyFrom(config)
    marks = marks or OlderMarks()
    for layer in older.model_config.layers:
        _rewrite(layer)
        if layer.name in marks.linear:
            layer.active_type = "linear"
    _hand_on_maps(older.model_config)
    _flatten_slopes(older.model_config)
    rewrite_groups(older.model_config, marks)
    for layer in older.model_config.layers:
        # because of a bug, v0.10 computed `x + number` for `x - number`; this config language subtracts the number
        if layer.name in marks.subtracted:
            layer.intercept = 0.0 - layer.intercept
    # v0.10 did not write this setting into the message; the setting was only the default threshold of parameters
    older.opt_config.ClearField("gradient_clipping_threshold")
    return older


def _rewrite(layer: ModelConfig_pb2.LayerConfig) -> None:
    if layer.type in _LINEAR and not layer.active_type:
        layer.active_type = "linear"
    for name in _LATER_FIELDS.get(layer.type, ()):
        if name != "seq_pool_stride" or layer.seq_pool_stride == -1:
            layer.ClearField(name)
    for entry in layer.inputs:
        if entry.HasField("conv_conf"):
            entry.conv_conf.ClearField("dilation")
            entry.conv_conf.ClearField("dilation_y")


def _hand_on_maps(model: ModelConfig_pb2.ModelConfig) -> None:
    maps = handed_on_maps(model)
    for layer in model.layers:
        if layer.name in maps:
            layer.height, layer.width = maps[layer.name]


def _flatten_slopes(model: ModelConfig_pb2.ModelConfig) -> None:
    """Remove the shape of the parameters of prelu layers: v0.10 wrote only the number of values."""
    slopes = {entry.input_parameter_name for layer in model.layers if layer.type == "prelu" for entry in layer.inputs}
    for parameter in model.parameters:
        if parameter.name in slopes:
            parameter.ClearField("dims")

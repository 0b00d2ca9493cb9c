"""A config as v0.10 printed it. Ours is that of the legacy's last version, which says more.

The two mean the same to the engine: what is taken out here are fields that v0.10 did not have yet, at the values that
it used. Recurrent groups with a StaticInput or with nested sequences are printed in the later form.
"""

from __future__ import annotations

from proto import ModelConfig_pb2, TrainerConfig_pb2

# layers without an activation, which v0.10 called "linear"
_LINEAR = frozenset({"average", "max", "seqlastins", "seqreshape"})
# type of layer -> fields of later versions
_LATER_FIELDS = {
    "addto": ("height", "width", "depth"),
    "average": ("seq_pool_stride",),
    "batch_norm": ("depth", "epsilon"),
    "concat": ("height", "width", "depth"),
    "cudnn_batch_norm": ("depth", "epsilon"),
    "max": ("seq_pool_stride",),
    "print": ("user_arg",),
    "seqlastins": ("seq_pool_stride",),
}


def as_v0_10(config: TrainerConfig_pb2.TrainerConfig) -> TrainerConfig_pb2.TrainerConfig:
    """Return a copy of a config in which only fields are present that v0.10 wrote."""
    older = TrainerConfig_pb2.TrainerConfig()
    older.CopyFrom(config)
    for layer in older.model_config.layers:
        _rewrite(layer)
    # there it was the default of parameters only
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

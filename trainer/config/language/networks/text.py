"""A network for texts: convolution and pooling.

Source: legacy trainer_config_helpers/networks.py; spec/config.md section 9.
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.activations import IdentityActivation
from trainer.config.building.argument_errors import to_size
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, columns_of, to_layer
from trainer.config.language.layers.basic import fc_layer
from trainer.config.language.layers.mixed import mixed_layer
from trainer.config.language.layers.projections import context_projection
from trainer.config.language.layers.sequence import pooling_layer


@helper("networks", prefix="sequence_conv_pooling", also="text_conv_pool")
def sequence_conv_pool(
    input: Any,
    context_len: int,
    hidden_size: int,
    name: str | None = None,
    context_start: int | None = None,
    pool_type: Any = None,
    context_proj_layer_name: str | None = None,
    context_proj_param_attr: Any = False,
    fc_layer_name: str | None = None,
    fc_param_attr: Any = None,
    fc_bias_attr: Any = None,
    fc_act: Any = None,
    pool_bias_attr: Any = None,
    fc_attr: Any = None,
    context_attr: Any = None,
    pool_attr: Any = None,
) -> LayerOutput:
    """Apply a fully connected layer to each window of context_len rows, and pool the results over the sequence."""
    source = to_layer("input", input)
    windows = mixed_layer(
        name=context_proj_layer_name or f"{name}_conv_proj",
        size=columns_of(source) * to_size("context_len", context_len),
        act=IdentityActivation(),
        layer_attr=context_attr,
        input=[
            context_projection(
                source, context_len=context_len, context_start=context_start, padding_attr=context_proj_param_attr
            )
        ],
    )
    hidden = fc_layer(
        name=fc_layer_name or f"{name}_conv_fc",
        input=windows,
        size=hidden_size,
        act=fc_act,
        layer_attr=fc_attr,
        param_attr=fc_param_attr,
        bias_attr=fc_bias_attr,
    )
    return pooling_layer(
        name=name, input=hidden, pooling_type=pool_type, bias_attr=pool_bias_attr, layer_attr=pool_attr
    )

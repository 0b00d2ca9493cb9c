"""The arguments of Layer(...) in the oldest configurations: inputs, biases, projections, and shapes of image layers.

The oldest configurations refer to a layer by its name. For a parameter without attributes, the default_* functions set
the distribution of the initial values; this distribution does not depend on the number of rows.

Source: legacy config_parser.py; spec/config.md section 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from trainer.config.building.activations import BaseActivation
from trainer.config.building.argument_errors import ArgumentError, to_float, to_int, to_list, to_size, to_text, wrong
from trainer.config.building.attrs import HookAttribute, ParameterAttribute
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput, columns_of
from trainer.config.building.names import public
from trainer.config.building.parameters import add_parameter
from trainer.config.building.state import current
from trainer.config.language.layers import projections
from trainer.config.language.layers.mixed import Term
from trainer.config.language.layers.projections import OperatorTerm, ProjectionTerm

_ATTRIBUTE_NAMES = """
    parameter_name initial_std initial_mean initial_strategy initial_smart num_batches_regularization
    sparse_remote_update sparse_update gradient_clipping_threshold is_static is_shared update_hooks learning_rate
    momentum decay_rate decay_rate_l1"""
_ATTRIBUTES = frozenset(_ATTRIBUTE_NAMES.split())
_INTEGERS = ("initial_strategy", "num_batches_regularization")
_NUMBERS = (
    "decay_rate",
    "decay_rate_l1",
    "gradient_clipping_threshold",
    "initial_mean",
    "initial_std",
    "learning_rate",
    "momentum",
)


class V1Attribute(ParameterAttribute):
    """The attributes of a parameter by their names in the message; missing attributes have the parse's defaults."""

    def __init__(self, **given: Any):
        super().__init__(initial_std=0)
        unknown = sorted(set(given) - _ATTRIBUTES)
        if unknown:
            raise ArgumentError(
                f"there is no attribute {unknown[0]!r}; the attributes are {', '.join(sorted(_ATTRIBUTES))}"
            )
        self.attr = {key: _value(key, value) for key, value in given.items() if value is not None}


def _value(key: str, value: Any) -> Any:
    if key in _INTEGERS:
        return to_int(key, value)
    return to_float(key, value) if key in _NUMBERS else value


def layer_called(name: Any, argument: str = "input_layer_name") -> LayerOutput:
    """Return an existing layer by its name; inside a recurrent group, return the layer of the group with this name."""
    parse = current()
    full_name = parse.full_name(to_text(argument, name))
    if full_name not in parse.layers:
        raise wrong(argument, name, "there is no such layer yet")
    message = parse.layers[full_name]
    pixels = message.height * message.width * message.depth
    found = LayerOutput(
        name,
        message.type,
        activation=BaseActivation(message.active_type, True),
        num_filters=message.num_filters or (message.size // pixels if pixels else None),
        size=message.size,
    )
    found.outputs = ["default", "state"]
    return found


@dataclass
class V1Input:
    """An input of a declared layer: the layer, the attributes of its parameter, and the shapes of image layers."""

    layer: LayerOutput
    attr: V1Attribute
    argument: str | None
    shapes: dict[str, Any]
    storage: tuple[str, int] | None = None  # for sparse storage: the format and the number of values


@helper("v1")
def Input(input_layer_name: str, input_layer_argument: str | None = None, **given: Any) -> V1Input:
    """Name an input layer, with attributes of its parameter and shapes of image layers (conv=, pool= and so on).

    With format "csr" or "csc", and nnz as the number of values, the parameter of a fully connected layer has sparse
    storage.
    """
    kinds = _SHAPES.values()
    ignored = ("format", "nnz", "make_layer_name_in_submodel")
    storage = (given["format"], to_size("nnz", given.get("nnz"))) if given.get("format") in ("csr", "csc") else None
    shapes = {key: given.pop(key) for key in kinds if given.get(key) is not None}
    attributes = {key: value for key, value in given.items() if key not in (*kinds, *ignored)}
    return V1Input(layer_called(input_layer_name), V1Attribute(**attributes), input_layer_argument, shapes, storage)


@helper("v1")
def Bias(**given: Any) -> V1Attribute:
    """Return the attributes of a bias."""
    return V1Attribute(**given)


@helper("v1")
def ParameterHook(type: str, sparsity_ratio: float | None = None) -> HookAttribute:
    """Return a hook on a parameter's update."""
    return HookAttribute(type, sparsity_ratio)


@helper("v1")
def Parameter(name: str, size: int, device: int | None = None, dims: Any = (), **given: Any) -> None:
    """Create a parameter; all layers that use its name share the parameter."""
    shape = [to_size("dims", item) for item in to_list(dims)]
    add_parameter(current(), to_text("name", name), to_int("size", size), shape, V1Attribute(**given).attr, device)


@dataclass
class V1Layer:
    """One call of Layer()."""

    name: str
    kind: str
    inputs: list[V1Input]
    terms: list[Term]
    size: int | None
    activation: BaseActivation
    bias: Any
    options: dict[str, Any]

    def columns(self, index: int = 0) -> int:
        """Return the size of an input."""
        if index >= len(self.inputs):
            raise ArgumentError(f"type {self.kind!r} needs at least {index + 1} inputs; there are {len(self.inputs)}")
        return columns_of(self.inputs[index].layer)

    def given(self) -> int:
        """Return the size that the user gave."""
        if self.size is None:
            raise ArgumentError(f"type {self.kind!r} needs size=")
        return self.size


def to_v1_bias(bias: Any) -> Any:
    """Return the attributes of a bias; True means a bias without attributes, whose initial values can be non-zero."""
    if isinstance(bias, ParameterAttribute) or bias is False:
        return bias
    if bias is not True:
        raise wrong("bias", bias, "it must be True, False or a Bias()")
    return V1Attribute()


# --- shapes of image layers ------------------------------------------------------------------------------------------


# for each function that makes a shape, the argument of Input() that takes the shape
_SHAPES = {
    "BilinearInterp": "bilinear_interp",
    "BlockExpand": "block_expand",
    "Conv": "conv",
    "Conv3D": "conv",
    "Image": "image",
    "MaxOut": "maxout",
    "Norm": "norm",
    "Pad": "pad",
    "Pool": "pool",
    "Pool3d": "pool",
    "RowConv": "row_conv",
    "SpatialPyramidPool": "spp",
    "Upsample": "upsample",
}


def _shape(name: str, required: str, **optional: Any) -> None:
    """Register a function `name` that takes the given arguments, also by position, and returns them in an object."""
    needed = required.split()
    keys = (*needed, *optional)

    def shape(*values: Any, **given: Any) -> SimpleNamespace:
        arguments = {**optional, **dict(zip(keys, values, strict=False)), **given}
        is_known = set(arguments) <= set(keys) and len(values) <= len(keys)
        if not is_known or not arguments.keys() >= set(needed):
            raise ArgumentError(f"{name}() takes {', '.join(keys)}; {', '.join(needed)} must be given")
        return SimpleNamespace(**arguments)

    shape.__name__ = shape.__qualname__ = name
    shape.__doc__ = f"Return the arguments {', '.join(keys)} of an image layer."
    public("v1")(shape)


_CONV = {
    **dict.fromkeys(("filter_channels", "output_x", "img_size", "dilation", "dilation_y")),
    **dict.fromkeys(("filter_size_y", "padding_y", "stride_y", "filter_size_z", "padding_z", "stride_z")),
}
_POOL = dict.fromkeys(("size_y", "start", "stride_y", "padding_y", "size_z", "stride_z", "padding_z"))
for _name in ("Conv", "Conv3D"):
    _shape(_name, "filter_size channels", padding=0, stride=1, groups=1, caffe_mode=True, **_CONV)
for _name in ("Pool", "Pool3d"):
    _shape(_name, "pool_type channels size_x", stride=1, padding=0, **_POOL)
_shape("Norm", "norm_type channels size scale pow", output_x=None, img_size=None, blocked=None)
_shape("Image", "channels", img_size=None)
_shape("BilinearInterp", "out_size_x out_size_y channels")
_shape("SpatialPyramidPool", "pool_type pyramid_height channels")
_shape("Pad", "channels pad_c pad_h pad_w")
_shape("MaxOut", "channels groups", img_size_x=None, img_size_y=None)
_shape("RowConv", "context_length")
_shape("Upsample", "scale", **dict.fromkeys(("scale_y", "pad_out_x", "pad_out_y", "upsample_size", "upsample_size_y")))
_shape(
    "BlockExpand",
    "channels",
    **dict.fromkeys(("padding_x", "padding_y", "stride_x", "stride_y", "block_x", "block_y"), 0),
    **dict.fromkeys(("img_size_x", "img_size_y", "output_x", "output_y")),
)


# --- projections and operators ---------------------------------------------------------------------------------------


@helper("v1")
def FullMatrixProjection(input_layer_name: str, size: int = 0, **given: Any) -> ProjectionTerm:
    """Return x W."""
    return projections.full_matrix_projection(layer_called(input_layer_name), size, V1Attribute(**given))


@helper("v1")
def TransposedFullMatrixProjection(input_layer_name: str, size: int = 0, **given: Any) -> ProjectionTerm:
    """Return x W^T."""
    return projections.trans_full_matrix_projection(layer_called(input_layer_name), size, V1Attribute(**given))


@helper("v1")
def TableProjection(input_layer_name: str, size: int = 0, **given: Any) -> ProjectionTerm:
    """Return the row of W that the id of the input selects."""
    return projections.table_projection(layer_called(input_layer_name), size, V1Attribute(**given))


@helper("v1")
def IdentityProjection(input_layer_name: str, **given: Any) -> ProjectionTerm:
    """Return x."""
    V1Attribute(**given)
    return projections.identity_projection(layer_called(input_layer_name))


@helper("v1")
def IdentityOffsetProjection(input_layer_name: str, offset: int, **given: Any) -> ProjectionTerm:
    """Return the columns of x from an offset on."""
    V1Attribute(**given)
    return projections.identity_projection(layer_called(input_layer_name), offset)


@helper("v1")
def DotMulProjection(input_layer_name: str, **given: Any) -> ProjectionTerm:
    """Return x times w, column by column."""
    return projections.dotmul_projection(layer_called(input_layer_name), V1Attribute(**given))


@helper("v1")
def ScalingProjection(input_layer_name: str, **given: Any) -> ProjectionTerm:
    """Return x times one trained number."""
    return projections.scaling_projection(layer_called(input_layer_name), V1Attribute(**given))


@helper("v1")
def ContextProjection(
    input_layer_name: str, context_start: int, context_length: int, trainable_padding: bool = False, **given: Any
) -> ProjectionTerm:
    """Return the frames around each frame, side by side."""
    padding = V1Attribute(**given) if trainable_padding else False
    return projections.context_projection(layer_called(input_layer_name), context_length, context_start, padding)


def _filters(conv: Any) -> dict[str, Any]:
    if not isinstance(conv, SimpleNamespace):
        raise wrong("conv_conf", conv, "it must be a Conv()")
    return {
        "filter_size": conv.filter_size,
        "num_channels": conv.channels,
        "stride": conv.stride,
        "padding": conv.padding,
        "filter_size_y": conv.filter_size_y,
        "stride_y": conv.stride_y,
        "padding_y": conv.padding_y,
    }


@helper("v1")
def ConvProjection(input_layer_name: str, num_filters: int, conv_conf: Any, **given: Any) -> ProjectionTerm:
    """Convolve a map with trained filters."""
    return projections.conv_projection(
        layer_called(input_layer_name),
        num_filters=num_filters,
        param_attr=V1Attribute(**given),
        **_filters(conv_conf),
        groups=conv_conf.groups,
    )


@helper("v1")
def DotMulOperator(input_layer_names: Any, scale: float | None = None) -> OperatorTerm:
    """Return scale times a times b, column by column."""
    names = to_list(input_layer_names)
    if len(names) != 2:
        raise wrong("input_layer_names", input_layer_names, "it must be two names")
    a, b = map(layer_called, names)
    return projections.dotmul_operator(a, b, scale=1 if scale is None else to_float("scale", scale))


@helper("v1")
def ConvOperator(input_layer_names: Any, num_filters: int, conv_conf: Any) -> OperatorTerm:
    """Convolve the map of each sample with filters that a second layer computes."""
    names = to_list(input_layer_names)
    if len(names) != 2:
        raise wrong("input_layer_names", input_layer_names, "it must be two names")
    image, filters = map(layer_called, names)
    return projections.conv_operator(image, filters, num_filters=num_filters, **_filters(conv_conf))

"""Which layers PyTorch has, and their parameters in its order and under its names. No I/O.

PyTorch multiplies by the transpose, so the weight of a Linear is that of an fc layer transposed. Filters have the same
order in both. The gates of an lstmemory are candidate, input, forget, output, and those of nn.LSTM are input, forget,
candidate, output. An lstmemory reads the products of another layer (fc or mixed), which nn.LSTM computes itself: the
layer becomes part of the LSTM. The reset gate of a gated_recurrent multiplies the state before the product with the
weight, and that of nn.GRU multiplies the product, so that no nn.GRU computes what the layer does.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ConvConfig, LayerConfig, ModelConfig
from trainer.arrays.arguments import Array
from trainer.arrays.parameters import ParameterTable
from trainer.export.tensors.shapes import BATCH_NORMS, PLANES, PLANES_BACK, VOLUMES, VOLUMES_BACK, filter_shape

Argument = int | float | bool | str | tuple[int, ...]
GATES = (1, 2, 0, 3)  # the gates of nn.LSTM, as numbers of gates of an lstmemory
_LINEAR = ("", "linear")
# attributes of nn.Module, which the name of a layer must not hide
_TAKEN = re.compile(
    "apply|bfloat16|buffers|children|compile|cpu|cuda|double|eval|float|forward|half|ipu|load|modules|mtia|parameters"
    "|to|train|training|type|xpu|T_destination"
    "|(add|call|dump|extra|get|load|named|register|requires|set|share|state|to|zero)_.*"
)


@dataclass(frozen=True)
class TorchLayer:
    """A layer as a module of PyTorch.

    Attributes: name: of the module, an identifier. kind: the class in torch.nn. arguments: of its constructor, by
        position and by name. arrays: its parameters and buffers, by name. parameters: the names of the network's
        parameters that it holds. takes: the layer whose products it computes itself; "" for none.
    """

    name: str
    kind: str
    arguments: Sequence[Argument]
    arrays: Mapping[str, Array]
    parameters: frozenset[str]
    options: Mapping[str, Argument] = field(default_factory=dict)
    takes: str = ""


class NotInTorchError(Exception):
    """PyTorch has no such layer; the text says why."""


@dataclass(frozen=True)
class _Source:
    """A layer to convert, with the network around it.

    Attributes: readers: counts the layers and outputs that read a layer.
    """

    layer: LayerConfig
    configs: Mapping[str, LayerConfig]
    readers: Mapping[str, int]
    table: ParameterTable

    @property
    def size(self) -> int:
        return int(self.layer.size)

    def value(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return a parameter in a shape."""
        parameter = self.table[name]
        if parameter.pattern is not None:
            return parameter.pattern.spread(parameter.value).reshape(shape)
        return parameter.value.reshape(shape)

    def bias(self) -> Array | None:
        name = self.layer.bias_parameter_name
        return self.value(name, (-1,)) if name else None

    def names(self) -> frozenset[str]:
        """Return the names of the layer's parameters."""
        found = {one.input_parameter_name for one in self.layer.inputs} | {self.layer.bias_parameter_name}
        return frozenset(found - {""})

    def of(self, name: str) -> _Source:
        """Return another layer of the network."""
        return _Source(self.configs[name], self.configs, self.readers, self.table)


def convert_layers(model: ModelConfig, table: ParameterTable) -> tuple[dict[str, TorchLayer], dict[str, str]]:
    """Return the layers with parameters that PyTorch has, by name, and for the others the reason why it has not."""
    configs = {one.name: one for one in model.layers}
    readers = Counter(one for layer in model.layers for one in {entry.input_layer_name for entry in layer.inputs})
    readers.update(model.output_layer_names)
    found: dict[str, TorchLayer] = {}
    refused: dict[str, str] = {}
    names: set[str] = set()
    for layer in model.layers:
        source = _Source(layer, configs, readers, table)
        if not source.names():
            continue
        try:
            made = _convert(source)
        except NotInTorchError as error:
            refused[layer.name] = str(error)
        else:
            found[layer.name] = _rename(made, make_identifier(layer.name, names))
    merged = {one.takes for one in found.values() if one.takes and readers[one.takes] == 1}
    return {name: one for name, one in found.items() if name not in merged}, refused


def _rename(layer: TorchLayer, name: str) -> TorchLayer:
    return TorchLayer(name, layer.kind, layer.arguments, layer.arrays, layer.parameters, layer.options, layer.takes)


def make_identifier(name: str, taken: set[str]) -> str:
    """Return the name of a layer as an attribute of a module, and add it to `taken`.

    Letters outside of ASCII and signs become "_".
    """
    stem = re.sub(r"[^0-9A-Za-z_]", "_", name)[:100]
    is_own = re.fullmatch(r"__\w*_\d+__", stem) is not None  # the name that v0.10 gives a layer without one
    is_free = stem.isidentifier() and not (keyword.iskeyword(stem) or _TAKEN.fullmatch(stem) or stem.startswith("_"))
    if not (is_own or is_free):
        stem = f"layer_{stem.strip('_')}"
    found, number = stem, 1
    while found in taken:
        number += 1
        found = f"{stem}_{number}"
    taken.add(found)
    return found


def _convert(source: _Source) -> TorchLayer:
    convert = _CONVERTERS.get(source.layer.type)
    if convert is None:
        raise NotInTorchError("PyTorch has no such layer")
    try:
        return convert(source)
    except ValueError as error:  # a parameter has another number of values than its layer
        raise NotInTorchError(str(error)) from error


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise NotInTorchError(why)


# ----- Rows -----


def _list_weights(source: _Source) -> Iterator[Array]:
    """Yield the weight of each input of an fc layer or of a mixed layer of matrices: (width of the input, size)."""
    layer = source.layer
    for one in layer.inputs:
        if layer.type == "mixed" and one.proj_conf.type == "trans_fc":
            yield source.value(one.input_parameter_name, (source.size, -1)).T
            continue
        _require(layer.type == "fc" or one.proj_conf.type == "fc", "it has a term that is no product with a matrix")
        yield source.value(one.input_parameter_name, (-1, source.size))


def _linear(source: _Source) -> TorchLayer:
    """A sum of products is the product of all inputs, one beside the other, with all weights."""
    _require(not source.layer.operator_confs, "it has an operator")
    weight = np.concatenate(list(_list_weights(source)))
    bias = source.bias()
    _require(bias is None or bias.size == source.size, "its bias is shared by columns")
    arrays = {"weight": weight.T, **({} if bias is None else {"bias": bias})}
    options = {} if bias is not None else {"bias": False}
    return TorchLayer("", "Linear", (weight.shape[0], source.size), arrays, source.names(), options)


def _mixed(source: _Source) -> TorchLayer:
    layer = source.layer
    kinds = [one.proj_conf.type for one in layer.inputs]
    if kinds != ["table"]:
        return _linear(source)
    _require(not layer.bias_parameter_name and not layer.operator_confs, "it adds more to the rows of the table")
    words = int(layer.inputs[0].proj_conf.input_size)
    table = source.value(layer.inputs[0].input_parameter_name, (words, source.size))
    return TorchLayer("", "Embedding", (words, source.size), {"weight": table}, source.names())


def _bilinear(source: _Source) -> TorchLayer:
    layer, bias = source.layer, source.bias()
    first, second = (int(source.configs[one.input_layer_name].size) for one in layer.inputs)
    arrays = {"weight": source.value(layer.inputs[0].input_parameter_name, (source.size, first, second))}
    if bias is not None:
        arrays["bias"] = bias
    options = {} if bias is not None else {"bias": False}
    return TorchLayer("", "Bilinear", (first, second, source.size), arrays, source.names(), options)


def _prelu(source: _Source) -> TorchLayer:
    slopes = source.value(source.layer.inputs[0].input_parameter_name, (-1,))
    size = int(source.configs[source.layer.inputs[0].input_layer_name].size)
    _require(slopes.size in (1, size), "its slopes are shared by parts of a row")
    return TorchLayer("", "PReLU", (slopes.size,), {"weight": slopes}, source.names())


# ----- Images -----


def windows_of(conf: ConvConfig, dimensions: int) -> dict[str, tuple[int, ...]]:
    """Return the size, stride, padding and dilation of filters: each (height, width), or (depth, height, width)."""
    last = -dimensions
    return {
        "kernel_size": (conf.filter_size_z, conf.filter_size_y or conf.filter_size, conf.filter_size)[last:],
        "stride": (conf.stride_z, conf.stride_y or conf.stride, conf.stride)[last:],
        "padding": (conf.padding_z, conf.padding_y, conf.padding)[last:],
        "dilation": (1, conf.dilation_y, conf.dilation)[last:],
    }


def _convolution(dimensions: int, is_transposed: bool) -> Callable[[_Source], TorchLayer]:
    def convert(source: _Source) -> TorchLayer:
        layer, bias = source.layer, source.bias()
        _require(len(layer.inputs) == 1, "it adds the results of several inputs")
        _require(bias is None or layer.shared_biases, "each place of its maps has a bias of its own")
        conf, filters = layer.inputs[0].conv_conf, int(layer.num_filters)
        shape = filter_shape(conf, filters, is_transposed=is_transposed, dimensions=dimensions)
        arrays = {"weight": source.value(layer.inputs[0].input_parameter_name, shape)}
        if bias is not None:
            arrays["bias"] = bias
        options: dict[str, Argument] = dict(windows_of(conf, dimensions))
        if is_transposed:
            options["output_padding"] = _output_padding(conf, dimensions)
        defaults = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
        options = {name: one for name, one in options.items() if one != (defaults.get(name),) * dimensions}
        if conf.groups != 1:
            options["groups"] = int(conf.groups)
        if bias is None:
            options["bias"] = False
        kind = f"Conv{'Transpose' * is_transposed}{dimensions}d"
        return TorchLayer("", kind, (int(conf.channels), filters), arrays, source.names(), options)

    return convert


def _output_padding(conf: ConvConfig, dimensions: int) -> tuple[int, ...]:
    """Return how much larger the images are than the least that the windows of a transposed convolution cover."""
    images = (conf.img_size_z, conf.img_size_y or conf.img_size, conf.img_size)[-dimensions:]
    grids = (conf.output_z, conf.output_y or conf.output_x, conf.output_x)[-dimensions:]
    windows = windows_of(conf, dimensions)
    extra = []
    for image, grid, size, stride, padding, dilation in zip(images, grids, *windows.values(), strict=True):
        least = (grid - 1) * stride - 2 * padding + dilation * (size - 1) + 1
        _require(0 <= image - least < max(stride, dilation), "its images are of another size than those of PyTorch")
        extra.append(int(image - least))
    return tuple(extra)


def _batch_norm(source: _Source) -> TorchLayer:
    layer, bias = source.layer, source.bias()
    is_fixed = not layer.HasField("use_global_stats") or layer.use_global_stats
    _require(is_fixed, "it uses the statistics of the batch in tests, too")
    image = layer.inputs[0].image_conf
    channels = int(image.channels)
    scale, mean, variance = (source.value(one.input_parameter_name, (channels,)) for one in layer.inputs)
    arrays = {
        "weight": scale,
        "bias": np.zeros_like(scale) if bias is None else bias,
        "running_mean": mean,
        "running_var": np.maximum(variance, 0),
        "num_batches_tracked": np.zeros((), np.int64),
    }
    width = source.size or int(source.configs[layer.inputs[0].input_layer_name].size)
    dimensions = 1 if width == channels else 3 if image.img_size_z > 1 else 2
    options = {"eps": float(layer.epsilon), "momentum": round(1 - float(layer.moving_average_fraction), 9)}
    return TorchLayer("", f"BatchNorm{dimensions}d", (channels,), arrays, source.names(), options)


# ----- Sequences -----


def _input_products(source: _Source) -> tuple[str, Array, Array | None, frozenset[str]]:
    """Return the layer that multiplies the input of a recurrent layer, its weight and bias, and their names."""
    name = source.layer.inputs[0].input_layer_name
    before = source.of(name)
    is_plain = before.layer.active_type in _LINEAR and not before.layer.drop_rate
    _require(before.layer.type in ("fc", "mixed") and is_plain, f"its input {name} is no plain product with a matrix")
    made = _convert(before)
    _require(made.kind == "Linear", f"its input {name} is no plain product with a matrix")
    return name, made.arrays["weight"], made.arrays.get("bias"), made.parameters


def _lstm(source: _Source) -> TorchLayer:
    layer, size = source.layer, source.size
    kinds = layer.active_type, layer.active_gate_type, layer.active_state_type
    _require(kinds == ("tanh", "sigmoid", "tanh"), f"its activations are {', '.join(kinds)}")
    name, before, before_bias, names = _input_products(source)
    bias = source.bias()
    if bias is None:
        bias = np.zeros(7 * size, np.float32)
    _require(bias.size == 7 * size, f"its bias has {bias.size} values")
    _require(not bias[4 * size :].any(), "it has peepholes, which nn.LSTM has not")
    sums = bias[: 4 * size] if before_bias is None else bias[: 4 * size] + before_bias
    weight = source.value(layer.inputs[0].input_parameter_name, (size, 4 * size))
    arrays = {
        "weight_ih_l0": _order_gates(before, size),
        "weight_hh_l0": _order_gates(weight.T, size),
        "bias_ih_l0": _order_gates(sums, size),
        "bias_hh_l0": np.zeros(4 * size, np.float32),
    }
    options = {"batch_first": True}
    return TorchLayer("", "LSTM", (before.shape[1], size), arrays, source.names() | names, options, name)


def _order_gates(rows: Array, size: int) -> Array:
    gates: Array = rows.reshape(4, size, *rows.shape[1:])[list(GATES)]
    return gates.reshape(rows.shape)


def _simple(source: _Source) -> TorchLayer:
    layer, size = source.layer, source.size
    kind = layer.active_type
    _require(kind in ("tanh", "relu"), f"its activation is {kind or 'linear'}")
    name, before, before_bias, names = _input_products(source)
    bias = source.bias()
    sums = np.zeros(size, np.float32) + (0 if bias is None else bias) + (0 if before_bias is None else before_bias)
    arrays = {
        "weight_ih_l0": before,
        "weight_hh_l0": source.value(layer.inputs[0].input_parameter_name, (size, size)).T,
        "bias_ih_l0": sums,
        "bias_hh_l0": np.zeros(size, np.float32),
    }
    options: dict[str, Argument] = {"nonlinearity": kind, "batch_first": True}
    return TorchLayer("", "RNN", (before.shape[1], size), arrays, source.names() | names, options, name)


def _gru(source: _Source) -> TorchLayer:
    raise NotInTorchError("its reset gate comes before the product with the weight, and that of nn.GRU after it")


_CONVERTERS: dict[str, Callable[[_Source], TorchLayer]] = {
    "fc": _linear,
    "mixed": _mixed,
    "tensor": _bilinear,
    "prelu": _prelu,
    "lstmemory": _lstm,
    "recurrent": _simple,
    "gated_recurrent": _gru,
    "gru_step": _gru,
    **dict.fromkeys(PLANES, _convolution(2, is_transposed=False)),
    **dict.fromkeys(PLANES_BACK, _convolution(2, is_transposed=True)),
    **dict.fromkeys(VOLUMES, _convolution(3, is_transposed=False)),
    **dict.fromkeys(VOLUMES_BACK, _convolution(3, is_transposed=True)),
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
}

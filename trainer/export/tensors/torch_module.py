"""Writes a network that is a chain of layers as the text of a class of PyTorch, which loads the state_dict. No I/O.

The text has no word of the network's author: names of layers become identifiers of ASCII, and what else comes from the
network are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig, PoolConfig
from trainer.arrays.activations import (
    BRELU_CEILING,
    SIGMOID_CEILING,
    SIGMOID_FLOOR,
    SOFTRELU_LIMIT,
    STANH_SCALE,
    STANH_SLOPE,
)
from trainer.data.input_types import DataType, InputType
from trainer.export.predictions import find_predictions
from trainer.export.tensors.torch_layers import NotInTorchError, TorchLayer, windows_of

_ACTIVATIONS = {
    "abs": "x.abs()",
    "brelu": f"x.clamp(0, {BRELU_CEILING})",
    "exponential": "x.exp()",
    "log": "x.log()",
    "reciprocal": "1 / x",
    "relu": "torch.relu(x)",
    "sigmoid": f"torch.sigmoid(x.clamp({SIGMOID_FLOOR}, {SIGMOID_CEILING}))",
    "softmax": "torch.softmax(x, -1)",
    "softrelu": f"functional.softplus(x.clamp({-SOFTRELU_LIMIT}, {SOFTRELU_LIMIT}), threshold=100)",
    "softsign": "functional.softsign(x)",
    "sqrt": "x.sqrt()",
    "square": "x * x",
    "stanh": f"{STANH_SCALE} * torch.tanh({STANH_SLOPE} * x)",
    "tanh": "torch.tanh(x)",
}
_OWN_ACTIVATION = frozenset({"lstmemory", "recurrent", "data"})  # layers that apply their activation themselves
_HELPERS = {
    "is_frame": '''
def is_frame(x, lengths):
    """Return which frames of [batch, time, size] are no padding: [batch, time, 1]."""
    return (torch.arange(x.shape[1], device=x.device) < lengths[:, None]).unsqueeze(-1)
''',
    "reverse": '''
def reverse(x, lengths):
    """Return the frames of each sequence in reversed order; the padding stays behind them."""
    places = (lengths[:, None] - 1 - torch.arange(x.shape[1], device=x.device)).clamp(min=0)
    return x.gather(1, places.unsqueeze(-1).expand_as(x))
''',
}


@dataclass
class _ChainStep:
    """A layer of the chain whose lines are to be written.

    Attributes: module: its module of PyTorch, if it has one. width: the size of its input.
    """

    layer: LayerConfig
    module: TorchLayer | None
    width: int
    is_sequence: bool

    def call(self, text: str = "x") -> str:
        """Return the call of the module."""
        assert self.module is not None  # `_write_step` has refused a layer without one
        return f"self.{self.module.name}({text})"


def write_module(
    model: ModelConfig,
    types: Mapping[str, InputType],
    layers: Mapping[str, TorchLayer],
    refused: Mapping[str, str],
    weights: str,
    outputs: Sequence[str] = (),
) -> str:
    """Return the text of a Python module with a class `Network`.

    Args: types: of the data layers. layers, refused: the results of `convert_layers`. weights: the name of the file of
            the state_dict. outputs: names of layers; (): the outputs of the network.
    Raises: NotInTorchError: the network is no chain, or a layer has no form; the text says which.
    """
    chain = find_chain(model, outputs or model.output_layer_names)
    data, kind = chain[0], types[chain[0].name]
    if kind.seq_type > 1:
        raise NotInTorchError(f"data layer {data.name} has nested sequences")
    inside = {layers[one.name].takes for one in chain if one.name in layers}
    is_sequence, width = kind.seq_type == 1, int(data.size)
    lines: list[str] = []
    used: list[TorchLayer] = []
    for layer in chain[1:]:
        if layer.name not in inside:
            if layer.name in refused:
                raise NotInTorchError(f"layer {layer.name} ({layer.type}): {refused[layer.name]}")
            step = _ChainStep(layer, layers.get(layer.name), width, is_sequence)
            lines += [f"# {_plain(layer.name)}: {_plain(layer.type)}", *_write_step(step)]
            is_sequence = step.is_sequence
            used += [step.module] if step.module is not None else []
        width = int(layer.size) or width
    held = {name for one in used for name in one.parameters}
    is_whole = len(used) == len(layers) and held == {one.name for one in model.parameters}
    load = f"torch.load({_plain(weights)!r}, weights_only=True){'' if is_whole else ', strict=False'}"
    about = _describe_input(kind, int(data.size))
    return _write_text(used, lines, about, load, "x, lengths" if kind.seq_type == 1 else "x")


def find_chain(model: ModelConfig, outputs: Sequence[str]) -> list[LayerConfig]:
    """Return the layers from the data to the only output, if each has one layer as input.

    Raises: NotInTorchError: it is no chain. ConfigError: the network has no predictions, or not these layers.
    """
    configs = {one.name: one for one in model.layers}
    names = find_predictions(configs, list(outputs))
    if len(names) != 1:
        raise NotInTorchError(f"the network has the outputs {', '.join(names)}")
    chain = [configs[names[0]]]
    while chain[-1].type != "data":
        inputs = {one.input_layer_name for one in chain[-1].inputs}
        if len(inputs) != 1 or len(chain) > len(configs):
            raise NotInTorchError(f"layer {chain[-1].name} has {len(inputs)} inputs")
        (name,) = inputs
        if name not in configs:
            raise NotInTorchError(f"layer {chain[-1].name} reads no layer of the network")
        chain.append(configs[name])
    return chain[::-1]


def _plain(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_.@/ -]", "_", name)[:60]


def _describe_input(kind: InputType, size: int) -> str:
    columns = f"] int64, ids below {size}" if kind.type == DataType.Index else f", {size}] float32"
    if kind.seq_type == 1:
        return f"x: [batch, time{columns}; lengths: [batch] int64, the number of frames of each sample"
    return f"x: [batch{columns}"


def _write_text(used: list[TorchLayer], lines: list[str], about: str, load: str, names: str) -> str:
    body = "\n".join(f"        {line}" for line in [*lines, "return x"])
    modules = "\n".join(f"        self.{one.name} = nn.{one.kind}({_arguments(one)})" for one in used)
    helpers = "".join(f"\n{text}" for name, text in _HELPERS.items() if f"{name}(" in body)
    functional = "from torch.nn import functional\n" if "functional." in body else ""
    return f'''"""A network of PaddlePaddle v0.10 as a module of PyTorch. `paddle export` wrote this file.

    network = Network()
    network.load_state_dict({load})
    network.eval()
"""

import torch
from torch import nn
{functional}{helpers}

class Network(nn.Module):
    """{about}."""

    def __init__(self):
        super().__init__()
{modules}

    def forward(self, {names}):
{body}
'''


def _arguments(layer: TorchLayer) -> str:
    options = [f"{name}={value!r}" for name, value in layer.options.items()]
    return ", ".join([*(repr(one) for one in layer.arguments), *options])


def _write_step(step: _ChainStep) -> list[str]:
    """Return the lines of a layer; `step.is_sequence` then says whether its output has sequences."""
    layer = step.layer
    write = _FORMS.get(layer.type)
    if write is None:
        raise NotInTorchError(f"layer {layer.name} ({layer.type}) has no form in the text of a module")
    lines = write(step)
    kind = layer.active_type
    if kind not in ("", "linear") and layer.type not in _OWN_ACTIVATION:
        if kind not in _ACTIVATIONS:
            raise NotInTorchError(f"layer {layer.name} has the activation {kind}")
        lines.append(f"x = {_ACTIVATIONS[kind]}")
    if layer.drop_rate:
        # v0.10 multiplies by 1 - drop_rate in tests, and PyTorch divides by it in training
        lines.append(f"x = functional.dropout(x, {layer.drop_rate!r}, self.training) * {1 - layer.drop_rate!r}")
    return lines


def _require(step: _ChainStep, condition: object, why: str) -> None:
    if not condition:
        raise NotInTorchError(f"layer {step.layer.name} ({step.layer.type}) {why}")


def _write_rows(step: _ChainStep) -> list[str]:
    assert step.module is not None
    if step.module.kind == "Embedding":  # the id -1 has a row of zeros
        return [f"x = {step.call('x.clamp(min=0)')} * (x >= 0).unsqueeze(-1)"]
    return [f"x = {step.call()}"]


def _on_images(channels: int, image: tuple[int, ...], call: Callable[[str], str], size: int) -> list[str]:
    """Return a line that gives rows as images to a function, and takes images as rows."""
    shape = ", ".join(map(str, (channels, *image)))
    return [f"x = {call(f'x.reshape(-1, {shape})')}.reshape(*x.shape[:-1], {size})"]


def _write_convolution(step: _ChainStep) -> list[str]:
    assert step.module is not None
    conf, dimensions = step.layer.inputs[0].conv_conf, int(step.module.kind[-2])
    images = (conf.img_size_z, conf.img_size_y or conf.img_size, conf.img_size)[-dimensions:]
    grids = (conf.output_z, conf.output_y or conf.output_x, conf.output_x)[-dimensions:]
    if "Transpose" in step.module.kind:
        images, grids = grids, images
    else:
        for image, grid, size, stride, padding, dilation in zip(
            images, grids, *windows_of(conf, dimensions).values(), strict=True
        ):
            floor = (image + 2 * padding - dilation * (size - 1) - 1) // stride + 1
            _require(step, grid == floor, "has windows that end outside of the image")
    size = int(step.layer.num_filters)
    for one in grids:
        size *= one
    return _on_images(int(conf.channels), images, step.call, size)


def _write_pool(step: _ChainStep) -> list[str]:
    conf = step.layer.inputs[0].pool_conf
    images, grids, sizes, strides, paddings = _pool_axes(conf)
    rounded = set()
    for image, grid, size, stride, padding in zip(images, grids, sizes, strides, paddings, strict=True):
        span = image + 2 * padding - size
        by_ceil = -(-span // stride) + 1
        if (by_ceil - 1) * stride >= image + padding:
            by_ceil -= 1  # PyTorch leaves out a window that begins behind the image
        rounded.add((grid == span // stride + 1, grid == by_ceil))
        _require(step, 2 * padding <= size, "has more padding than PyTorch takes")
    is_floor, is_ceil = (all(one[way] for one in rounded) for way in range(2))
    _require(step, is_floor or is_ceil, "has another number of windows than in PyTorch")
    is_max = conf.pool_type in ("max-projection", "cudnn-max-pool")
    _require(step, is_max or conf.pool_type in _AVERAGES, f"has the type {_plain(conf.pool_type)}")
    # as in PoolLayer: an average counts the padding unless the message says that it does not
    counts = conf.pool_type == "cudnn-avg-incl-pad-pool" or not (conf.HasField("exclude_mode") and conf.exclude_mode)
    more = "" if is_max else f", count_include_pad={counts}"
    name = "max_pool2d" if is_max else "avg_pool2d"

    def call(x: str) -> str:
        return f"functional.{name}({x}, {sizes}, {strides}, {paddings}, ceil_mode={not is_floor}{more})"

    return _on_images(int(conf.channels), images, call, int(conf.channels) * grids[0] * grids[1])


_AVERAGES = ("avg-projection", "cudnn-avg-pool", "cudnn-avg-incl-pad-pool")


def _pool_axes(conf: PoolConfig) -> list[tuple[int, int]]:
    """Return the images, grids, sizes, strides and paddings, each (height, width)."""
    fields = ("img_size", "output", "size", "stride", "padding")
    names = {"output": ("output_y", "output_x"), "size": ("size_y", "size_x")}
    pairs = [names.get(one, (f"{one}_y", one)) for one in fields]
    return [(int(getattr(conf, y if conf.HasField(y) else x)), int(getattr(conf, x))) for y, x in pairs]


def _write_batch_norm(step: _ChainStep) -> list[str]:
    assert step.module is not None
    channels = step.module.arguments[0]
    assert isinstance(channels, int)
    if step.module.kind == "BatchNorm1d" and not step.is_sequence:
        return [f"x = {step.call()}"]
    pixels = step.width // channels
    shape = (
        (pixels,)
        if step.module.kind == "BatchNorm1d"
        else (pixels, 1)
        if step.module.kind[-2] == "2"
        else (pixels, 1, 1)
    )
    return _on_images(channels, shape, step.call, step.width)


def _write_norm(step: _ChainStep) -> list[str]:
    conf = step.layer.inputs[0].norm_conf
    _require(step, conf.norm_type == "cmrnorm-projection" and conf.size % 2, "normalises in another way than PyTorch")
    alpha = float(conf.scale) * int(conf.size)  # PyTorch divides by the size

    def call(x: str) -> str:
        return f"functional.local_response_norm({x}, {int(conf.size)}, {alpha!r}, {float(conf.pow)!r}, 1.0)"

    return _on_images(int(conf.channels), (step.width // int(conf.channels), 1), call, step.width)


def _write_recurrent(step: _ChainStep) -> list[str]:
    _require(step, step.is_sequence, "reads no sequences")
    if not step.layer.reversed:
        return [f"x = {step.call()}[0]"]
    return [f"x = reverse({step.call('reverse(x, lengths)')}[0], lengths)"]


def _write_pooling(step: _ChainStep) -> list[str]:
    layer = step.layer
    plain = layer.trans_type == "non-seq" and layer.seq_pool_stride <= 0 and not layer.output_max_index
    _require(step, step.is_sequence and plain, "does not pool whole sequences")
    step.is_sequence = False
    filled = "(lengths > 0)[:, None]"
    if layer.type == "max":
        return [f"x = x.masked_fill(~is_frame(x, lengths), -torch.inf).amax(1).where({filled}, 0)"]
    if layer.type == "seqlastins":
        place = "torch.zeros_like(lengths)" if layer.select_first else "(lengths - 1).clamp(min=0)"
        return [f"x = x[torch.arange(len(x), device=x.device), {place}].where({filled}, 0)"]
    divisors = {"average": " / {}", "squarerootn": " / {}.sqrt()", "sum": ""}
    _require(step, layer.average_strategy in divisors, "has an unknown strategy")
    divisor = divisors[layer.average_strategy].format("lengths.clamp(min=1)[:, None]")
    return [f"x = x.where(is_frame(x, lengths), 0).sum(1){divisor}"]


def _write_nothing(step: _ChainStep) -> list[str]:
    _require(step, len(step.layer.inputs) == 1, "reads its input several times")
    return []


_FORMS: dict[str, Callable[[_ChainStep], list[str]]] = {
    "addto": _write_nothing,
    "concat": _write_nothing,
    "fc": _write_rows,
    "mixed": _write_rows,
    "prelu": _write_rows,
    "slope_intercept": lambda step: [f"x = x * {step.layer.slope!r} + {step.layer.intercept!r}"],
    "maxid": lambda _step: ["x = x.argmax(-1)"],
    "batch_norm": _write_batch_norm,
    "cudnn_batch_norm": _write_batch_norm,
    "norm": _write_norm,
    "pool": _write_pool,
    "lstmemory": _write_recurrent,
    "recurrent": _write_recurrent,
    **dict.fromkeys(("max", "average", "seqlastins"), _write_pooling),
    **dict.fromkeys(
        ("exconv", "cudnn_conv", "conv", "exconvt", "cudnn_convt", "convt", "conv3d", "deconv3d"), _write_convolution
    ),
}

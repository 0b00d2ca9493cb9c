"""Image layers for tests: their configuration messages, made from shapes, and small networks around them."""

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.network.network import Network


def conv_conf(channels, image, size, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, filters=0, **extra):
    """A ConvConfig from (y, x) pairs, sizes of the output rounded down."""
    grid = [
        (i + 2 * p - (k - 1) * d - 1) // s + 1
        for i, k, s, p, d in zip(image, size, stride, padding, dilation, strict=True)
    ]
    return {
        "channels": channels,
        "groups": groups,
        "filter_channels": (filters or channels) // groups,
        "caffe_mode": True,
        **dict(zip(("img_size_y", "img_size"), image, strict=True)),
        **dict(zip(("output_y", "output_x"), grid, strict=True)),
        **dict(zip(("filter_size_y", "filter_size"), size, strict=True)),
        **dict(zip(("stride_y", "stride"), stride, strict=True)),
        **dict(zip(("padding_y", "padding"), padding, strict=True)),
        **dict(zip(("dilation_y", "dilation"), dilation, strict=True)),
        **extra,
    }


def volume_conf(channels, image, size, stride, padding, filters=0):
    """A ConvConfig from (z, y, x) triples."""
    grid = [(i + 2 * p - k) // s + 1 for i, k, s, p in zip(image, size, stride, padding, strict=True)]
    return {
        **conv_conf(channels, image[1:], size[1:], stride[1:], padding[1:], filters=filters),
        "img_size_z": image[0],
        "output_z": grid[0],
        "filter_size_z": size[0],
        "stride_z": stride[0],
        "padding_z": padding[0],
    }


def pool_conf(channels, image, size, stride, padding=(0, 0), kind="max-projection", **extra):
    """A PoolConfig from (y, x) or (z, y, x), sizes of the output rounded up."""
    result = {"channels": channels, "pool_type": kind, **extra}
    names = [
        ("_z", "_z"),
        ("_y", "_y"),
        ("", "_x"),
    ][-len(image) :]
    for (tail, x_tail), i, k, s, p in zip(names, image, size, stride, padding, strict=True):
        grid = 1 - (-(i + 2 * p - k) // s)
        result |= {f"img_size{tail}": i, f"output{x_tail}": grid, f"size{x_tail}": k, f"stride{tail}": s}
        result[f"padding{tail}"] = p
    return result


def layer(kind, inputs, bias=0, **fields):
    """A layer's record: its inputs are dicts of LayerInputConfig with `parameter`, the size of a parameter.

    `image`, if given, is the height and width of the layer before it in the message; `filters` is the size of a
    second layer before it.
    """
    return {"type": kind, "inputs": inputs, "bias": bias, **fields}


def image_conf(channels, image):
    return {"channels": channels, **dict(zip(("img_size_y", "img_size"), image, strict=True))}


def batch_norm_of(channels, pixels, **fields):
    inputs = [
        {"image_conf": {"channels": channels, "img_size": pixels, "img_size_y": 1}, "parameter": channels},
        {"parameter": channels, "static": True},
        {"parameter": channels, "static": True},
    ]
    return layer("batch_norm", inputs, channels, size=channels * pixels, **fields)


def norm_of(kind, channels, pixels, size, **conf):
    fields = {"norm_type": kind, "channels": channels, "size": size, "scale": 0.3, "pow": 0.75}
    fields |= {"output_x": pixels, "img_size": pixels, "output_y": 1, "img_size_y": 1, **conf}
    return {"norm_conf": fields}


def build(width, fields):
    """Build a network: data layer `x`, fc layer `first`, and the layer under test, `out`, which is the output layer."""
    config = ModelConfig(type="nn", output_layer_names=["out"])
    config.layers.add(name="x", type="data", size=width)
    first = config.layers.add(name="first", type="fc", size=width)
    first.inputs.add(input_layer_name="x", input_parameter_name="first.w")
    if "image" in fields:
        first.height, first.width = fields["image"]
    config.parameters.add(name="first.w", size=width * width, dims=[width, width])
    if "filters" in fields:
        second = config.layers.add(name="filters", type="fc", size=fields["filters"])
        second.inputs.add(input_layer_name="x", input_parameter_name="filters.w")
        config.parameters.add(name="filters.w", size=width * fields["filters"], dims=[width, fields["filters"]])
    for name, size in (("boxes", 6), ("regions", 5), ("small", 8)):
        if any(one.get("layer") == name for one in fields["inputs"]):
            config.layers.add(name=name, type="data", size=size)
    if any(one.get("layer") == "pooled" for one in fields["inputs"]):
        _add_pooled(config)
    rest = {name: value for name, value in fields.items() if name not in ("inputs", "bias", "image", "filters")}
    out = config.layers.add(name="out", **rest)
    for position, one in enumerate(fields["inputs"]):
        conf = {name: value for name, value in one.items() if name not in ("parameter", "static", "layer")}
        link = out.inputs.add(input_layer_name=one.get("layer", "first"), **conf)
        if "parameter" in one:
            link.input_parameter_name = f"out.w{position}"
            config.parameters.add(
                name=link.input_parameter_name, size=one["parameter"], is_static=one.get("static", False)
            )
    if fields["bias"]:
        out.bias_parameter_name = "out.wbias"
        config.parameters.add(name="out.wbias", size=fields["bias"])
    return config


def _add_pooled(config):
    """A max-pool-with-mask layer of two maps of 2 x 2, over data `large`."""
    config.layers.add(name="large", type="data", size=2 * 16)
    pooled = config.layers.add(name="pooled", type="pool", size=2 * 4)
    pooled.inputs.add(
        input_layer_name="large", pool_conf=pool_conf(2, (4, 4), (2, 2), (2, 2), kind="max-pool-with-mask")
    )


def run(width, fields, rows, parameters=None, is_training=False, **slots):
    """Return the output of a layer for these rows; the layers before it pass the rows on unchanged.

    parameters: name (out.w0, out.wbias) -> values. slots: the input of other data layers.
    """
    network, _ = start(width, fields, parameters)
    batch = {"x": Argument(value=np.asarray(rows, np.float64))}
    batch |= {name: Argument(value=np.asarray(values, np.float64)) for name, values in slots.items()}
    return network.forward(batch, is_training=is_training)["out"]


def start(width, fields, parameters=None):
    """Return the network of `run` and its parameter table."""
    config = build(width, fields)
    table = ParameterTable(config.parameters, np.float64)
    table["first.w"].value[:] = np.eye(width).reshape(-1)
    for name, values in (parameters or {}).items():
        table[name].value[:] = np.reshape(values, -1)
    return Network(config, table), table

"""Raw calls with all kinds of arguments: each works, or is refused in one line that names the argument or the input."""

import itertools

import pytest

from paddle.trainer_config_helpers import data_layer, outputs, settings
from paddle_base.runtime.errors import ConfigError
from trainer.config import parse_config
from trainer.config.building.names import built
from trainer.config.scripts.parse import parse_network_config
from trainer.config.v1.layers import BY_FUNCTION, RULES, Layer

V1 = built("v1")
ODD = ("x", -1, 0, 2.5, [1], [], {}, 2**70, float("nan"), object())
TYPES = sorted({*RULES, *BY_FUNCTION, "seqfirstins"})
INPUTS = (None, [], "d", ["d", "e"], ["d", "one"], ["one", "d"], ["d", "e", "one"])
COMMON = ("active_type", "bias", "coeff", "device", "drop_rate", "error_clipping_threshold", "num_filters", "min")
# for each shape: the function with arguments that fit, further arguments, its argument of Input(), and layer types
SHAPES = {
    "Conv": ({"filter_size": 2, "channels": 1}, ["stride", "groups", "dilation"], "conv", ["exconv", "exconvt"]),
    "Conv3D": ({"filter_size": 2, "channels": 1}, ["stride_z"], "conv", ["conv3d", "deconv3d"]),
    "Pool": ({"pool_type": "max-projection", "channels": 1, "size_x": 2}, ["size_y", "stride"], "pool", ["pool"]),
    "Pool3d": ({"pool_type": "max-projection", "channels": 1, "size_x": 2}, ["size_z"], "pool", ["pool3d"]),
    "Norm": (
        {"norm_type": "cmrnorm-projection", "channels": 1, "size": 2, "scale": 1.0, "pow": 1.0},
        [],
        "norm",
        ["norm"],
    ),
    "Image": ({"channels": 1}, [], "image", ["batch_norm"]),
    "BilinearInterp": ({"out_size_x": 2, "out_size_y": 2, "channels": 1}, [], "bilinear_interp", ["bilinear_interp"]),
    "SpatialPyramidPool": (
        {"pool_type": "max-projection", "pyramid_height": 1, "channels": 1},
        [],
        "spp",
        ["spp"],
    ),
    "Pad": ({"channels": 1, "pad_c": [0, 1], "pad_h": [0, 1], "pad_w": [0, 1]}, [], "pad", ["pad"]),
    "MaxOut": ({"channels": 2, "groups": 2}, [], "maxout", ["maxout"]),
    "RowConv": ({"context_length": 2}, [], "row_conv", ["row_conv"]),
    "BlockExpand": ({"channels": 1, "block_x": 1, "block_y": 1, "stride_x": 1}, [], "block_expand", ["blockexpand"]),
}
PROJECTIONS = ("FullMatrix", "TransposedFullMatrix", "Table", "Identity", "DotMul", "Scaling")


def sweep(calls):
    """Make the calls in one config. Return those that raise anything but ConfigError, and the number that work."""
    faults, good = [], 0

    def config():
        nonlocal good
        settings(batch_size=1)
        layers = [data_layer(name, 16, height=4, width=4) for name in ("d", "e")]
        data_layer("one", 1)
        data_layer("v", 8, height=2, width=2, depth=2)
        for number, (what, call) in enumerate(calls):
            try:
                call(f"l{number}")
                good += 1
            except ConfigError as error:
                if "\n" in str(error):
                    faults.append(f"{what}: several lines")
            except Exception as error:
                faults.append(f"{what}: {type(error).__name__}: {error}")
        outputs(layers[0])

    parse_network_config(config)
    return faults, good


def layers(kind):
    """Return the calls of Layer() for a type: inputs, sizes, and each argument with odd values."""
    own = sorted({*RULES[kind].fields, *RULES[kind].renamed} if kind in RULES else ())
    plain = [(inputs, size, {}) for inputs, size in itertools.product(INPUTS, (None, 4, 16, -1, "x"))]
    odd = [("d", 4, {key: value}) for key, value in itertools.product((*own, *COMMON), ODD)]
    odd += [(["d", "e"], None, {key: value}) for key, value in itertools.product(own, ODD)]
    for inputs, size, more in (*plain, *odd):
        yield (
            f"{kind} {inputs} size={size} {more}",
            lambda name, i=inputs, s=size, m=more: Layer(name=name, type=kind, inputs=i, size=s, **m),
        )


def test_raw_layers_of_every_type_work_or_are_refused_in_a_line(capfd):
    faults, good = sweep([call for kind in TYPES for call in layers(kind)])
    assert faults == []
    assert good > 1000


def shapes():
    for name, (base, further, key, kinds) in SHAPES.items():
        source = "v" if "3" in name else "d"
        for argument, value, kind in itertools.product((*base, *further), ODD, kinds):
            given = {**base, argument: value}
            more = {"num_filters": 4} if key == "conv" else {}
            yield (
                f"{kind} {name} {argument}={value!r}",
                lambda called, n=name, g=given, k=key, t=kind, s=source, m=more: Layer(
                    name=called, type=t, inputs=[V1["Input"](s, **{k: V1[n](**g)})], **m
                ),
            )
        for value, kind in itertools.product(ODD, kinds):
            yield (
                f"{kind} {key}={value!r}",
                lambda called, v=value, k=key, t=kind: Layer(name=called, type=t, inputs=[V1["Input"]("d", **{k: v})]),
            )


def terms():
    for name, key, value in itertools.product(PROJECTIONS, ("size", "initial_std", "is_static", "update_hooks"), ODD):
        yield (
            f"{name}Projection {key}={value!r}",
            lambda called, n=name, k=key, v=value: Layer(
                name=called, type="mixed", size=16, inputs=[V1[f"{n}Projection"]("d", **{k: v})]
            ),
        )
    conv = V1["Conv"](2, 1)
    for value in ODD:
        for what, make in {
            "DotMulOperator()": lambda v=value: V1["DotMulOperator"](v),
            "DotMulOperator(scale)": lambda v=value: V1["DotMulOperator"](["d", "e"], v),
            "ConvOperator(num_filters)": lambda v=value: V1["ConvOperator"](["d", "e"], v, conv),
            "ConvOperator(conv_conf)": lambda v=value: V1["ConvOperator"](["d", "e"], 2, v),
            "ConvProjection(conv_conf)": lambda v=value: V1["ConvProjection"]("d", 2, v),
        }.items():
            yield f"{what} {value!r}", lambda called, m=make: Layer(name=called, type="mixed", size=16, inputs=[m()])


def others():
    calls = {
        "Evaluator": (
            {"type": "classification_error", "inputs": ["d", "e"]},
            ["type", "inputs", "top_k", "delimited", "excluded_chunk_types"],
        ),
        "Parameter": ({"size": 4, "dims": [2, 2]}, ["size", "dims", "device", "is_static", "momentum"]),
        "SimpleData": ({}, ["files", "feat_dim", "constant_slots"]),
        "PyData": ({}, ["files", "load_data_module", "data_ratio"]),
        "ProtoData": ({}, ["files", "type", "no_such_argument"]),
    }
    for function, (base, keys) in calls.items():
        for key, value in itertools.product(keys, ODD):
            named = {} if "Data" in function else {"name": True}
            yield (
                f"{function} {key}={value!r}",
                lambda called, f=function, b=base, k=key, v=value, n=named: V1[f](
                    **(n and {"name": called}), **{**b, k: v}
                ),
            )


@pytest.mark.parametrize("calls", [shapes, terms, others])
def test_shapes_terms_and_other_raw_calls_work_or_are_refused_in_a_line(calls, capfd):
    faults, good = sweep(list(calls()))
    assert faults == []
    assert good > 10


def test_a_clip_layer_without_an_input_is_refused_by_its_line(config_dir):
    (config_dir / "raw.py").write_text("Layer(name='c', type='clip', min=0, max=1)\n")
    with pytest.raises(
        ConfigError, match=r"raw.py line 1: Layer\(name='c'\): type 'clip' needs 1 input \(input\); there are 0"
    ):
        parse_config("raw.py")

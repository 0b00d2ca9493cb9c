"""Layer(name=, type=, inputs=, ...): any layer of the message by its type, as the oldest configs declare them.

A table says what each type has: its size, parameters, bias and fields. Layers of images go through the functions that
newer configs call.

Source: legacy config_parser.py; the specification's sections 6 and 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proto.ModelConfig_pb2 import EvaluatorConfig
from trainer.config import raw_images
from trainer.config.activations import BaseActivation
from trainer.config.declare import helper
from trainer.config.evaluators import add_evaluator
from trainer.config.layer import LayerBuilder, LayerOutput, columns_of
from trainer.config.layers.mixed import Term, concat_layer, mixed_layer
from trainer.config.layers.projections import Operator, Projection
from trainer.config.misuse import Misuse, to_float, to_int, to_list, to_size, to_text, wrong
from trainer.config.names import public
from trainer.config.raw_inputs import Input, RawInput, RawLayer, layer_called, to_raw_bias
from trainer.config.state import current

_REQUIRED = object()  # a field without a default


# (call, size of the layer, index of an input, its size) -> dims, or None for no parameter
Dims = Callable[[RawLayer, int, int, int], list[int] | None]


@dataclass(frozen=True)
class _Kind:
    """What a type of layer has.

    Attributes:
        size: None for none.
        dims: of the parameter of each input.
        bias: size of the bias by the layer's; None for types without one.
        has_bias: whether it is there unless the user says otherwise.
        fields: fields of the message that the user can give, with their defaults; those with None are left out.
    """

    size: Callable[[RawLayer], int] | None = lambda raw: raw.columns()
    dims: Dims = lambda _raw, _size, _index, _columns: None
    bias: Callable[[RawLayer, int], int] | None = None
    has_bias: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)


def _given(raw: RawLayer) -> int:
    return raw.given()


def _one(_raw: RawLayer) -> int:
    return 1


def _second(raw: RawLayer) -> int:
    return raw.columns(1)


def _sum(raw: RawLayer) -> int:
    return sum(raw.columns(index) for index in range(len(raw.inputs)))


def _part(parts: int) -> Callable[[RawLayer], int]:
    def size(raw: RawLayer) -> int:
        columns, rest = divmod(raw.columns(), parts)
        if rest:
            raise Misuse(f"the size of its input is {raw.columns()}; it must be a multiple of {parts}")
        return columns

    return size


def _directions(raw: RawLayer) -> int:
    directions = raw.options["directions"]
    return 1 if isinstance(directions, bool) else len(to_list(directions))


def _times(factor: int) -> Callable[[RawLayer, int], int]:
    return lambda _raw, size: size * factor


def _only_first(dims: Callable[[RawLayer, int, int], list[int]]) -> Dims:
    return lambda raw, size, index, columns: dims(raw, size, columns) if index == 0 else None


def _classes(less: int) -> Dims:
    def dims(raw: RawLayer, _size: int, index: int, columns: int) -> list[int] | None:
        # the label, and perhaps a weight, come last
        counted = len(raw.inputs) - (2 if raw.kind == "nce" and raw.columns(len(raw.inputs) - 1) == 1 else 1)
        return [to_size("num_classes", raw.options["num_classes"]) - less, columns] if index < counted else None

    return dims


_COST = _Kind(size=_one, fields={"coeff": 1.0})
_LIKE_FIRST = _Kind()
_WITH_BIAS = _Kind(bias=_times(1), has_bias=False)
_POOLED = {"trans_type": "non-seq", "seq_pool_stride": -1}
_STEP = {"active_gate_type": "sigmoid"}
_RECURRENT = {"reversed": False, **_STEP}
_CRF = _only_first(lambda _raw, size, _columns: [size + 2, size])

_KINDS: dict[str, _Kind] = {
    "agent": _Kind(size=_given),
    "gather_agent": _Kind(size=_given),
    "scatter_agent": _Kind(size=_given),
    "sequence_agent": _Kind(size=_given),
    "sequence_gather_agent": _Kind(size=_given),
    "sequence_scatter_agent": _Kind(size=_given),
    "recurrent_layer_group": _Kind(size=None),
    "data": _Kind(size=_given, fields={"height": None, "width": None, "depth": None}),
    "data_norm": _Kind(
        dims=_only_first(lambda _raw, size, _columns: [5, size]), fields={"data_norm_strategy": "z-score"}
    ),
    "fc": _Kind(size=_given, dims=lambda _raw, size, _index, columns: [columns, size], bias=_times(1)),
    "selective_fc": _Kind(
        size=_given,
        dims=lambda raw, size, index, columns: [size, columns] if index < len(raw.inputs) - 1 else None,
        bias=_times(1),
        fields={
            "selective_fc_pass_generation": False,
            "has_selected_colums": True,
            "selective_fc_full_mul_ratio": 0.02,
            "selective_fc_parallel_plain_mul_thread_num": None,
        },
    ),
    "addto": _Kind(bias=_times(1), fields={"height": 0, "width": 0, "depth": 1}),
    "concat": _Kind(size=_sum, fields={"height": 0, "width": 0, "depth": 1}),
    "trans": _LIKE_FIRST,
    "rotate": _Kind(fields={"height": _REQUIRED, "width": _REQUIRED}),
    "resize": _Kind(size=_given),
    "featmap_expand": _Kind(
        size=lambda raw: raw.columns() * to_size("num_filters", raw.options["num_filters"]),
        bias=_times(1),
        has_bias=False,
        fields={"num_filters": _REQUIRED, "user_arg": None},
    ),
    "expand": _Kind(bias=_times(1), has_bias=False, fields={"trans_type": "non-seq"}),
    "multiplex": _Kind(size=_second),
    "maxid": _Kind(fields={"beam_size": None}),
    "eos_id": _Kind(size=lambda _raw: 2, fields={"eos_id": _REQUIRED}),
    "sampling_id": _LIKE_FIRST,
    "get_output": _Kind(size=_given),
    "print": _Kind(size=None, fields={"user_arg": None}),
    "max": _Kind(bias=_times(1), has_bias=False, fields={**_POOLED, "output_max_index": None}),
    "average": _Kind(bias=_times(1), has_bias=False, fields={"average_strategy": "average", **_POOLED}),
    "seqlastins": _Kind(bias=_times(1), has_bias=False, fields={**_POOLED, "select_first": None}),
    "seqconcat": _WITH_BIAS,
    "seqreshape": _Kind(size=_given, bias=_times(1), has_bias=False),
    "subseq": _WITH_BIAS,
    "seq_slice": _Kind(fields={"select_first": None}),
    "sub_nested_seq": _LIKE_FIRST,
    "kmax_seq_score": _Kind(size=None, fields={"beam_size": 1}),
    "recurrent": _Kind(
        dims=_only_first(lambda _raw, size, _columns: [size, size]), bias=_times(1), fields={"reversed": False}
    ),
    "lstmemory": _Kind(
        size=_part(4),
        dims=_only_first(lambda _raw, size, _columns: [size, size, 4]),
        bias=_times(7),
        fields={**_RECURRENT, "active_state_type": "sigmoid"},
    ),
    "gated_recurrent": _Kind(
        size=_part(3),
        dims=_only_first(lambda _raw, size, _columns: [size, size * 3]),
        bias=_times(3),
        fields=_RECURRENT,
    ),
    "lstm_step": _Kind(size=_given, bias=_times(3), fields={**_STEP, "active_state_type": "sigmoid"}),
    "gru_step": _Kind(
        size=_given, dims=_only_first(lambda _raw, size, _columns: [size, size * 3]), bias=_times(3), fields=_STEP
    ),
    "mdlstmemory": _Kind(
        size=lambda raw: _part(3 + _directions(raw))(raw),
        dims=_only_first(lambda raw, size, _columns: [size, size, 3 + _directions(raw)]),
        bias=lambda raw, size: size * (5 + 2 * _directions(raw)),
        fields={"directions": True, **_STEP, "active_state_type": "sigmoid"},
    ),
    "interpolation": _Kind(size=_second),
    "power": _Kind(size=_second),
    "scaling": _Kind(size=_second),
    "slope_intercept": _Kind(fields={"slope": 1.0, "intercept": 0.0}),
    "sum_to_one_norm": _LIKE_FIRST,
    "row_l2_norm": _LIKE_FIRST,
    "cos": _Kind(size=_one, fields={"cos_scale": 1}),
    "cos_vm": _Kind(size=_given, fields={"cos_scale": 1}),
    "l2_distance": _Kind(size=_one),
    "dot_prod": _Kind(size=_one),
    "out_prod": _Kind(size=lambda raw: raw.columns() * raw.columns(1)),
    "tensor": _Kind(
        size=_given,
        dims=_only_first(lambda raw, size, columns: [columns, raw.columns(1), size]),
        bias=_times(1),
    ),
    "conv_shift": _LIKE_FIRST,
    "prelu": _Kind(
        dims=_only_first(
            lambda raw, _size, columns: [1, columns // to_size("partial_sum", raw.options["partial_sum"])]
        ),
        fields={"partial_sum": 1, "height": 0, "width": 0, "depth": 1},
    ),
    "convex_comb": _Kind(size=_given),
    "scale_shift": _Kind(dims=_only_first(lambda _raw, _size, _columns: [1, 1]), bias=lambda _raw, _size: 1),
    "factorization_machine": _Kind(
        size=_one,
        dims=_only_first(lambda raw, _size, columns: [columns, raw.options["factor_size"]]),
        fields={"factor_size": _REQUIRED},
    ),
    "crf": _Kind(size=_given, dims=_CRF, fields={"coeff": 1.0}),
    "crf_decoding": _Kind(size=_given, dims=_CRF),
    "ctc": _Kind(size=_given, fields={"norm_by_times": False}),
    "warp_ctc": _Kind(size=_given, fields={"blank": 0, "norm_by_times": False}),
    "nce": _Kind(
        size=_one,
        dims=_classes(0),
        bias=lambda raw, _size: int(raw.options["num_classes"]),
        fields={"num_classes": _REQUIRED, "num_neg_samples": 10, "neg_sampling_dist": None},
    ),
    "hsigmoid": _Kind(
        size=_one,
        dims=_classes(1),
        bias=lambda raw, _size: int(raw.options["num_classes"]) - 1,
        fields={"num_classes": _REQUIRED},
    ),
    "multi_class_cross_entropy_with_selfnorm": _Kind(size=None, fields={"softmax_selfnorm_alpha": 0.1, "coeff": 1.0}),
    "cross_entropy_over_beam": _Kind(size=None),
    "huber_regression": _Kind(size=_one, fields={"delta": 1.0, "coeff": 1.0}),
    "lambda_cost": _Kind(size=_one, fields={"NDCG_num": 5, "max_sort_size": -1}),
    **dict.fromkeys(
        (
            "auc-validation",
            "huber",
            "huber_classification",
            "multi-class-cross-entropy",
            "multi_binary_label_cross_entropy",
            "pnpair-validation",
            "rank-cost",
            "smooth_l1",
            "soft_binary_class_cross_entropy",
            "square_error",
            "sum_cost",
        ),
        _COST,
    ),
}


def _to_inputs(inputs: Any) -> tuple[list[RawInput], list[Term]]:
    given = [] if inputs is None else to_list(inputs)
    terms = [item for item in given if isinstance(item, Projection | Operator)]
    if terms and len(terms) != len(given):
        raise wrong("inputs", inputs, "either all or none of them must be projections and operators")
    return [] if terms else [item if isinstance(item, RawInput) else _input_called(item) for item in given], terms


def _input_called(name: Any) -> RawInput:
    layer_called(name, "inputs")
    return Input(name)


@helper("raw")
def Layer(
    name: str,
    type: str,
    inputs: Any = None,
    size: int | None = None,
    active_type: str = "",
    bias: Any = None,
    device: int | None = None,
    drop_rate: float | None = None,
    coeff: float | None = None,
    error_clipping_threshold: float | None = None,
    **options: Any,
) -> LayerOutput:
    """Add a layer of any type.

    Args:
        name: the layer's.
        type: as the message has it.
        inputs: names of layers, Input()s, or projections and operators.
        size: where the type does not say it.
        active_type: name of the activation.
        bias: True, False or a Bias(); the type decides unless given.
        device, drop_rate, coeff, error_clipping_threshold: fields of the message.
        options: of the type.
    """
    read, terms = _to_inputs(inputs)
    kind = to_text("type", type)
    columns = None if not size else to_size("size", size)
    activation = BaseActivation(to_text("active_type", active_type), True)
    if coeff is not None and "coeff" in (_KINDS[kind].fields if kind in _KINDS else ()):
        options["coeff"], coeff = coeff, None
    raw = RawLayer(to_text("name", name), kind, read, terms, columns, activation, bias, options)
    if kind in _BY_FUNCTION:
        layer = _BY_FUNCTION[kind](raw)
        if options:  # what the function did not take
            raise Misuse(f"type {kind!r} has no argument {min(options)!r}")
    elif kind in _KINDS:
        layer = _by_table(raw, _KINDS[kind])
    else:
        known = ", ".join(sorted({*_KINDS, *_BY_FUNCTION}))
        raise wrong("type", type, f"Layer() knows {known}; for others use the function of that layer")
    numbers = {"drop_rate": drop_rate, "coeff": coeff, "error_clipping_threshold": error_clipping_threshold}
    message = current().layers[layer.full_name]
    for key, value in numbers.items():
        if value is not None:
            setattr(message, key, to_float(key, value))
    if device is not None:
        message.device = to_int("device", device)
    return layer


def _set_defaults(raw: RawLayer, kind: _Kind) -> None:
    unknown = sorted(set(raw.options) - set(kind.fields))
    if unknown:
        there = ", ".join(sorted(kind.fields)) or "none"
        raise Misuse(f"type {raw.kind!r} has no argument {unknown[0]!r}; there are {there}")
    for key, default in kind.fields.items():
        if default is _REQUIRED and raw.options.get(key) is None:
            raise Misuse(f"type {raw.kind!r} needs {key}=")
        raw.options.setdefault(key, default)


def _by_table(raw: RawLayer, kind: _Kind) -> LayerOutput:
    _set_defaults(raw, kind)
    size = None if kind.size is None else kind.size(raw)
    if size is not None and raw.size not in (None, size):
        raise wrong("size", raw.size, f"it must be {size}")
    layer = LayerBuilder(raw.name, raw.kind, size=size, act=raw.activation)
    for entry in raw.inputs:
        written = layer.add_input(entry.layer)
        if entry.argument is not None:
            written.input_layer_argument = entry.argument
    for index, entry in enumerate(raw.inputs):
        dims = kind.dims(raw, size or 0, index, columns_of(entry.layer)) if size else None
        if dims:
            layer.add_weight(index, math.prod(dims), dims, entry.attr)
    for key, value in raw.options.items():
        if isinstance(value, list | tuple) or key == "directions":
            getattr(layer.message, key).extend(to_list(value))
        elif value is not None:
            setattr(layer.message, key, value)
    if kind.bias is not None and size:
        bias = to_raw_bias(kind.has_bias if raw.bias is None else raw.bias)
        layer.add_bias(bias, default=False, size=kind.bias(raw, size))
    return layer.output([entry.layer for entry in raw.inputs], activation=raw.activation)


# --- types that have functions of their own --------------------------------------------------------------------------


def _mixed(raw: RawLayer) -> LayerOutput:
    bias = to_raw_bias(True if raw.bias is None else raw.bias)
    return mixed_layer(name=raw.name, size=raw.size or 0, input=raw.terms, act=raw.activation, bias_attr=bias)


def _concat2(raw: RawLayer) -> LayerOutput:
    bias = to_raw_bias(False if raw.bias is None else raw.bias)
    return concat_layer(name=raw.name, input=raw.terms, act=raw.activation, bias_attr=bias)


_BY_FUNCTION: Mapping[str, Callable[[RawLayer], LayerOutput]] = {
    "mixed": _mixed,
    "concat2": _concat2,
    **raw_images.TYPES,
}


# --- one name per type -----------------------------------------------------------------------------------------------

CLASSES: Mapping[str, str] = {
    "AddToLayer": "addto",
    "AgentLayer": "agent",
    "AucValidation": "auc-validation",
    "AverageLayer": "average",
    "BatchNormLayer": "batch_norm",
    "BilinearInterpLayer": "bilinear_interp",
    "BlockExpandLayer": "blockexpand",
    "CRFDecodingLayer": "crf_decoding",
    "CRFLayer": "crf",
    "CTCLayer": "ctc",
    "ClipLayer": "clip",
    "ConcatenateLayer": "concat",
    "ConcatenateLayer2": "concat2",
    "Conv3DLayer": "conv3d",
    "ConvLayer": "exconv",
    "ConvShiftLayer": "conv_shift",
    "ConvTransLayer": "exconvt",
    "ConvexCombinationLayer": "convex_comb",
    "CosSimLayer": "cos",
    "CosSimVecMatLayer": "cos_vm",
    "CropLayer": "crop",
    "DataLayer": "data",
    "DataNormLayer": "data_norm",
    "DeConv3DLayer": "deconv3d",
    "DotProdLayer": "dot_prod",
    "EosIdLayer": "eos_id",
    "ExpandLayer": "expand",
    "FCLayer": "fc",
    "FeatMapExpandLayer": "featmap_expand",
    "GatedRecurrentLayer": "gated_recurrent",
    "GatherAgentLayer": "gather_agent",
    "GetOutputLayer": "get_output",
    "GruStepLayer": "gru_step",
    "HierarchicalSigmoidLayer": "hsigmoid",
    "HuberRegressionLoss": "huber_regression",
    "HuberTwoClassification": "huber_classification",
    "InterpolationLayer": "interpolation",
    "KmaxSeqScoreLayer": "kmax_seq_score",
    "L2DistanceLayer": "l2_distance",
    "LambdaCost": "lambda_cost",
    "LstmLayer": "lstmemory",
    "LstmStepLayer": "lstm_step",
    "MDLstmLayer": "mdlstmemory",
    "MaxIdLayer": "maxid",
    "MaxLayer": "max",
    "MaxOutLayer": "maxout",
    "MixedLayer": "mixed",
    "MultiBinaryLabelCrossEntropy": "multi_binary_label_cross_entropy",
    "MultiClassCrossEntropy": "multi-class-cross-entropy",
    "MultiClassCrossEntropySelfNormCostLayer": "multi_class_cross_entropy_with_selfnorm",
    "MultiplexLayer": "multiplex",
    "NCELayer": "nce",
    "NormLayer": "norm",
    "OuterProdLayer": "out_prod",
    "PadLayer": "pad",
    "ParameterReluLayer": "prelu",
    "PnpairValidation": "pnpair-validation",
    "Pool3DLayer": "pool3d",
    "PoolLayer": "pool",
    "PowerLayer": "power",
    "PrintLayer": "print",
    "PriorBoxLayer": "priorbox",
    "ROIPoolLayer": "roi_pool",
    "RankingCost": "rank-cost",
    "RecurrentLayer": "recurrent",
    "RecurrentLayerGroup": "recurrent_layer_group",
    "ResizeLayer": "resize",
    "RotateLayer": "rotate",
    "RowConvLayer": "row_conv",
    "RowL2NormLayer": "row_l2_norm",
    "SamplingIdLayer": "sampling_id",
    "ScaleShiftLayer": "scale_shift",
    "ScaleSubRegionLayer": "scale_sub_region",
    "ScalingLayer": "scaling",
    "ScatterAgentLayer": "scatter_agent",
    "SelectiveFCLayer": "selective_fc",
    "SeqSliceLayer": "seq_slice",
    "SequenceConcatLayer": "seqconcat",
    "SequenceLastInstanceLayer": "seqlastins",
    "SequenceReshapeLayer": "seqreshape",
    "SlopeInterceptLayer": "slope_intercept",
    "SmoothL1Cost": "smooth_l1",
    "SoftBinaryClassCrossEntropy": "soft_binary_class_cross_entropy",
    "SpatialPyramidPoolLayer": "spp",
    "SubNestedSequenceLayer": "sub_nested_seq",
    "SubSequenceLayer": "subseq",
    "SumCost": "sum_cost",
    "SumOfSquaresCostLayer": "square_error",
    "SumToOneNormLayer": "sum_to_one_norm",
    "TensorLayer": "tensor",
    "TransLayer": "trans",
    "WarpCTCLayer": "warp_ctc",
}


def _class_of(class_name: str, kind: str) -> Callable[..., LayerOutput]:
    def make(name: str, inputs: Any = None, **options: Any) -> LayerOutput:
        return Layer(name, kind, inputs=inputs, **options)

    make.__name__ = make.__qualname__ = class_name
    make.__doc__ = f"Add a layer of type {kind!r}; see Layer."
    return make


for _class_name, _type in CLASSES.items():
    public("raw")(_class_of(_class_name, _type))


@helper("raw")
def ExpressionLayer(name: str, inputs: Any, **options: Any) -> LayerOutput:
    """Add a mixed layer without a bias."""
    return Layer(name, "mixed", inputs=inputs, bias=False, **options)


@helper("raw")
def Evaluator(name: str, type: str, inputs: Any, **fields: Any) -> None:
    """Add an evaluator over layers, by their names."""
    unknown = sorted(set(fields) - set(EvaluatorConfig.DESCRIPTOR.fields_by_name))
    if unknown:
        raise Misuse(f"an evaluator has no argument {unknown[0]!r}")
    add_evaluator(name, type, [layer_called(layer) for layer in to_list(inputs)], fields)

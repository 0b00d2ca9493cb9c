"""The properties of each layer type of Layer(): size, parameters, bias and fields of the message.

Source: legacy config_parser.py; spec/config.md sections 6 and 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.config.building.argument_errors import ArgumentError, to_list, to_size
from trainer.config.v1.inputs import V1Layer

REQUIRED = object()  # marks a field that has no default


# A function from (call of Layer(), size of the layer, index of an input, size of the input) to the dims of the input's
# parameter. For an input without a parameter, the result is None.
Dims = Callable[[V1Layer, int, int, int], list[int] | None]


@dataclass(frozen=True)
class LayerKind:
    """The properties of a layer type.

    Attributes:
        size: computes the size of the layer; None for a layer without a size.
        dims: computes the shape of the parameter of each input.
        bias: computes the size of the bias from the size of the layer; None for a type without a bias.
        has_bias: whether the layer has a bias by default.
        fields: fields of the message that the user can give, with their defaults; a field with None is omitted.
        weight: fields that the parameter of each input always has.
        renamed: arguments of Layer() whose fields have other names, with these names.
    """

    size: Callable[[V1Layer], int] | None = lambda declared: declared.columns()
    dims: Dims = lambda _declared, _size, _index, _columns: None
    bias: Callable[[V1Layer, int], int] | None = None
    has_bias: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)
    weight: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def _given(declared: V1Layer) -> int:
    return declared.given()


def _one(_declared: V1Layer) -> int:
    return 1


def _second(declared: V1Layer) -> int:
    return declared.columns(1)


def _sum(declared: V1Layer) -> int:
    return sum(declared.columns(index) for index in range(len(declared.inputs)))


def _weighted(declared: V1Layer) -> int:
    """Return the number of inputs with a weight; the last input has no weight if it selects columns."""
    return len(declared.inputs) - bool(declared.options["has_selected_colums"])


def _part(parts: int) -> Callable[[V1Layer], int]:
    def size(declared: V1Layer) -> int:
        columns, rest = divmod(declared.columns(), parts)
        if rest:
            raise ArgumentError(f"the size of its input is {declared.columns()}; it must be a multiple of {parts}")
        return columns

    return size


def _directions(declared: V1Layer) -> int:
    directions = declared.options["directions"]
    return 1 if isinstance(directions, bool) else len(to_list(directions))


def _factors(declared: V1Layer) -> int:
    return to_size("factor_size", declared.options["factor_size"])


def _times(factor: int) -> Callable[[V1Layer, int], int]:
    return lambda _declared, size: size * factor


def _only_first(dims: Callable[[V1Layer, int, int], list[int]]) -> Dims:
    return lambda declared, size, index, columns: dims(declared, size, columns) if index == 0 else None


def _classes(less: int) -> Dims:
    def dims(declared: V1Layer, _size: int, index: int, columns: int) -> list[int] | None:
        # The label has no parameter. In nce, an optional last input of size 1 (the weight of the rows) also has no
        # parameter.
        counted = len(declared.inputs) - (
            2 if declared.kind == "nce" and declared.columns(len(declared.inputs) - 1) == 1 else 1
        )
        return [to_size("num_classes", declared.options["num_classes"]) - less, columns] if index < counted else None

    return dims


_COST = LayerKind(size=_one, fields={"coeff": 1.0})
_LIKE_FIRST = LayerKind()
_WITH_BIAS = LayerKind(bias=_times(1), has_bias=False)
_POOLED = {"trans_type": "non-seq", "seq_pool_stride": -1}


def _pooled(**fields: Any) -> LayerKind:
    return LayerKind(
        bias=_times(1), has_bias=False, fields={**_POOLED, **fields}, renamed={"stride": "seq_pool_stride"}
    )


_STEP = {"active_gate_type": "sigmoid"}
_RECURRENT = {"reversed": False, **_STEP}
_CRF = _only_first(lambda _declared, size, _columns: [size + 2, size])

KINDS: dict[str, LayerKind] = {
    "agent": LayerKind(size=_given),
    "gather_agent": LayerKind(size=_given),
    "scatter_agent": LayerKind(size=_given),
    "sequence_agent": LayerKind(size=_given),
    "sequence_gather_agent": LayerKind(size=_given),
    "sequence_scatter_agent": LayerKind(size=_given),
    "recurrent_layer_group": LayerKind(size=None),
    "data": LayerKind(size=_given, fields={"height": None, "width": None, "depth": None}),
    "data_norm": LayerKind(
        dims=_only_first(lambda _declared, size, _columns: [5, size]),
        fields={"data_norm_strategy": "z-score"},
        weight={"is_static": True},
    ),
    "fc": LayerKind(size=_given, dims=lambda _declared, size, _index, columns: [columns, size], bias=_times(1)),
    "selective_fc": LayerKind(
        size=_given,
        dims=lambda declared, size, index, columns: [size, columns] if index < _weighted(declared) else None,
        bias=_times(1),
        fields={
            "selective_fc_pass_generation": False,
            "has_selected_colums": True,
            "selective_fc_full_mul_ratio": 0.02,
            "selective_fc_parallel_plain_mul_thread_num": None,
        },
        weight={"is_sparse": False},
    ),
    "addto": LayerKind(bias=_times(1), fields={"height": 0, "width": 0, "depth": 1}),
    "concat": LayerKind(size=_sum, fields={"height": 0, "width": 0, "depth": 1}),
    "trans": _LIKE_FIRST,
    "rotate": LayerKind(fields={"height": REQUIRED, "width": REQUIRED}),
    "resize": LayerKind(size=_given),
    "featmap_expand": LayerKind(
        size=lambda declared: declared.columns() * to_size("num_filters", declared.options["num_filters"]),
        bias=_times(1),
        has_bias=False,
        fields={"num_filters": REQUIRED, "user_arg": None},
    ),
    "expand": LayerKind(bias=_times(1), has_bias=False, fields={"trans_type": "non-seq"}),
    "multiplex": LayerKind(size=_second),
    "maxid": LayerKind(fields={"beam_size": None}),
    "eos_id": LayerKind(size=lambda _declared: 2, fields={"eos_id": REQUIRED}),
    "sampling_id": _LIKE_FIRST,
    "get_output": LayerKind(size=_given),
    "print": LayerKind(size=None, fields={"user_arg": None}),
    "max": _pooled(output_max_index=None),
    "average": _pooled(average_strategy="average"),
    "seqlastins": _pooled(select_first=None),
    "seqconcat": _WITH_BIAS,
    "seqreshape": LayerKind(size=_given, bias=_times(1), has_bias=False),
    "subseq": _WITH_BIAS,
    "seq_slice": LayerKind(fields={"select_first": None}),
    "sub_nested_seq": _LIKE_FIRST,
    "kmax_seq_score": LayerKind(size=None, fields={"beam_size": 1}),
    "recurrent": LayerKind(
        dims=_only_first(lambda _declared, size, _columns: [size, size]), bias=_times(1), fields={"reversed": False}
    ),
    "lstmemory": LayerKind(
        size=_part(4),
        dims=_only_first(lambda _declared, size, _columns: [size, size, 4]),
        bias=_times(7),
        fields={**_RECURRENT, "active_state_type": "sigmoid"},
    ),
    "gated_recurrent": LayerKind(
        size=_part(3),
        dims=_only_first(lambda _declared, size, _columns: [size, size * 3]),
        bias=_times(3),
        fields=_RECURRENT,
    ),
    "lstm_step": LayerKind(size=_given, bias=_times(3), fields={**_STEP, "active_state_type": "sigmoid"}),
    "gru_step": LayerKind(
        size=_given, dims=_only_first(lambda _declared, size, _columns: [size, size * 3]), bias=_times(3), fields=_STEP
    ),
    "mdlstmemory": LayerKind(
        size=lambda declared: _part(3 + _directions(declared))(declared),
        dims=_only_first(lambda declared, size, _columns: [size, size, 3 + _directions(declared)]),
        bias=lambda declared, size: size * (5 + 2 * _directions(declared)),
        fields={"directions": True, **_STEP, "active_state_type": "sigmoid"},
    ),
    "interpolation": LayerKind(size=_second),
    "power": LayerKind(size=_second),
    "scaling": LayerKind(size=_second),
    "slope_intercept": LayerKind(fields={"slope": 1.0, "intercept": 0.0}),
    "sum_to_one_norm": _LIKE_FIRST,
    "row_l2_norm": _LIKE_FIRST,
    "cos": LayerKind(size=_one, fields={"cos_scale": 1}),
    "cos_vm": LayerKind(size=_given, fields={"cos_scale": 1}),
    "l2_distance": LayerKind(size=_one),
    "dot_prod": LayerKind(size=_one),
    "out_prod": LayerKind(size=lambda declared: declared.columns() * declared.columns(1)),
    "tensor": LayerKind(
        size=_given,
        dims=_only_first(lambda declared, size, columns: [columns, declared.columns(1), size]),
        bias=_times(1),
    ),
    "conv_shift": _LIKE_FIRST,
    "prelu": LayerKind(
        dims=_only_first(
            lambda declared, _size, columns: [1, columns // to_size("partial_sum", declared.options["partial_sum"])]
        ),
        fields={"partial_sum": 1, "height": 0, "width": 0, "depth": 1},
    ),
    "convex_comb": LayerKind(size=_given),
    "scale_shift": LayerKind(
        dims=_only_first(lambda _declared, _size, _columns: [1, 1]), bias=lambda _declared, _size: 1
    ),
    "factorization_machine": LayerKind(
        size=_one,
        dims=_only_first(lambda declared, _size, columns: [columns, _factors(declared)]),
        fields={"factor_size": REQUIRED},
    ),
    "crf": LayerKind(size=_given, dims=_CRF, fields={"coeff": 1.0}),
    "crf_decoding": LayerKind(size=_given, dims=_CRF),
    "ctc": LayerKind(size=_given, fields={"norm_by_times": False}),
    "warp_ctc": LayerKind(size=_given, fields={"blank": 0, "norm_by_times": False}),
    "nce": LayerKind(
        size=_one,
        dims=_classes(0),
        bias=lambda declared, _size: int(declared.options["num_classes"]),
        fields={"num_classes": REQUIRED, "num_neg_samples": 10, "neg_sampling_dist": None},
    ),
    "hsigmoid": LayerKind(
        size=_one,
        dims=_classes(1),
        bias=lambda declared, _size: int(declared.options["num_classes"]) - 1,
        fields={"num_classes": REQUIRED},
    ),
    "multi_class_cross_entropy_with_selfnorm": LayerKind(
        size=None, fields={"softmax_selfnorm_alpha": 0.1, "coeff": 1.0}
    ),
    "cross_entropy_over_beam": LayerKind(size=None),
    "huber_regression": LayerKind(size=_one, fields={"delta": 1.0, "coeff": 1.0}),
    "lambda_cost": LayerKind(size=_one, fields={"NDCG_num": 5, "max_sort_size": -1}),
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

"""The table of layer types: for each type one record, from which all other lists of types are made.

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
class SizeRule:
    """How Layer() builds the message of a layer: its size, parameters, bias and fields.

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


_COST = SizeRule(_one, fields={"coeff": 1.0})
_LIKE_FIRST = SizeRule()
_WITH_BIAS = SizeRule(bias=_times(1), has_bias=False)
_POOLED = {"trans_type": "non-seq", "seq_pool_stride": -1}


def _pooled(**fields: Any) -> SizeRule:
    return SizeRule(bias=_times(1), has_bias=False, fields={**_POOLED, **fields}, renamed={"stride": "seq_pool_stride"})


_MAP = {"height": 0, "width": 0, "depth": 1}
_STEP = {"active_gate_type": "sigmoid"}
_RECURRENT = {"reversed": False, **_STEP}
_CRF = _only_first(lambda _declared, size, _columns: [size + 2, size])


@dataclass(frozen=True)
class LayerRecord:
    """All facts of a layer type outside of its computation.

    Attributes:
        type: the type in the message.
        computes: the class that computes the layer, as `module.Class` of trainer/layers/.
        names: the names in old scripts: the function of the raw form (FCLayer), the constant of LayerType (FC_LAYER).
        rule: how Layer() builds the message; None if Layer() calls a function of the language or refuses the type.
        is_coupled: whether the numbers of a sample depend on the other samples of its batch or on random numbers, or
            the log shows the batch. Such a layer does not give the same results for the parts of a batch.
    """

    type: str
    computes: str
    names: str = ""
    rule: SizeRule | None = None
    is_coupled: bool = False


_RECORDS = (
    # cost
    LayerRecord("cross_entropy_over_beam", "cost.beam.BeamCostLayer", "CROSS_ENTROPY_OVER_BEAM", SizeRule(None)),
    LayerRecord(
        "nce",
        "cost.class_sampling.NoiseContrastiveCost",
        "NCELayer NCE_LAYER",
        SizeRule(
            _one,
            dims=_classes(0),
            bias=lambda declared, _size: int(declared.options["num_classes"]),
            fields={"num_classes": REQUIRED, "num_neg_samples": 10, "neg_sampling_dist": None},
        ),
        is_coupled=True,
    ),
    LayerRecord(
        "hsigmoid",
        "cost.class_sampling.HierarchicalSigmoidCost",
        "HierarchicalSigmoidLayer HSIGMOID",
        SizeRule(
            _one,
            dims=_classes(1),
            bias=lambda declared, _size: int(declared.options["num_classes"]) - 1,
            fields={"num_classes": REQUIRED},
        ),
    ),
    LayerRecord(
        "multi_class_cross_entropy_with_selfnorm",
        "cost.costs.SelfNormalizingCrossEntropyCost",
        "MultiClassCrossEntropySelfNormCostLayer CROSS_ENTROPY_WITH_SELFNORM",
        SizeRule(None, fields={"softmax_selfnorm_alpha": 0.1, "coeff": 1.0}),
    ),
    LayerRecord(
        "huber_regression",
        "cost.costs.HuberRegressionCost",
        "HuberRegressionLoss HUBER_REGRESSION",
        SizeRule(_one, fields={"delta": 1.0, "coeff": 1.0}),
    ),
    LayerRecord("huber", "cost.costs.HuberClassificationCost", "HuberTwoClass", _COST),
    LayerRecord(
        "huber_classification",
        "cost.costs.HuberClassificationCost",
        "HuberTwoClassification HUBER_CLASSIFICATION",
        _COST,
    ),
    LayerRecord(
        "multi-class-cross-entropy", "cost.costs.CrossEntropyCost", "MultiClassCrossEntropy CROSS_ENTROPY", _COST
    ),
    LayerRecord(
        "multi_binary_label_cross_entropy",
        "cost.costs.BinaryLabelsCrossEntropyCost",
        "MultiBinaryLabelCrossEntropy MULTI_BIN_LABEL_CROSS_ENTROPY",
        _COST,
    ),
    LayerRecord("smooth_l1", "cost.costs.SmoothL1Cost", "SmoothL1Cost SMOOTH_L1", _COST),
    LayerRecord(
        "soft_binary_class_cross_entropy",
        "cost.costs.SoftBinaryCrossEntropyCost",
        "SoftBinaryClassCrossEntropy SOFT_BIN_CLASS_CROSS_ENTROPY",
        _COST,
    ),
    LayerRecord("square_error", "cost.costs.SquareErrorCost", "SumOfSquaresCostLayer", _COST),
    LayerRecord("sum_cost", "cost.costs.SumCost", "SumCost SUM_COST", _COST),
    LayerRecord("crf", "cost.crf.CrfLayer", "CRFLayer CRF_LAYER", SizeRule(_given, dims=_CRF, fields={"coeff": 1.0})),
    LayerRecord(
        "crf_decoding", "cost.crf.CrfDecodingLayer", "CRFDecodingLayer CRF_DECODING_LAYER", SizeRule(_given, dims=_CRF)
    ),
    LayerRecord("ctc", "cost.ctc.CtcLayer", "CTCLayer CTC_LAYER", SizeRule(_given, fields={"norm_by_times": False})),
    LayerRecord(
        "warp_ctc",
        "cost.ctc.WarpCtcLayer",
        "WarpCTCLayer WARP_CTC_LAYER",
        SizeRule(_given, fields={"blank": 0, "norm_by_times": False}),
    ),
    LayerRecord(
        "lambda_cost",
        "cost.ranking.LambdaCost",
        "LambdaCost LAMBDA_COST",
        SizeRule(_one, fields={"NDCG_num": 5, "max_sort_size": -1}),
    ),
    LayerRecord("rank-cost", "cost.ranking.RankCost", "RankingCost RANK_COST", _COST),
    LayerRecord("auc-validation", "cost.validation.ValidationLayer", "AucValidation", _COST),
    LayerRecord("pnpair-validation", "cost.validation.ValidationLayer", "PnpairValidation", _COST),
    # dense
    LayerRecord("addto", "dense.arithmetic.AddLayer", "AddToLayer ADDTO_LAYER", SizeRule(bias=_times(1), fields=_MAP)),
    LayerRecord("concat", "dense.arithmetic.ConcatLayer", "ConcatenateLayer CONCAT_LAYER", SizeRule(_sum, fields=_MAP)),
    LayerRecord(
        "interpolation",
        "dense.arithmetic.InterpolationLayer",
        "InterpolationLayer INTERPOLATION_LAYER",
        SizeRule(_second),
    ),
    LayerRecord("power", "dense.arithmetic.PowerLayer", "PowerLayer POWER_LAYER", SizeRule(_second)),
    LayerRecord("scaling", "dense.arithmetic.ScalingLayer", "ScalingLayer SCALING_LAYER", SizeRule(_second)),
    LayerRecord(
        "slope_intercept",
        "dense.arithmetic.SlopeInterceptLayer",
        "SlopeInterceptLayer SLOPE_INTERCEPT_LAYER",
        SizeRule(fields={"slope": 1.0, "intercept": 0.0}),
    ),
    LayerRecord(
        "sum_to_one_norm", "dense.arithmetic.SumToOneLayer", "SumToOneNormLayer SUM_TO_ONE_NORM_LAYER", _LIKE_FIRST
    ),
    LayerRecord("row_l2_norm", "dense.arithmetic.RowNormLayer", "RowL2NormLayer ROW_L2_NORM_LAYER", _LIKE_FIRST),
    LayerRecord(
        "prelu",
        "dense.arithmetic.ParametricReluLayer",
        "ParameterReluLayer PRELU",
        SizeRule(
            dims=_only_first(
                lambda declared, _size, columns: [1, columns // to_size("partial_sum", declared.options["partial_sum"])]
            ),
            fields={"partial_sum": 1, "height": 0, "width": 0, "depth": 1},
        ),
    ),
    LayerRecord(
        "scale_shift",
        "dense.arithmetic.ScaleShiftLayer",
        "ScaleShiftLayer SCALE_SHIFT_LAYER",
        SizeRule(dims=_only_first(lambda _declared, _size, _columns: [1, 1]), bias=lambda _declared, _size: 1),
    ),
    LayerRecord("clip", "dense.arithmetic.ClipLayer", "ClipLayer CLIP_LAYER"),
    LayerRecord(
        "data",
        "dense.data.DataLayer",
        "DataLayer DATA",
        SizeRule(_given, fields={"height": None, "width": None, "depth": None}),
    ),
    LayerRecord(
        "data_norm",
        "dense.data_norm.DataNormLayer",
        "DataNormLayer",
        SizeRule(
            dims=_only_first(lambda _declared, size, _columns: [5, size]),
            fields={"data_norm_strategy": "z-score"},
            weight={"is_static": True},
        ),
    ),
    LayerRecord(
        "fc",
        "dense.fc.FullyConnectedLayer",
        "FCLayer FC_LAYER",
        SizeRule(_given, dims=lambda _declared, size, _index, columns: [columns, size], bias=_times(1)),
    ),
    LayerRecord("get_output", "dense.get_output.GetOutputLayer", "GetOutputLayer GET_OUTPUT_LAYER", SizeRule(_given)),
    LayerRecord("maxid", "dense.maxid.MaxIdLayer", "MaxIdLayer MAXID_LAYER", SizeRule(fields={"beam_size": None})),
    LayerRecord(
        "print",
        "dense.printing.PrintLayer",
        "PrintLayer PRINT_LAYER",
        SizeRule(None, fields={"user_arg": None}),
        is_coupled=True,
    ),
    LayerRecord("l2_distance", "dense.products.DistanceLayer", "L2DistanceLayer L2_DISTANCE", SizeRule(_one)),
    LayerRecord("dot_prod", "dense.products.DotProductLayer", "DotProdLayer DOT_PROD_LAYER", SizeRule(_one)),
    LayerRecord(
        "out_prod",
        "dense.products.OuterProductLayer",
        "OuterProdLayer OUT_PROD_LAYER",
        SizeRule(lambda declared: declared.columns() * declared.columns(1)),
    ),
    LayerRecord(
        "tensor",
        "dense.products.TensorLayer",
        "TensorLayer TENSOR_LAYER",
        SizeRule(
            _given,
            dims=_only_first(lambda declared, size, columns: [columns, declared.columns(1), size]),
            bias=_times(1),
        ),
    ),
    LayerRecord(
        "conv_shift", "dense.products.CircularConvolutionLayer", "ConvShiftLayer CONV_SHIFT_LAYER", _LIKE_FIRST
    ),
    LayerRecord(
        "convex_comb",
        "dense.products.LinearCombinationLayer",
        "ConvexCombinationLayer LINEAR_COMBINATION_LAYER",
        SizeRule(_given),
    ),
    LayerRecord(
        "factorization_machine",
        "dense.products.FactorizationMachineLayer",
        "FACTORIZATION_MACHINE",
        SizeRule(
            _one,
            dims=_only_first(lambda declared, _size, columns: [columns, _factors(declared)]),
            fields={"factor_size": REQUIRED},
        ),
    ),
    LayerRecord("trans", "dense.reshaping.TransposeLayer", "TransLayer TRANS_LAYER", _LIKE_FIRST, is_coupled=True),
    LayerRecord("resize", "dense.reshaping.ResizeLayer", "ResizeLayer RESIZE", SizeRule(_given), is_coupled=True),
    LayerRecord(
        "featmap_expand",
        "dense.reshaping.RepeatLayer",
        "FeatMapExpandLayer FEATURE_MAP_EXPAND_LAYER",
        SizeRule(
            lambda declared: declared.columns() * to_size("num_filters", declared.options["num_filters"]),
            bias=_times(1),
            has_bias=False,
            fields={"num_filters": REQUIRED, "user_arg": None},
        ),
    ),
    LayerRecord("multiplex", "dense.selection.MultiplexLayer", "MultiplexLayer MULTIPLEX_LAYER", SizeRule(_second)),
    LayerRecord(
        "eos_id",
        "dense.selection.EndOfSentenceLayer",
        "EosIdLayer EOSID_LAYER",
        SizeRule(lambda _declared: 2, fields={"eos_id": REQUIRED}),
    ),
    LayerRecord(
        "sampling_id",
        "dense.selection.SamplingIdLayer",
        "SamplingIdLayer SAMPLING_ID_LAYER",
        _LIKE_FIRST,
        is_coupled=True,
    ),
    LayerRecord(
        "selective_fc",
        "dense.selective_fc.SelectiveFullyConnectedLayer",
        "SelectiveFCLayer SEL_FC_LAYER",
        SizeRule(
            _given,
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
        is_coupled=True,  # all rows of a batch must select as many columns
    ),
    LayerRecord(
        "cos", "dense.similarity.CosineLayer", "CosSimLayer COSINE_SIM", SizeRule(_one, fields={"cos_scale": 1})
    ),
    LayerRecord(
        "cos_vm",
        "dense.similarity.CosineLayer",
        "CosSimVecMatLayer COSINE_SIM_VEC",
        SizeRule(_given, fields={"cos_scale": 1}),
    ),
    # image
    LayerRecord("batch_norm", "image.batch_norm.BatchNormLayer", "BatchNormLayer BATCH_NORM_LAYER", is_coupled=True),
    LayerRecord("cudnn_batch_norm", "image.batch_norm.BatchNormLayer", is_coupled=True),
    LayerRecord("mkldnn_batch_norm", "image.batch_norm.BatchNormLayer", is_coupled=True),
    LayerRecord("conv", "image.conv.ConvolutionLayer", "CONV_LAYER"),
    LayerRecord("conv3d", "image.conv.Convolution3DLayer", "Conv3DLayer CONV3D_LAYER"),
    LayerRecord("convt", "image.conv.TransposedConvolutionLayer", "CONVTRANS_LAYER"),
    LayerRecord("cudnn_conv", "image.conv.ConvolutionLayer", "CUDNNCONV_LAYER"),
    LayerRecord("cudnn_convt", "image.conv.TransposedConvolutionLayer", "CUDNNCONVTRANS_LAYER"),
    LayerRecord("deconv3d", "image.conv.TransposedConvolution3DLayer", "DeConv3DLayer DECONV3D_LAYER"),
    LayerRecord("exconv", "image.conv.ConvolutionLayer", "ConvLayer EXCONV_LAYER"),
    LayerRecord("exconvt", "image.conv.TransposedConvolutionLayer", "ConvTransLayer EXCONVTRANS_LAYER"),
    LayerRecord("mkldnn_conv", "image.conv.ConvolutionLayer"),
    LayerRecord("detection_output", "image.detection.DetectionOutputLayer", "DETECTION_OUTPUT_LAYER", is_coupled=True),
    LayerRecord("multibox_loss", "image.detection.MultiBoxLossLayer", "MULTIBOX_LOSS_LAYER", is_coupled=True),
    LayerRecord("priorbox", "image.detection.PriorBoxLayer", "PriorBoxLayer PRIORBOX_LAYER", is_coupled=True),
    LayerRecord("norm", "image.norm.NormLayer", "NormLayer NORM_LAYER"),
    LayerRecord(
        "bilinear_interp", "image.pixel_values.BilinearInterpolationLayer", "BilinearInterpLayer BILINEAR_INTERP_LAYER"
    ),
    LayerRecord("maxout", "image.pixel_values.MaxOutLayer", "MaxOutLayer MAXOUT"),
    LayerRecord("roi_pool", "image.pixel_values.RegionPoolLayer", "ROIPoolLayer ROI_POOL_LAYER", is_coupled=True),
    LayerRecord(
        "scale_sub_region", "image.pixel_values.ScaleSubRegionLayer", "ScaleSubRegionLayer SCALE_SUB_REGION_LAYER"
    ),
    LayerRecord(
        "rotate",
        "image.places.RotateLayer",
        "RotateLayer ROTATE_LAYER",
        SizeRule(fields={"height": REQUIRED, "width": REQUIRED}),
    ),
    LayerRecord("blockexpand", "image.places.BlockExpandLayer", "BlockExpandLayer BLOCK_EXPAND"),
    LayerRecord("crop", "image.places.CropLayer", "CropLayer CROP_LAYER"),
    LayerRecord("pad", "image.places.PadLayer", "PadLayer PAD_LAYER"),
    LayerRecord("switch_order", "image.places.SwitchOrderLayer", "SWITCH_ORDER_LAYER"),
    LayerRecord("upsample", "image.places.UpsampleLayer", "UPSAMPLE_LAYER"),
    LayerRecord("pool", "image.pool.PoolLayer", "PoolLayer POOL_LAYER"),
    LayerRecord("pool3d", "image.pool.Pool3DLayer", "Pool3DLayer POOL3D_LAYER"),
    LayerRecord("spp", "image.pool.PyramidPoolLayer", "SpatialPyramidPoolLayer SPP_LAYER"),
    # mixed
    LayerRecord("concat2", "mixed.mixed.JoinedProjectionsLayer", "ConcatenateLayer2 CONCAT_PROJ_LAYER"),
    LayerRecord("mixed", "mixed.mixed.MixedLayer", "MixedLayer MIXED_LAYER"),
    # recurrent
    LayerRecord("agent", "recurrent.agents.AgentLayer", "AgentLayer", SizeRule(_given)),
    LayerRecord("gather_agent", "recurrent.agents.GatherAgentLayer", "GatherAgentLayer", SizeRule(_given)),
    LayerRecord("scatter_agent", "recurrent.agents.AgentLayer", "ScatterAgentLayer", SizeRule(_given)),
    LayerRecord("sequence_agent", "recurrent.agents.AgentLayer", rule=SizeRule(_given)),
    LayerRecord("sequence_gather_agent", "recurrent.agents.GatherAgentLayer", rule=SizeRule(_given)),
    LayerRecord("sequence_scatter_agent", "recurrent.agents.AgentLayer", rule=SizeRule(_given)),
    LayerRecord("recurrent_layer_group", "recurrent.group.GroupLayer", "RecurrentLayerGroup", SizeRule(None)),
    LayerRecord(
        "gated_recurrent",
        "recurrent.gru.GruLayer",
        "GatedRecurrentLayer GRUMEMORY",
        SizeRule(
            _part(3),
            dims=_only_first(lambda _declared, size, _columns: [size, size * 3]),
            bias=_times(3),
            fields=_RECURRENT,
        ),
    ),
    LayerRecord(
        "gru_step",
        "recurrent.gru.GruStepLayer",
        "GruStepLayer GRU_STEP_LAYER",
        SizeRule(
            _given, dims=_only_first(lambda _declared, size, _columns: [size, size * 3]), bias=_times(3), fields=_STEP
        ),
    ),
    LayerRecord(
        "lstmemory",
        "recurrent.lstm.LstmLayer",
        "LstmLayer LSTMEMORY",
        SizeRule(
            _part(4),
            dims=_only_first(lambda _declared, size, _columns: [size, size, 4]),
            bias=_times(7),
            fields={**_RECURRENT, "active_state_type": "sigmoid"},
        ),
    ),
    LayerRecord(
        "lstm_step",
        "recurrent.lstm.LstmStepLayer",
        "LstmStepLayer LSTM_STEP_LAYER",
        SizeRule(_given, bias=_times(3), fields={**_STEP, "active_state_type": "sigmoid"}),
    ),
    LayerRecord(
        "mdlstmemory",
        "recurrent.mdlstm.GridLstmLayer",
        "MDLstmLayer",
        SizeRule(
            lambda declared: _part(3 + _directions(declared))(declared),
            dims=_only_first(lambda declared, size, _columns: [size, size, 3 + _directions(declared)]),
            bias=lambda declared, size: size * (5 + 2 * _directions(declared)),
            fields={"directions": True, **_STEP, "active_state_type": "sigmoid"},
        ),
    ),
    LayerRecord(
        "recurrent",
        "recurrent.simple.RecurrentLayer",
        "RecurrentLayer RECURRENT_LAYER",
        SizeRule(
            dims=_only_first(lambda _declared, size, _columns: [size, size]), bias=_times(1), fields={"reversed": False}
        ),
    ),
    # sequence
    LayerRecord("max", "sequence.pooling.MaxLayer", "MaxLayer POOLING_MAX", _pooled(output_max_index=None)),
    LayerRecord(
        "average", "sequence.pooling.AverageLayer", "AverageLayer POOLING_AVG", _pooled(average_strategy="average")
    ),
    LayerRecord(
        "seqlastins",
        "sequence.pooling.SequenceEndLayer",
        "SequenceLastInstanceLayer SEQUENCE_LAST_INSTANCE",
        _pooled(select_first=None),
    ),
    LayerRecord(
        "expand",
        "sequence.sequences.ExpandLayer",
        "ExpandLayer EXPAND_LAYER",
        SizeRule(bias=_times(1), has_bias=False, fields={"trans_type": "non-seq"}),
    ),
    LayerRecord(
        "seqconcat", "sequence.sequences.SequenceConcatLayer", "SequenceConcatLayer SEQUENCE_CONCAT_LAYER", _WITH_BIAS
    ),
    LayerRecord(
        "seqreshape",
        "sequence.sequences.SequenceReshapeLayer",
        "SequenceReshapeLayer SEQUENCE_RESHAPE",
        SizeRule(_given, bias=_times(1), has_bias=False),
    ),
    LayerRecord("subseq", "sequence.sequences.SubSequenceLayer", "SubSequenceLayer SUB_SEQ_LAYER", _WITH_BIAS),
    LayerRecord(
        "seq_slice",
        "sequence.sequences.SequenceSliceLayer",
        "SeqSliceLayer SEQ_SLICE",
        SizeRule(fields={"select_first": None}),
    ),
    LayerRecord(
        "sub_nested_seq",
        "sequence.sequences.SubNestedSequenceLayer",
        "SubNestedSequenceLayer SUB_NESTED_SEQ",
        _LIKE_FIRST,
    ),
    LayerRecord(
        "kmax_seq_score",
        "sequence.sequences.TopScoresLayer",
        "KmaxSeqScoreLayer KMAX_SEQ_SCORE",
        SizeRule(None, fields={"beam_size": 1}),
    ),
    LayerRecord("row_conv", "sequence.sequences.RowConvolutionLayer", "RowConvLayer ROW_CONV_LAYER"),
)
LAYER_TYPES: Mapping[str, LayerRecord] = {one.type: one for one in _RECORDS}
# the types that Layer() makes by a rule
RULES: Mapping[str, SizeRule] = {kind: one.rule for kind, one in LAYER_TYPES.items() if one.rule is not None}

"""A function with a class name for each type of layer: FCLayer(...) is Layer(type="fc", ...).

The module also has Evaluator(...), which adds an evaluator.

Source: legacy config_parser.py; spec/config.md sections 6 and 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from trainer.config.building.argument_errors import ArgumentError, to_list
from trainer.config.building.declare import helper
from trainer.config.building.layer import LayerOutput
from trainer.config.building.names import public
from trainer.config.language.evaluators import add_evaluator
from trainer.config.v1.inputs import layer_called
from trainer.config.v1.layers import Layer

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
    "HuberTwoClass": "huber",
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
    "SequenceFirstInstanceLayer": "seqfirstins",
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
    public("v1")(_class_of(_class_name, _type))


@helper("v1")
def ExpressionLayer(name: str, inputs: Any, **options: Any) -> LayerOutput:
    """Add a mixed layer without a bias."""
    return Layer(name, "mixed", inputs=inputs, bias=False, **options)


@helper("v1")
def Evaluator(name: str, type: str, inputs: Any, **fields: Any) -> None:
    """Add an evaluator; `inputs` are the names of the layers that the evaluator reads."""
    unknown = sorted(set(fields) - set(EvaluatorConfig.DESCRIPTOR.fields_by_name))
    if unknown:
        raise ArgumentError(f"an evaluator has no argument {unknown[0]!r}")
    add_evaluator(name, type, [layer_called(layer) for layer in to_list(inputs)], fields)

"""All public names of paddle.trainer_config_helpers. Modules register the function or class of a name with `public`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# the names in each sub-module of paddle.trainer_config_helpers
HELPERS: Mapping[str, tuple[str, ...]] = {
    module: tuple(names.split())
    for module, names in {
        "activations": """
        TanhActivation SigmoidActivation SoftmaxActivation IdentityActivation LinearActivation SequenceSoftmaxActivation
        ExpActivation ReluActivation BReluActivation SoftReluActivation STanhActivation AbsActivation SquareActivation
        BaseActivation LogActivation SqrtActivation ReciprocalActivation SoftSignActivation""",
        "attrs": "HookAttr HookAttribute ParamAttr ExtraAttr ParameterAttribute ExtraLayerAttribute",
        "config_parser_utils": "parse_trainer_config parse_network_config parse_optimizer_config reset_parser",
        "data_sources": "define_py_data_sources2",
        "evaluators": """
        evaluator_base classification_error_evaluator auc_evaluator pnpair_evaluator precision_recall_evaluator
        ctc_error_evaluator chunk_evaluator sum_evaluator column_sum_evaluator value_printer_evaluator
        gradient_printer_evaluator maxid_printer_evaluator maxframe_printer_evaluator seqtext_printer_evaluator
        classification_error_printer_evaluator detection_map_evaluator""",
        "layers": """
        data_layer fc_layer selective_fc_layer embedding_layer mixed_layer concat_layer addto_layer dropout_layer
        trans_layer rotate_layer resize_layer repeat_layer expand_layer maxid_layer eos_layer sampling_id_layer
        get_output_layer multiplex_layer printer_layer print_layer gated_unit_layer pooling_layer last_seq first_seq
        seq_concat_layer seq_reshape_layer sub_seq_layer seq_slice_layer sub_nested_seq_layer kmax_seq_score_layer
        row_conv_layer recurrent_layer lstmemory grumemory lstm_step_layer gru_step_layer gru_step_naive_layer memory
        recurrent_group beam_search img_conv_layer img_pool_layer batch_norm_layer img_cmrnorm_layer
        cross_channel_norm_layer maxout_layer spp_layer bilinear_interp_layer block_expand_layer pad_layer crop_layer
        prelu_layer img_conv3d_layer img_pool3d_layer upsample_layer switch_order_layer scale_sub_region_layer
        priorbox_layer multibox_loss_layer detection_output_layer roi_pool_layer interpolation_layer power_layer
        scaling_layer slope_intercept_layer sum_to_one_norm_layer row_l2_norm_layer cos_sim l2_distance_layer
        dot_prod_layer out_prod_layer tensor_layer conv_shift_layer linear_comb_layer convex_comb_layer clip_layer
        scale_shift_layer factorization_machine classification_cost cross_entropy cross_entropy_with_selfnorm
        square_error_cost regression_cost mse_cost multi_binary_label_cross_entropy huber_cost huber_regression_cost
        huber_classification_cost smooth_l1_cost sum_cost rank_cost lambda_cost crf_layer crf_decoding_layer ctc_layer
        warp_ctc_layer nce_layer hsigmoid cross_entropy_over_beam full_matrix_projection trans_full_matrix_projection
        table_projection identity_projection slice_projection dotmul_projection scaling_projection context_projection
        conv_projection dotmul_operator conv_operator AggregateLevel ExpandLevel LayerType LayerOutput StaticInput
        SubsequenceInput GeneratedInput BaseGeneratedInput BeamInput layer_support""",
        "networks": """
        sequence_conv_pool simple_lstm simple_img_conv_pool img_conv_bn_pool img_conv_group img_separable_conv small_vgg
        vgg_16_network lstmemory_unit lstmemory_group gru_unit gru_group simple_gru simple_gru2 bidirectional_lstm
        bidirectional_gru simple_attention dot_product_attention multi_head_attention text_conv_pool inputs outputs""",
        "optimizers": """
        Optimizer BaseSGDOptimizer MomentumOptimizer AdamaxOptimizer AdamOptimizer AdaGradOptimizer RMSPropOptimizer
        DecayedAdaGradOptimizer AdaDeltaOptimizer BaseRegularization L2Regularization settings ModelAverage""",
        "poolings": """
        BasePoolingType MaxPooling AvgPooling MaxWithMaskPooling CudnnMaxPooling CudnnAvgPooling CudnnAvgInclPadPooling
        SumPooling SquareRootNPooling""",
    }.items()
}

# the sub-modules of paddle.trainer_config_helpers
SUBMODULES = (*HELPERS, "default_decorators", "layer_math", "utils")

# the functions of the raw form (v1), which a configuration can use without an import
_V1 = """
    Settings Inputs Outputs HasInputsSet Layer Input Bias Parameter ParameterHook MixedLayer ExpressionLayer
    Evaluator Memory SetMemoryInput Generator Link RecurrentLayerGroupBegin RecurrentLayerGroupEnd
    RecurrentLayerGroupWithoutOutLinksBegin RecurrentLayerGroupSetOutLink RecurrentLayerGroupSetGenerator
    SubModelBegin SubModelEnd EnableSubmodelSuffix model_type TrainData TestData Data SimpleData PyData MultiData
    cluster_config get_config_arg Import default_initial_std default_initial_mean default_initial_strategy
    default_initial_smart default_momentum default_decay_rate default_num_batches_regularization
    default_gradient_clipping_threshold default_device default_update_hooks default_compact_func BilinearInterp
    BlockExpand Conv Conv3D Image MaxOut Norm Pad Pool Pool3d RowConv SpatialPyramidPool Upsample ProtoData
    FullMatrixProjection TransposedFullMatrixProjection TableProjection IdentityProjection IdentityOffsetProjection
    DotMulProjection ScalingProjection ContextProjection ConvProjection DotMulOperator ConvOperator AddToLayer
    AgentLayer AucValidation AverageLayer BatchNormLayer BilinearInterpLayer BlockExpandLayer ClipLayer Conv3DLayer
    CropLayer DeConv3DLayer MaxOutLayer PadLayer ParameterReluLayer Pool3DLayer PriorBoxLayer ROIPoolLayer
    RowConvLayer ScaleSubRegionLayer SpatialPyramidPoolLayer CRFDecodingLayer CRFLayer CTCLayer ConcatenateLayer
    ConcatenateLayer2 ConvLayer ConvShiftLayer ConvTransLayer ConvexCombinationLayer CosSimLayer CosSimVecMatLayer
    DataLayer DataNormLayer DotProdLayer EosIdLayer ExpandLayer FCLayer FeatMapExpandLayer GatedRecurrentLayer
    GatherAgentLayer GetOutputLayer GruStepLayer HierarchicalSigmoidLayer HuberRegressionLoss HuberTwoClass
    HuberTwoClassification InterpolationLayer KmaxSeqScoreLayer L2DistanceLayer LambdaCost LstmLayer LstmStepLayer
    MDLstmLayer MaxIdLayer MaxLayer MultiBinaryLabelCrossEntropy MultiClassCrossEntropy
    MultiClassCrossEntropySelfNormCostLayer MultiplexLayer NCELayer NormLayer OuterProdLayer PnpairValidation
    PoolLayer PowerLayer PrintLayer RankingCost RecurrentLayer RecurrentLayerGroup ResizeLayer RotateLayer
    RowL2NormLayer SamplingIdLayer ScaleShiftLayer ScalingLayer ScatterAgentLayer SelectiveFCLayer SeqSliceLayer
    SequenceConcatLayer SequenceFirstInstanceLayer SequenceLastInstanceLayer SequenceReshapeLayer
    SlopeInterceptLayer SmoothL1Cost SoftBinaryClassCrossEntropy SubNestedSequenceLayer SubSequenceLayer SumCost
    SumOfSquaresCostLayer SumToOneNormLayer TensorLayer TransLayer WarpCTCLayer"""
V1_NAMES = tuple(_V1.split())
# what a provider module imports from paddle.trainer.PyDataProvider2
_PROVIDER = """
    provider CacheType CheckInputTypeWrapper CheckWrapper DataType InputOrderWrapper InputType SequenceType
    SingleSlotWrapper dense_array dense_slot dense_vector dense_vector_sequence dense_vector_sub_sequence
    deserialize_args index_slot integer_sequence integer_value integer_value_sequence integer_value_sub_sequence
    sparse_binary_vector sparse_binary_vector_sequence sparse_binary_vector_sub_sequence sparse_float_vector
    sparse_float_vector_sequence sparse_float_vector_sub_sequence sparse_non_value_slot sparse_value_slot"""
PROVIDER_NAMES = tuple(_PROVIDER.split())
# what only a module of the oldest providers imports, from paddle.trainer.PyDataProviderWrapper
_WRAPPER = """
    DenseSlot GeneralPyDataProvider IndexSlot PoolSize SlotType SparseNonValueSlot SparseValueSlot StringSlot
    default_init_hook init_hook_wrapper"""
WRAPPER_NAMES = tuple(_WRAPPER.split())
_OWN_TYPES = "a config cannot define layer types: docs/layers.md lists those that there are"
# names that scripts expect and that nothing resembles: a close name would mean something else
_ABSENT = {
    "L1Regularization": "v0.10 has none: ParamAttr(l1_rate=...) sets L1, which parameter servers apply",
    **{
        name: f"add the line `from paddle.trainer_config_helpers.data_sources import {name}`"
        for name in ("define_py_data_source", "define_py_data_sources")
    },
    **dict.fromkeys(("LayerBase", "config_class", "config_func", "config_layer"), _OWN_TYPES),
}
# names that scripts use for modules
_USUAL_IMPORTS = {"np": "import numpy as np", "numpy": "import numpy", "cPickle": "import cPickle"}

_built: dict[str, dict[str, Any]] = {}


def public(module: str, *, also: str | None = None) -> Callable[[T], T]:
    """Register a function or class in the sub-module `module`, a key of HELPERS or "v1"; `also` is a second name."""

    def register(thing: T) -> T:
        names = _built.setdefault(module, {})
        names[getattr(thing, "__name__")] = thing  # noqa: B009 - T has no bound that promises a __name__
        if also:
            names[also] = thing
        return thing

    return register


def built(module: str) -> Mapping[str, Any]:
    """Return the names registered for a sub-module, with their functions or classes."""
    return _built.get(module, {})


class UnknownName(AttributeError):
    """A name that paddle.trainer_config_helpers does not have."""


def lookup(name: str) -> Any:
    """Return the function or class with this name.

    Raises: UnknownName: paddle.trainer_config_helpers does not have the name.
    """
    for module in HELPERS:
        if name in built(module):
            return built(module)[name]
    raise UnknownName(f"paddle.trainer_config_helpers has no {name!r}{suggestion(name)}")


def suggestion(name: str) -> str:
    """Return what makes an unknown name work: the line that a script lacks, or `; did you mean 'fc_layer'?`, or ""."""
    if any(name in names for names in (*HELPERS.values(), SUBMODULES)):
        return "; add the line `from paddle.trainer_config_helpers import *`"
    if name in PROVIDER_NAMES:
        return "; add the line `from paddle.trainer.PyDataProvider2 import *`"
    if name in WRAPPER_NAMES:
        return "; add the line `from paddle.trainer.PyDataProviderWrapper import *`"
    if name in V1_NAMES:
        return (
            f"; a config calls {name}(...) without an import, any other module adds the line `from "
            f"paddle.trainer.config_parser import {name}`"
        )
    if name in _ABSENT:
        return f"; {_ABSENT[name]}"
    known = [*V1_NAMES, *PROVIDER_NAMES, *WRAPPER_NAMES, *(name for names in HELPERS.values() for name in names)]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {close[0]!r}?" if close else ""


def module_line(name: str) -> str:
    """Return `; add the line ...` if a script uses a module of Python or numpy without an import, else ""."""
    line = f"import {name}" if name in sys.stdlib_module_names else _USUAL_IMPORTS.get(name)
    return f"; add the line `{line}`" if line else ""

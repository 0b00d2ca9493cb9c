"""The constants of the config language: levels of aggregation and expansion of sequences, and names of layer types.

Source: spec/config.md section 8.
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.argument_errors import wrong
from trainer.config.building.names import public

_LEVELS = ("non-seq", "seq")


@public("layers")
class AggregateLevel:
    """How a layer reduces sequences: to one row for each sequence, or to one row for each sub-sequence."""

    TO_NO_SEQUENCE = EACH_TIMESTEP = "non-seq"
    TO_SEQUENCE = EACH_SEQUENCE = "seq"


@public("layers")
class ExpandLevel:
    """What a layer repeats: the single row of each sequence, or the row that belongs to each sub-sequence."""

    FROM_NO_SEQUENCE = FROM_TIMESTEP = "non-seq"
    FROM_SEQUENCE = "seq"


def to_level(argument: str, value: Any) -> str:
    """Return the text of a level in the message."""
    if value not in _LEVELS:
        raise wrong(argument, value, "it must be one of the constants of AggregateLevel or ExpandLevel")
    return str(value)


@public("layers")
class LayerType:
    """The layer types; the attributes have the names that old scripts use."""

    DATA = "data"
    MIXED_LAYER = "mixed"
    LSTMEMORY = "lstmemory"
    GRUMEMORY = "gated_recurrent"
    SEQUENCE_LAST_INSTANCE = "seqlastins"
    SEQUENCE_FIRST_INSTANCE = "seqfirstins"
    SEQUENCE_RESHAPE = "seqreshape"
    SEQUENCE_CONCAT_LAYER = "seqconcat"
    POOLING_MAX = "max"
    POOLING_AVG = "average"
    FC_LAYER = "fc"
    COST = "cost"
    COSINE_SIM_VEC = "cos_vm"
    COSINE_SIM = "cos"
    L2_DISTANCE = "l2_distance"
    HSIGMOID = "hsigmoid"
    CONV_LAYER = "conv"
    CONVTRANS_LAYER = "convt"
    EXCONV_LAYER = "exconv"
    EXCONVTRANS_LAYER = "exconvt"
    CUDNNCONV_LAYER = "cudnn_conv"
    CUDNNCONVTRANS_LAYER = "cudnn_convt"
    CONV3D_LAYER = "conv3d"
    DECONV3D_LAYER = "deconv3d"
    POOL_LAYER = "pool"
    POOL3D_LAYER = "pool3d"
    UPSAMPLE_LAYER = "upsample"
    BATCH_NORM_LAYER = "batch_norm"
    NORM_LAYER = "norm"
    SUM_TO_ONE_NORM_LAYER = "sum_to_one_norm"
    ROW_L2_NORM_LAYER = "row_l2_norm"
    ADDTO_LAYER = "addto"
    CONCAT_LAYER = "concat"
    CONCAT_PROJ_LAYER = "concat2"
    LSTM_STEP_LAYER = "lstm_step"
    GRU_STEP_LAYER = "gru_step"
    GET_OUTPUT_LAYER = "get_output"
    EXPAND_LAYER = "expand"
    INTERPOLATION_LAYER = "interpolation"
    BILINEAR_INTERP_LAYER = "bilinear_interp"
    POWER_LAYER = "power"
    SCALING_LAYER = "scaling"
    TRANS_LAYER = "trans"
    ROTATE_LAYER = "rotate"
    DOT_PROD_LAYER = "dot_prod"
    OUT_PROD_LAYER = "out_prod"
    FEATURE_MAP_EXPAND_LAYER = "featmap_expand"
    MEMORY = "memory"
    MAXID_LAYER = "maxid"
    EOSID_LAYER = "eos_id"
    RECURRENT_LAYER = "recurrent"
    CONV_SHIFT_LAYER = "conv_shift"
    TENSOR_LAYER = "tensor"
    SEL_FC_LAYER = "selective_fc"
    SAMPLING_ID_LAYER = "sampling_id"
    SLOPE_INTERCEPT_LAYER = "slope_intercept"
    LINEAR_COMBINATION_LAYER = "convex_comb"
    BLOCK_EXPAND = "blockexpand"
    MAXOUT = "maxout"
    SPP_LAYER = "spp"
    PAD_LAYER = "pad"
    MULTIPLEX_LAYER = "multiplex"
    ROW_CONV_LAYER = "row_conv"
    PRINT_LAYER = "print"
    PRIORBOX_LAYER = "priorbox"
    MULTIBOX_LOSS_LAYER = "multibox_loss"
    DETECTION_OUTPUT_LAYER = "detection_output"
    ROI_POOL_LAYER = "roi_pool"
    CTC_LAYER = "ctc"
    WARP_CTC_LAYER = "warp_ctc"
    CRF_LAYER = "crf"
    CRF_DECODING_LAYER = "crf_decoding"
    NCE_LAYER = "nce"
    RANK_COST = "rank-cost"
    LAMBDA_COST = "lambda_cost"
    HUBER_REGRESSION = "huber_regression"
    HUBER_CLASSIFICATION = "huber_classification"
    CROSS_ENTROPY = "multi-class-cross-entropy"
    CROSS_ENTROPY_WITH_SELFNORM = "multi_class_cross_entropy_with_selfnorm"
    CROSS_ENTROPY_OVER_BEAM = "cross_entropy_over_beam"
    SOFT_BIN_CLASS_CROSS_ENTROPY = "soft_binary_class_cross_entropy"
    MULTI_BIN_LABEL_CROSS_ENTROPY = "multi_binary_label_cross_entropy"
    SUM_COST = "sum_cost"
    SMOOTH_L1 = "smooth_l1"
    PRELU = "prelu"
    SWITCH_ORDER_LAYER = "switch_order"
    CROP_LAYER = "crop"
    SUB_NESTED_SEQ = "sub_nested_seq"
    CLIP_LAYER = "clip"
    SEQ_SLICE = "seq_slice"
    KMAX_SEQ_SCORE = "kmax_seq_score"
    SCALE_SHIFT_LAYER = "scale_shift"
    RESIZE = "resize"
    SUB_SEQ_LAYER = "subseq"
    SCALE_SUB_REGION_LAYER = "scale_sub_region"
    FACTORIZATION_MACHINE = "factorization_machine"

    @staticmethod
    def is_layer_type(type_name: str) -> bool:
        """Return whether a string is the name of a layer type."""
        return type_name in {value for value in vars(LayerType).values() if isinstance(value, str)}

from paddle_base.proto import ParameterConfig_pb2 as _ParameterConfig_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActivationConfig(_message.Message):
    __slots__ = ["type"]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    type: str
    def __init__(self, type: _Optional[str] = ...) -> None: ...

class BilinearInterpConfig(_message.Message):
    __slots__ = ["image_conf", "out_size_x", "out_size_y"]
    IMAGE_CONF_FIELD_NUMBER: _ClassVar[int]
    OUT_SIZE_X_FIELD_NUMBER: _ClassVar[int]
    OUT_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    image_conf: ImageConfig
    out_size_x: int
    out_size_y: int
    def __init__(self, image_conf: _Optional[_Union[ImageConfig, _Mapping]] = ..., out_size_x: _Optional[int] = ..., out_size_y: _Optional[int] = ...) -> None: ...

class BlockExpandConfig(_message.Message):
    __slots__ = ["block_x", "block_y", "channels", "img_size_x", "img_size_y", "output_x", "output_y", "padding_x", "padding_y", "stride_x", "stride_y"]
    BLOCK_X_FIELD_NUMBER: _ClassVar[int]
    BLOCK_Y_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_X_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_X_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_Y_FIELD_NUMBER: _ClassVar[int]
    PADDING_X_FIELD_NUMBER: _ClassVar[int]
    PADDING_Y_FIELD_NUMBER: _ClassVar[int]
    STRIDE_X_FIELD_NUMBER: _ClassVar[int]
    STRIDE_Y_FIELD_NUMBER: _ClassVar[int]
    block_x: int
    block_y: int
    channels: int
    img_size_x: int
    img_size_y: int
    output_x: int
    output_y: int
    padding_x: int
    padding_y: int
    stride_x: int
    stride_y: int
    def __init__(self, channels: _Optional[int] = ..., stride_x: _Optional[int] = ..., stride_y: _Optional[int] = ..., padding_x: _Optional[int] = ..., padding_y: _Optional[int] = ..., block_x: _Optional[int] = ..., block_y: _Optional[int] = ..., output_x: _Optional[int] = ..., output_y: _Optional[int] = ..., img_size_x: _Optional[int] = ..., img_size_y: _Optional[int] = ...) -> None: ...

class ClipConfig(_message.Message):
    __slots__ = ["max", "min"]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    max: float
    min: float
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class ConvConfig(_message.Message):
    __slots__ = ["caffe_mode", "channels", "dilation", "dilation_y", "filter_channels", "filter_size", "filter_size_y", "filter_size_z", "groups", "img_size", "img_size_y", "img_size_z", "output_x", "output_y", "output_z", "padding", "padding_y", "padding_z", "stride", "stride_y", "stride_z"]
    CAFFE_MODE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    DILATION_FIELD_NUMBER: _ClassVar[int]
    DILATION_Y_FIELD_NUMBER: _ClassVar[int]
    FILTER_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    FILTER_SIZE_FIELD_NUMBER: _ClassVar[int]
    FILTER_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    FILTER_SIZE_Z_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Z_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_X_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_Y_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_Z_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    PADDING_Y_FIELD_NUMBER: _ClassVar[int]
    PADDING_Z_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_Y_FIELD_NUMBER: _ClassVar[int]
    STRIDE_Z_FIELD_NUMBER: _ClassVar[int]
    caffe_mode: bool
    channels: int
    dilation: int
    dilation_y: int
    filter_channels: int
    filter_size: int
    filter_size_y: int
    filter_size_z: int
    groups: int
    img_size: int
    img_size_y: int
    img_size_z: int
    output_x: int
    output_y: int
    output_z: int
    padding: int
    padding_y: int
    padding_z: int
    stride: int
    stride_y: int
    stride_z: int
    def __init__(self, filter_size: _Optional[int] = ..., channels: _Optional[int] = ..., stride: _Optional[int] = ..., padding: _Optional[int] = ..., groups: _Optional[int] = ..., filter_channels: _Optional[int] = ..., output_x: _Optional[int] = ..., img_size: _Optional[int] = ..., caffe_mode: bool = ..., filter_size_y: _Optional[int] = ..., padding_y: _Optional[int] = ..., stride_y: _Optional[int] = ..., output_y: _Optional[int] = ..., img_size_y: _Optional[int] = ..., dilation: _Optional[int] = ..., dilation_y: _Optional[int] = ..., filter_size_z: _Optional[int] = ..., padding_z: _Optional[int] = ..., stride_z: _Optional[int] = ..., output_z: _Optional[int] = ..., img_size_z: _Optional[int] = ...) -> None: ...

class DetectionOutputConfig(_message.Message):
    __slots__ = ["background_id", "confidence_threshold", "height", "input_num", "keep_top_k", "nms_threshold", "nms_top_k", "num_classes", "width"]
    BACKGROUND_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    INPUT_NUM_FIELD_NUMBER: _ClassVar[int]
    KEEP_TOP_K_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NMS_TOP_K_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    background_id: int
    confidence_threshold: float
    height: int
    input_num: int
    keep_top_k: int
    nms_threshold: float
    nms_top_k: int
    num_classes: int
    width: int
    def __init__(self, num_classes: _Optional[int] = ..., nms_threshold: _Optional[float] = ..., nms_top_k: _Optional[int] = ..., background_id: _Optional[int] = ..., input_num: _Optional[int] = ..., keep_top_k: _Optional[int] = ..., confidence_threshold: _Optional[float] = ..., height: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class EvaluatorConfig(_message.Message):
    __slots__ = ["ap_type", "background_id", "chunk_scheme", "classification_threshold", "delimited", "dict_file", "evaluate_difficult", "excluded_chunk_types", "input_layers", "name", "num_chunk_types", "num_results", "overlap_threshold", "positive_label", "result_file", "top_k", "type"]
    AP_TYPE_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_ID_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SCHEME_FIELD_NUMBER: _ClassVar[int]
    CLASSIFICATION_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DELIMITED_FIELD_NUMBER: _ClassVar[int]
    DICT_FILE_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_DIFFICULT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_CHUNK_TYPES_FIELD_NUMBER: _ClassVar[int]
    INPUT_LAYERS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_CHUNK_TYPES_FIELD_NUMBER: _ClassVar[int]
    NUM_RESULTS_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_LABEL_FIELD_NUMBER: _ClassVar[int]
    RESULT_FILE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ap_type: str
    background_id: int
    chunk_scheme: str
    classification_threshold: float
    delimited: bool
    dict_file: str
    evaluate_difficult: bool
    excluded_chunk_types: _containers.RepeatedScalarFieldContainer[int]
    input_layers: _containers.RepeatedScalarFieldContainer[str]
    name: str
    num_chunk_types: int
    num_results: int
    overlap_threshold: float
    positive_label: int
    result_file: str
    top_k: int
    type: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., input_layers: _Optional[_Iterable[str]] = ..., chunk_scheme: _Optional[str] = ..., num_chunk_types: _Optional[int] = ..., classification_threshold: _Optional[float] = ..., positive_label: _Optional[int] = ..., dict_file: _Optional[str] = ..., result_file: _Optional[str] = ..., num_results: _Optional[int] = ..., delimited: bool = ..., excluded_chunk_types: _Optional[_Iterable[int]] = ..., top_k: _Optional[int] = ..., overlap_threshold: _Optional[float] = ..., background_id: _Optional[int] = ..., evaluate_difficult: bool = ..., ap_type: _Optional[str] = ...) -> None: ...

class ExternalConfig(_message.Message):
    __slots__ = ["input_layer_names", "layer_names", "output_layer_names"]
    INPUT_LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    input_layer_names: _containers.RepeatedScalarFieldContainer[str]
    layer_names: _containers.RepeatedScalarFieldContainer[str]
    output_layer_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, layer_names: _Optional[_Iterable[str]] = ..., input_layer_names: _Optional[_Iterable[str]] = ..., output_layer_names: _Optional[_Iterable[str]] = ...) -> None: ...

class GeneratorConfig(_message.Message):
    __slots__ = ["beam_size", "eos_layer_name", "log_prob", "max_num_frames", "num_results_per_sample"]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    EOS_LAYER_NAME_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_FRAMES_FIELD_NUMBER: _ClassVar[int]
    NUM_RESULTS_PER_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    eos_layer_name: str
    log_prob: bool
    max_num_frames: int
    num_results_per_sample: int
    def __init__(self, max_num_frames: _Optional[int] = ..., eos_layer_name: _Optional[str] = ..., num_results_per_sample: _Optional[int] = ..., beam_size: _Optional[int] = ..., log_prob: bool = ...) -> None: ...

class ImageConfig(_message.Message):
    __slots__ = ["channels", "img_size", "img_size_y", "img_size_z"]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Z_FIELD_NUMBER: _ClassVar[int]
    channels: int
    img_size: int
    img_size_y: int
    img_size_z: int
    def __init__(self, channels: _Optional[int] = ..., img_size: _Optional[int] = ..., img_size_y: _Optional[int] = ..., img_size_z: _Optional[int] = ...) -> None: ...

class LayerConfig(_message.Message):
    __slots__ = ["NDCG_num", "active_gate_type", "active_state_type", "active_type", "average_strategy", "axis", "beam_size", "bias_parameter_name", "bias_size", "blank", "bos_id", "coeff", "cos_scale", "data_norm_strategy", "delta", "depth", "device", "directions", "drop_rate", "eos_id", "epsilon", "error_clipping_threshold", "factor_size", "has_selected_colums", "height", "inputs", "intercept", "max_sort_size", "moving_average_fraction", "name", "neg_sampling_dist", "norm_by_times", "num_classes", "num_filters", "num_neg_samples", "offset", "operator_confs", "output_max_index", "partial_sum", "reshape_conf", "reversed", "select_first", "selective_fc_full_mul_ratio", "selective_fc_parallel_plain_mul_thread_num", "selective_fc_pass_generation", "seq_pool_stride", "shape", "shared_biases", "size", "slope", "softmax_selfnorm_alpha", "trans_type", "type", "use_global_stats", "user_arg", "width"]
    ACTIVE_GATE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_STATE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_TYPE_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    BIAS_PARAMETER_NAME_FIELD_NUMBER: _ClassVar[int]
    BIAS_SIZE_FIELD_NUMBER: _ClassVar[int]
    BLANK_FIELD_NUMBER: _ClassVar[int]
    BOS_ID_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    COS_SCALE_FIELD_NUMBER: _ClassVar[int]
    DATA_NORM_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DIRECTIONS_FIELD_NUMBER: _ClassVar[int]
    DROP_RATE_FIELD_NUMBER: _ClassVar[int]
    EOS_ID_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLIPPING_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    FACTOR_SIZE_FIELD_NUMBER: _ClassVar[int]
    HAS_SELECTED_COLUMS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    INTERCEPT_FIELD_NUMBER: _ClassVar[int]
    MAX_SORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    MOVING_AVERAGE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NDCG_NUM_FIELD_NUMBER: _ClassVar[int]
    NDCG_num: int
    NEG_SAMPLING_DIST_FIELD_NUMBER: _ClassVar[int]
    NORM_BY_TIMES_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_FILTERS_FIELD_NUMBER: _ClassVar[int]
    NUM_NEG_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_CONFS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MAX_INDEX_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_SUM_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_CONF_FIELD_NUMBER: _ClassVar[int]
    REVERSED_FIELD_NUMBER: _ClassVar[int]
    SELECTIVE_FC_FULL_MUL_RATIO_FIELD_NUMBER: _ClassVar[int]
    SELECTIVE_FC_PARALLEL_PLAIN_MUL_THREAD_NUM_FIELD_NUMBER: _ClassVar[int]
    SELECTIVE_FC_PASS_GENERATION_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIRST_FIELD_NUMBER: _ClassVar[int]
    SEQ_POOL_STRIDE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SHARED_BIASES_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SLOPE_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_SELFNORM_ALPHA_FIELD_NUMBER: _ClassVar[int]
    TRANS_TYPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    USER_ARG_FIELD_NUMBER: _ClassVar[int]
    USE_GLOBAL_STATS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    active_gate_type: str
    active_state_type: str
    active_type: str
    average_strategy: str
    axis: int
    beam_size: int
    bias_parameter_name: str
    bias_size: int
    blank: int
    bos_id: int
    coeff: float
    cos_scale: float
    data_norm_strategy: str
    delta: float
    depth: int
    device: int
    directions: _containers.RepeatedScalarFieldContainer[bool]
    drop_rate: float
    eos_id: int
    epsilon: float
    error_clipping_threshold: float
    factor_size: int
    has_selected_colums: bool
    height: int
    inputs: _containers.RepeatedCompositeFieldContainer[LayerInputConfig]
    intercept: float
    max_sort_size: int
    moving_average_fraction: float
    name: str
    neg_sampling_dist: _containers.RepeatedScalarFieldContainer[float]
    norm_by_times: bool
    num_classes: int
    num_filters: int
    num_neg_samples: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    operator_confs: _containers.RepeatedCompositeFieldContainer[OperatorConfig]
    output_max_index: bool
    partial_sum: int
    reshape_conf: ReshapeConfig
    reversed: bool
    select_first: bool
    selective_fc_full_mul_ratio: float
    selective_fc_parallel_plain_mul_thread_num: int
    selective_fc_pass_generation: bool
    seq_pool_stride: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    shared_biases: bool
    size: int
    slope: float
    softmax_selfnorm_alpha: float
    trans_type: str
    type: str
    use_global_stats: bool
    user_arg: str
    width: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., size: _Optional[int] = ..., active_type: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[LayerInputConfig, _Mapping]]] = ..., bias_parameter_name: _Optional[str] = ..., num_filters: _Optional[int] = ..., shared_biases: bool = ..., partial_sum: _Optional[int] = ..., drop_rate: _Optional[float] = ..., num_classes: _Optional[int] = ..., device: _Optional[int] = ..., reversed: bool = ..., active_gate_type: _Optional[str] = ..., active_state_type: _Optional[str] = ..., num_neg_samples: _Optional[int] = ..., neg_sampling_dist: _Optional[_Iterable[float]] = ..., output_max_index: bool = ..., softmax_selfnorm_alpha: _Optional[float] = ..., directions: _Optional[_Iterable[bool]] = ..., norm_by_times: bool = ..., coeff: _Optional[float] = ..., average_strategy: _Optional[str] = ..., error_clipping_threshold: _Optional[float] = ..., operator_confs: _Optional[_Iterable[_Union[OperatorConfig, _Mapping]]] = ..., NDCG_num: _Optional[int] = ..., max_sort_size: _Optional[int] = ..., slope: _Optional[float] = ..., intercept: _Optional[float] = ..., cos_scale: _Optional[float] = ..., data_norm_strategy: _Optional[str] = ..., bos_id: _Optional[int] = ..., eos_id: _Optional[int] = ..., beam_size: _Optional[int] = ..., select_first: bool = ..., trans_type: _Optional[str] = ..., selective_fc_pass_generation: bool = ..., has_selected_colums: bool = ..., selective_fc_full_mul_ratio: _Optional[float] = ..., selective_fc_parallel_plain_mul_thread_num: _Optional[int] = ..., use_global_stats: bool = ..., moving_average_fraction: _Optional[float] = ..., bias_size: _Optional[int] = ..., user_arg: _Optional[str] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., blank: _Optional[int] = ..., seq_pool_stride: _Optional[int] = ..., axis: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ..., shape: _Optional[_Iterable[int]] = ..., delta: _Optional[float] = ..., depth: _Optional[int] = ..., reshape_conf: _Optional[_Union[ReshapeConfig, _Mapping]] = ..., epsilon: _Optional[float] = ..., factor_size: _Optional[int] = ...) -> None: ...

class LayerInputConfig(_message.Message):
    __slots__ = ["bilinear_interp_conf", "block_expand_conf", "clip_conf", "conv_conf", "detection_output_conf", "image_conf", "input_layer_argument", "input_layer_name", "input_parameter_name", "maxout_conf", "multibox_loss_conf", "norm_conf", "pad_conf", "pool_conf", "priorbox_conf", "proj_conf", "roi_pool_conf", "row_conv_conf", "scale_sub_region_conf", "spp_conf", "upsample_conf"]
    BILINEAR_INTERP_CONF_FIELD_NUMBER: _ClassVar[int]
    BLOCK_EXPAND_CONF_FIELD_NUMBER: _ClassVar[int]
    CLIP_CONF_FIELD_NUMBER: _ClassVar[int]
    CONV_CONF_FIELD_NUMBER: _ClassVar[int]
    DETECTION_OUTPUT_CONF_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CONF_FIELD_NUMBER: _ClassVar[int]
    INPUT_LAYER_ARGUMENT_FIELD_NUMBER: _ClassVar[int]
    INPUT_LAYER_NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_PARAMETER_NAME_FIELD_NUMBER: _ClassVar[int]
    MAXOUT_CONF_FIELD_NUMBER: _ClassVar[int]
    MULTIBOX_LOSS_CONF_FIELD_NUMBER: _ClassVar[int]
    NORM_CONF_FIELD_NUMBER: _ClassVar[int]
    PAD_CONF_FIELD_NUMBER: _ClassVar[int]
    POOL_CONF_FIELD_NUMBER: _ClassVar[int]
    PRIORBOX_CONF_FIELD_NUMBER: _ClassVar[int]
    PROJ_CONF_FIELD_NUMBER: _ClassVar[int]
    ROI_POOL_CONF_FIELD_NUMBER: _ClassVar[int]
    ROW_CONV_CONF_FIELD_NUMBER: _ClassVar[int]
    SCALE_SUB_REGION_CONF_FIELD_NUMBER: _ClassVar[int]
    SPP_CONF_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_CONF_FIELD_NUMBER: _ClassVar[int]
    bilinear_interp_conf: BilinearInterpConfig
    block_expand_conf: BlockExpandConfig
    clip_conf: ClipConfig
    conv_conf: ConvConfig
    detection_output_conf: DetectionOutputConfig
    image_conf: ImageConfig
    input_layer_argument: str
    input_layer_name: str
    input_parameter_name: str
    maxout_conf: MaxOutConfig
    multibox_loss_conf: MultiBoxLossConfig
    norm_conf: NormConfig
    pad_conf: PadConfig
    pool_conf: PoolConfig
    priorbox_conf: PriorBoxConfig
    proj_conf: ProjectionConfig
    roi_pool_conf: ROIPoolConfig
    row_conv_conf: RowConvConfig
    scale_sub_region_conf: ScaleSubRegionConfig
    spp_conf: SppConfig
    upsample_conf: UpsampleConfig
    def __init__(self, input_layer_name: _Optional[str] = ..., input_parameter_name: _Optional[str] = ..., conv_conf: _Optional[_Union[ConvConfig, _Mapping]] = ..., pool_conf: _Optional[_Union[PoolConfig, _Mapping]] = ..., norm_conf: _Optional[_Union[NormConfig, _Mapping]] = ..., proj_conf: _Optional[_Union[ProjectionConfig, _Mapping]] = ..., block_expand_conf: _Optional[_Union[BlockExpandConfig, _Mapping]] = ..., image_conf: _Optional[_Union[ImageConfig, _Mapping]] = ..., input_layer_argument: _Optional[str] = ..., bilinear_interp_conf: _Optional[_Union[BilinearInterpConfig, _Mapping]] = ..., maxout_conf: _Optional[_Union[MaxOutConfig, _Mapping]] = ..., spp_conf: _Optional[_Union[SppConfig, _Mapping]] = ..., priorbox_conf: _Optional[_Union[PriorBoxConfig, _Mapping]] = ..., pad_conf: _Optional[_Union[PadConfig, _Mapping]] = ..., row_conv_conf: _Optional[_Union[RowConvConfig, _Mapping]] = ..., multibox_loss_conf: _Optional[_Union[MultiBoxLossConfig, _Mapping]] = ..., detection_output_conf: _Optional[_Union[DetectionOutputConfig, _Mapping]] = ..., clip_conf: _Optional[_Union[ClipConfig, _Mapping]] = ..., scale_sub_region_conf: _Optional[_Union[ScaleSubRegionConfig, _Mapping]] = ..., roi_pool_conf: _Optional[_Union[ROIPoolConfig, _Mapping]] = ..., upsample_conf: _Optional[_Union[UpsampleConfig, _Mapping]] = ...) -> None: ...

class LinkConfig(_message.Message):
    __slots__ = ["has_subseq", "layer_name", "link_name"]
    HAS_SUBSEQ_FIELD_NUMBER: _ClassVar[int]
    LAYER_NAME_FIELD_NUMBER: _ClassVar[int]
    LINK_NAME_FIELD_NUMBER: _ClassVar[int]
    has_subseq: bool
    layer_name: str
    link_name: str
    def __init__(self, layer_name: _Optional[str] = ..., link_name: _Optional[str] = ..., has_subseq: bool = ...) -> None: ...

class MaxOutConfig(_message.Message):
    __slots__ = ["groups", "image_conf"]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CONF_FIELD_NUMBER: _ClassVar[int]
    groups: int
    image_conf: ImageConfig
    def __init__(self, image_conf: _Optional[_Union[ImageConfig, _Mapping]] = ..., groups: _Optional[int] = ...) -> None: ...

class MemoryConfig(_message.Message):
    __slots__ = ["boot_bias_active_type", "boot_bias_parameter_name", "boot_layer_name", "boot_with_const_id", "is_sequence", "layer_name", "link_name"]
    BOOT_BIAS_ACTIVE_TYPE_FIELD_NUMBER: _ClassVar[int]
    BOOT_BIAS_PARAMETER_NAME_FIELD_NUMBER: _ClassVar[int]
    BOOT_LAYER_NAME_FIELD_NUMBER: _ClassVar[int]
    BOOT_WITH_CONST_ID_FIELD_NUMBER: _ClassVar[int]
    IS_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAYER_NAME_FIELD_NUMBER: _ClassVar[int]
    LINK_NAME_FIELD_NUMBER: _ClassVar[int]
    boot_bias_active_type: str
    boot_bias_parameter_name: str
    boot_layer_name: str
    boot_with_const_id: int
    is_sequence: bool
    layer_name: str
    link_name: str
    def __init__(self, layer_name: _Optional[str] = ..., link_name: _Optional[str] = ..., boot_layer_name: _Optional[str] = ..., boot_bias_parameter_name: _Optional[str] = ..., boot_bias_active_type: _Optional[str] = ..., boot_with_const_id: _Optional[int] = ..., is_sequence: bool = ...) -> None: ...

class ModelConfig(_message.Message):
    __slots__ = ["evaluators", "external_config", "input_layer_names", "layers", "output_layer_names", "parameters", "sub_models", "type"]
    EVALUATORS_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    INPUT_LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SUB_MODELS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    evaluators: _containers.RepeatedCompositeFieldContainer[EvaluatorConfig]
    external_config: ExternalConfig
    input_layer_names: _containers.RepeatedScalarFieldContainer[str]
    layers: _containers.RepeatedCompositeFieldContainer[LayerConfig]
    output_layer_names: _containers.RepeatedScalarFieldContainer[str]
    parameters: _containers.RepeatedCompositeFieldContainer[_ParameterConfig_pb2.ParameterConfig]
    sub_models: _containers.RepeatedCompositeFieldContainer[SubModelConfig]
    type: str
    def __init__(self, type: _Optional[str] = ..., layers: _Optional[_Iterable[_Union[LayerConfig, _Mapping]]] = ..., parameters: _Optional[_Iterable[_Union[_ParameterConfig_pb2.ParameterConfig, _Mapping]]] = ..., input_layer_names: _Optional[_Iterable[str]] = ..., output_layer_names: _Optional[_Iterable[str]] = ..., evaluators: _Optional[_Iterable[_Union[EvaluatorConfig, _Mapping]]] = ..., sub_models: _Optional[_Iterable[_Union[SubModelConfig, _Mapping]]] = ..., external_config: _Optional[_Union[ExternalConfig, _Mapping]] = ...) -> None: ...

class MultiBoxLossConfig(_message.Message):
    __slots__ = ["background_id", "height", "input_num", "neg_overlap", "neg_pos_ratio", "num_classes", "overlap_threshold", "width"]
    BACKGROUND_ID_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    INPUT_NUM_FIELD_NUMBER: _ClassVar[int]
    NEG_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    NEG_POS_RATIO_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    background_id: int
    height: int
    input_num: int
    neg_overlap: float
    neg_pos_ratio: float
    num_classes: int
    overlap_threshold: float
    width: int
    def __init__(self, num_classes: _Optional[int] = ..., overlap_threshold: _Optional[float] = ..., neg_pos_ratio: _Optional[float] = ..., neg_overlap: _Optional[float] = ..., background_id: _Optional[int] = ..., input_num: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class NormConfig(_message.Message):
    __slots__ = ["blocked", "channels", "img_size", "img_size_y", "norm_type", "output_x", "output_y", "pow", "scale", "size"]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    NORM_TYPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_X_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_Y_FIELD_NUMBER: _ClassVar[int]
    POW_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    blocked: bool
    channels: int
    img_size: int
    img_size_y: int
    norm_type: str
    output_x: int
    output_y: int
    pow: float
    scale: float
    size: int
    def __init__(self, norm_type: _Optional[str] = ..., channels: _Optional[int] = ..., size: _Optional[int] = ..., scale: _Optional[float] = ..., pow: _Optional[float] = ..., output_x: _Optional[int] = ..., img_size: _Optional[int] = ..., blocked: bool = ..., output_y: _Optional[int] = ..., img_size_y: _Optional[int] = ...) -> None: ...

class OperatorConfig(_message.Message):
    __slots__ = ["conv_conf", "dotmul_scale", "input_indices", "input_sizes", "num_filters", "output_size", "type"]
    CONV_CONF_FIELD_NUMBER: _ClassVar[int]
    DOTMUL_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_INDICES_FIELD_NUMBER: _ClassVar[int]
    INPUT_SIZES_FIELD_NUMBER: _ClassVar[int]
    NUM_FILTERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    conv_conf: ConvConfig
    dotmul_scale: float
    input_indices: _containers.RepeatedScalarFieldContainer[int]
    input_sizes: _containers.RepeatedScalarFieldContainer[int]
    num_filters: int
    output_size: int
    type: str
    def __init__(self, type: _Optional[str] = ..., input_indices: _Optional[_Iterable[int]] = ..., input_sizes: _Optional[_Iterable[int]] = ..., output_size: _Optional[int] = ..., dotmul_scale: _Optional[float] = ..., conv_conf: _Optional[_Union[ConvConfig, _Mapping]] = ..., num_filters: _Optional[int] = ...) -> None: ...

class PadConfig(_message.Message):
    __slots__ = ["image_conf", "pad_c", "pad_h", "pad_w"]
    IMAGE_CONF_FIELD_NUMBER: _ClassVar[int]
    PAD_C_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    image_conf: ImageConfig
    pad_c: _containers.RepeatedScalarFieldContainer[int]
    pad_h: _containers.RepeatedScalarFieldContainer[int]
    pad_w: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, image_conf: _Optional[_Union[ImageConfig, _Mapping]] = ..., pad_c: _Optional[_Iterable[int]] = ..., pad_h: _Optional[_Iterable[int]] = ..., pad_w: _Optional[_Iterable[int]] = ...) -> None: ...

class PoolConfig(_message.Message):
    __slots__ = ["channels", "exclude_mode", "img_size", "img_size_y", "img_size_z", "output_x", "output_y", "output_z", "padding", "padding_y", "padding_z", "pool_type", "size_x", "size_y", "size_z", "start", "stride", "stride_y", "stride_z"]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_MODE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_Z_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_X_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_Y_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_Z_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    PADDING_Y_FIELD_NUMBER: _ClassVar[int]
    PADDING_Z_FIELD_NUMBER: _ClassVar[int]
    POOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_X_FIELD_NUMBER: _ClassVar[int]
    SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    SIZE_Z_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_Y_FIELD_NUMBER: _ClassVar[int]
    STRIDE_Z_FIELD_NUMBER: _ClassVar[int]
    channels: int
    exclude_mode: bool
    img_size: int
    img_size_y: int
    img_size_z: int
    output_x: int
    output_y: int
    output_z: int
    padding: int
    padding_y: int
    padding_z: int
    pool_type: str
    size_x: int
    size_y: int
    size_z: int
    start: int
    stride: int
    stride_y: int
    stride_z: int
    def __init__(self, pool_type: _Optional[str] = ..., channels: _Optional[int] = ..., size_x: _Optional[int] = ..., start: _Optional[int] = ..., stride: _Optional[int] = ..., output_x: _Optional[int] = ..., img_size: _Optional[int] = ..., padding: _Optional[int] = ..., size_y: _Optional[int] = ..., stride_y: _Optional[int] = ..., output_y: _Optional[int] = ..., img_size_y: _Optional[int] = ..., padding_y: _Optional[int] = ..., size_z: _Optional[int] = ..., stride_z: _Optional[int] = ..., output_z: _Optional[int] = ..., img_size_z: _Optional[int] = ..., padding_z: _Optional[int] = ..., exclude_mode: bool = ...) -> None: ...

class PriorBoxConfig(_message.Message):
    __slots__ = ["aspect_ratio", "max_size", "min_size", "variance"]
    ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    aspect_ratio: _containers.RepeatedScalarFieldContainer[float]
    max_size: _containers.RepeatedScalarFieldContainer[int]
    min_size: _containers.RepeatedScalarFieldContainer[int]
    variance: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, min_size: _Optional[_Iterable[int]] = ..., max_size: _Optional[_Iterable[int]] = ..., aspect_ratio: _Optional[_Iterable[float]] = ..., variance: _Optional[_Iterable[float]] = ...) -> None: ...

class ProjectionConfig(_message.Message):
    __slots__ = ["context_length", "context_start", "conv_conf", "input_size", "name", "num_filters", "offset", "output_size", "pool_conf", "slices", "trainable_padding", "type"]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_START_FIELD_NUMBER: _ClassVar[int]
    CONV_CONF_FIELD_NUMBER: _ClassVar[int]
    INPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_FILTERS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    POOL_CONF_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    TRAINABLE_PADDING_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    context_length: int
    context_start: int
    conv_conf: ConvConfig
    input_size: int
    name: str
    num_filters: int
    offset: int
    output_size: int
    pool_conf: PoolConfig
    slices: _containers.RepeatedCompositeFieldContainer[SliceConfig]
    trainable_padding: bool
    type: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ..., input_size: _Optional[int] = ..., output_size: _Optional[int] = ..., context_start: _Optional[int] = ..., context_length: _Optional[int] = ..., trainable_padding: bool = ..., conv_conf: _Optional[_Union[ConvConfig, _Mapping]] = ..., num_filters: _Optional[int] = ..., offset: _Optional[int] = ..., pool_conf: _Optional[_Union[PoolConfig, _Mapping]] = ..., slices: _Optional[_Iterable[_Union[SliceConfig, _Mapping]]] = ...) -> None: ...

class ROIPoolConfig(_message.Message):
    __slots__ = ["height", "pooled_height", "pooled_width", "spatial_scale", "width"]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    POOLED_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    POOLED_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    height: int
    pooled_height: int
    pooled_width: int
    spatial_scale: float
    width: int
    def __init__(self, pooled_width: _Optional[int] = ..., pooled_height: _Optional[int] = ..., spatial_scale: _Optional[float] = ..., height: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class ReshapeConfig(_message.Message):
    __slots__ = ["height_axis", "width_axis"]
    HEIGHT_AXIS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_AXIS_FIELD_NUMBER: _ClassVar[int]
    height_axis: _containers.RepeatedScalarFieldContainer[int]
    width_axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, height_axis: _Optional[_Iterable[int]] = ..., width_axis: _Optional[_Iterable[int]] = ...) -> None: ...

class RowConvConfig(_message.Message):
    __slots__ = ["context_length"]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    context_length: int
    def __init__(self, context_length: _Optional[int] = ...) -> None: ...

class ScaleSubRegionConfig(_message.Message):
    __slots__ = ["image_conf", "value"]
    IMAGE_CONF_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    image_conf: ImageConfig
    value: float
    def __init__(self, image_conf: _Optional[_Union[ImageConfig, _Mapping]] = ..., value: _Optional[float] = ...) -> None: ...

class SliceConfig(_message.Message):
    __slots__ = ["end", "start"]
    END_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    end: int
    start: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class SppConfig(_message.Message):
    __slots__ = ["image_conf", "pool_type", "pyramid_height"]
    IMAGE_CONF_FIELD_NUMBER: _ClassVar[int]
    POOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PYRAMID_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    image_conf: ImageConfig
    pool_type: str
    pyramid_height: int
    def __init__(self, image_conf: _Optional[_Union[ImageConfig, _Mapping]] = ..., pool_type: _Optional[str] = ..., pyramid_height: _Optional[int] = ...) -> None: ...

class SubModelConfig(_message.Message):
    __slots__ = ["evaluator_names", "generator", "in_links", "input_layer_names", "is_recurrent_layer_group", "layer_names", "memories", "name", "out_links", "output_layer_names", "reversed", "target_inlinkid"]
    EVALUATOR_NAMES_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    INPUT_LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    IN_LINKS_FIELD_NUMBER: _ClassVar[int]
    IS_RECURRENT_LAYER_GROUP_FIELD_NUMBER: _ClassVar[int]
    LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    MEMORIES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LAYER_NAMES_FIELD_NUMBER: _ClassVar[int]
    OUT_LINKS_FIELD_NUMBER: _ClassVar[int]
    REVERSED_FIELD_NUMBER: _ClassVar[int]
    TARGET_INLINKID_FIELD_NUMBER: _ClassVar[int]
    evaluator_names: _containers.RepeatedScalarFieldContainer[str]
    generator: GeneratorConfig
    in_links: _containers.RepeatedCompositeFieldContainer[LinkConfig]
    input_layer_names: _containers.RepeatedScalarFieldContainer[str]
    is_recurrent_layer_group: bool
    layer_names: _containers.RepeatedScalarFieldContainer[str]
    memories: _containers.RepeatedCompositeFieldContainer[MemoryConfig]
    name: str
    out_links: _containers.RepeatedCompositeFieldContainer[LinkConfig]
    output_layer_names: _containers.RepeatedScalarFieldContainer[str]
    reversed: bool
    target_inlinkid: int
    def __init__(self, name: _Optional[str] = ..., layer_names: _Optional[_Iterable[str]] = ..., input_layer_names: _Optional[_Iterable[str]] = ..., output_layer_names: _Optional[_Iterable[str]] = ..., evaluator_names: _Optional[_Iterable[str]] = ..., is_recurrent_layer_group: bool = ..., reversed: bool = ..., memories: _Optional[_Iterable[_Union[MemoryConfig, _Mapping]]] = ..., in_links: _Optional[_Iterable[_Union[LinkConfig, _Mapping]]] = ..., out_links: _Optional[_Iterable[_Union[LinkConfig, _Mapping]]] = ..., generator: _Optional[_Union[GeneratorConfig, _Mapping]] = ..., target_inlinkid: _Optional[int] = ...) -> None: ...

class UpsampleConfig(_message.Message):
    __slots__ = ["image_conf", "pad_out_x", "pad_out_y", "scale", "scale_y", "upsample_size", "upsample_size_y"]
    IMAGE_CONF_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_X_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_Y_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SCALE_Y_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    image_conf: ImageConfig
    pad_out_x: bool
    pad_out_y: bool
    scale: int
    scale_y: int
    upsample_size: int
    upsample_size_y: int
    def __init__(self, image_conf: _Optional[_Union[ImageConfig, _Mapping]] = ..., scale: _Optional[int] = ..., scale_y: _Optional[int] = ..., pad_out_x: bool = ..., pad_out_y: bool = ..., upsample_size: _Optional[int] = ..., upsample_size_y: _Optional[int] = ...) -> None: ...

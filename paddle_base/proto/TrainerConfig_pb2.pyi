from paddle_base.proto import DataConfig_pb2 as _DataConfig_pb2
from paddle_base.proto import ModelConfig_pb2 as _ModelConfig_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OptimizationConfig(_message.Message):
    __slots__ = ["ada_epsilon", "ada_rou", "adam_beta1", "adam_beta2", "adam_epsilon", "algorithm", "async_lagged_grad_discard_ratio", "average_window", "backoff", "batch_size", "c1", "center_parameter_update_method", "delta_add_rate", "do_average_in_cpu", "gradient_clipping_threshold", "l1weight", "l2weight", "l2weight_zero_iter", "learning_method", "learning_rate", "learning_rate_args", "learning_rate_decay_a", "learning_rate_decay_b", "learning_rate_schedule", "max_average_window", "max_backoff", "mini_batch_size", "num_batches_per_get_parameter", "num_batches_per_send_parameter", "owlqn_steps", "shrink_parameter_value", "use_sparse_remote_updater"]
    ADAM_BETA1_FIELD_NUMBER: _ClassVar[int]
    ADAM_BETA2_FIELD_NUMBER: _ClassVar[int]
    ADAM_EPSILON_FIELD_NUMBER: _ClassVar[int]
    ADA_EPSILON_FIELD_NUMBER: _ClassVar[int]
    ADA_ROU_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    ASYNC_LAGGED_GRAD_DISCARD_RATIO_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    C1_FIELD_NUMBER: _ClassVar[int]
    CENTER_PARAMETER_UPDATE_METHOD_FIELD_NUMBER: _ClassVar[int]
    DELTA_ADD_RATE_FIELD_NUMBER: _ClassVar[int]
    DO_AVERAGE_IN_CPU_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_CLIPPING_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    L1WEIGHT_FIELD_NUMBER: _ClassVar[int]
    L2WEIGHT_FIELD_NUMBER: _ClassVar[int]
    L2WEIGHT_ZERO_ITER_FIELD_NUMBER: _ClassVar[int]
    LEARNING_METHOD_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_ARGS_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_DECAY_A_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_DECAY_B_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    MAX_AVERAGE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MINI_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_BATCHES_PER_GET_PARAMETER_FIELD_NUMBER: _ClassVar[int]
    NUM_BATCHES_PER_SEND_PARAMETER_FIELD_NUMBER: _ClassVar[int]
    OWLQN_STEPS_FIELD_NUMBER: _ClassVar[int]
    SHRINK_PARAMETER_VALUE_FIELD_NUMBER: _ClassVar[int]
    USE_SPARSE_REMOTE_UPDATER_FIELD_NUMBER: _ClassVar[int]
    ada_epsilon: float
    ada_rou: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    algorithm: str
    async_lagged_grad_discard_ratio: float
    average_window: float
    backoff: float
    batch_size: int
    c1: float
    center_parameter_update_method: str
    delta_add_rate: float
    do_average_in_cpu: bool
    gradient_clipping_threshold: float
    l1weight: float
    l2weight: float
    l2weight_zero_iter: int
    learning_method: str
    learning_rate: float
    learning_rate_args: str
    learning_rate_decay_a: float
    learning_rate_decay_b: float
    learning_rate_schedule: str
    max_average_window: int
    max_backoff: int
    mini_batch_size: int
    num_batches_per_get_parameter: int
    num_batches_per_send_parameter: int
    owlqn_steps: int
    shrink_parameter_value: float
    use_sparse_remote_updater: bool
    def __init__(self, batch_size: _Optional[int] = ..., algorithm: _Optional[str] = ..., num_batches_per_send_parameter: _Optional[int] = ..., num_batches_per_get_parameter: _Optional[int] = ..., learning_rate: _Optional[float] = ..., learning_rate_decay_a: _Optional[float] = ..., learning_rate_decay_b: _Optional[float] = ..., learning_rate_schedule: _Optional[str] = ..., l1weight: _Optional[float] = ..., l2weight: _Optional[float] = ..., c1: _Optional[float] = ..., backoff: _Optional[float] = ..., owlqn_steps: _Optional[int] = ..., max_backoff: _Optional[int] = ..., l2weight_zero_iter: _Optional[int] = ..., average_window: _Optional[float] = ..., max_average_window: _Optional[int] = ..., learning_method: _Optional[str] = ..., ada_epsilon: _Optional[float] = ..., ada_rou: _Optional[float] = ..., do_average_in_cpu: bool = ..., delta_add_rate: _Optional[float] = ..., mini_batch_size: _Optional[int] = ..., use_sparse_remote_updater: bool = ..., center_parameter_update_method: _Optional[str] = ..., shrink_parameter_value: _Optional[float] = ..., adam_beta1: _Optional[float] = ..., adam_beta2: _Optional[float] = ..., adam_epsilon: _Optional[float] = ..., learning_rate_args: _Optional[str] = ..., async_lagged_grad_discard_ratio: _Optional[float] = ..., gradient_clipping_threshold: _Optional[float] = ...) -> None: ...

class TrainerConfig(_message.Message):
    __slots__ = ["config_file", "config_files", "data_config", "init_model_path", "model_config", "opt_config", "save_dir", "start_pass", "test_data_config"]
    CONFIG_FILES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FILE_FIELD_NUMBER: _ClassVar[int]
    DATA_CONFIG_FIELD_NUMBER: _ClassVar[int]
    INIT_MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    MODEL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    OPT_CONFIG_FIELD_NUMBER: _ClassVar[int]
    SAVE_DIR_FIELD_NUMBER: _ClassVar[int]
    START_PASS_FIELD_NUMBER: _ClassVar[int]
    TEST_DATA_CONFIG_FIELD_NUMBER: _ClassVar[int]
    config_file: str
    config_files: _containers.RepeatedScalarFieldContainer[str]
    data_config: _DataConfig_pb2.DataConfig
    init_model_path: str
    model_config: _ModelConfig_pb2.ModelConfig
    opt_config: OptimizationConfig
    save_dir: str
    start_pass: int
    test_data_config: _DataConfig_pb2.DataConfig
    def __init__(self, model_config: _Optional[_Union[_ModelConfig_pb2.ModelConfig, _Mapping]] = ..., data_config: _Optional[_Union[_DataConfig_pb2.DataConfig, _Mapping]] = ..., opt_config: _Optional[_Union[OptimizationConfig, _Mapping]] = ..., test_data_config: _Optional[_Union[_DataConfig_pb2.DataConfig, _Mapping]] = ..., config_files: _Optional[_Iterable[str]] = ..., save_dir: _Optional[str] = ..., init_model_path: _Optional[str] = ..., start_pass: _Optional[int] = ..., config_file: _Optional[str] = ...) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ParameterConfig(_message.Message):
    __slots__ = ["decay_rate", "decay_rate_l1", "device", "dims", "format", "gradient_clipping_threshold", "initial_mean", "initial_smart", "initial_std", "initial_strategy", "is_shared", "is_sparse", "is_static", "learning_rate", "momentum", "name", "need_compact", "num_batches_regularization", "para_id", "parameter_block_size", "size", "sparse_remote_update", "sparse_update", "update_hooks"]
    DECAY_RATE_FIELD_NUMBER: _ClassVar[int]
    DECAY_RATE_L1_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_CLIPPING_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    INITIAL_MEAN_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SMART_FIELD_NUMBER: _ClassVar[int]
    INITIAL_STD_FIELD_NUMBER: _ClassVar[int]
    INITIAL_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    IS_SHARED_FIELD_NUMBER: _ClassVar[int]
    IS_SPARSE_FIELD_NUMBER: _ClassVar[int]
    IS_STATIC_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEED_COMPACT_FIELD_NUMBER: _ClassVar[int]
    NUM_BATCHES_REGULARIZATION_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    PARA_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_REMOTE_UPDATE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_UPDATE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_HOOKS_FIELD_NUMBER: _ClassVar[int]
    decay_rate: float
    decay_rate_l1: float
    device: int
    dims: _containers.RepeatedScalarFieldContainer[int]
    format: str
    gradient_clipping_threshold: float
    initial_mean: float
    initial_smart: bool
    initial_std: float
    initial_strategy: int
    is_shared: bool
    is_sparse: bool
    is_static: bool
    learning_rate: float
    momentum: float
    name: str
    need_compact: bool
    num_batches_regularization: int
    para_id: int
    parameter_block_size: int
    size: int
    sparse_remote_update: bool
    sparse_update: bool
    update_hooks: _containers.RepeatedCompositeFieldContainer[ParameterUpdaterHookConfig]
    def __init__(self, name: _Optional[str] = ..., size: _Optional[int] = ..., learning_rate: _Optional[float] = ..., momentum: _Optional[float] = ..., initial_mean: _Optional[float] = ..., initial_std: _Optional[float] = ..., decay_rate: _Optional[float] = ..., decay_rate_l1: _Optional[float] = ..., dims: _Optional[_Iterable[int]] = ..., device: _Optional[int] = ..., initial_strategy: _Optional[int] = ..., initial_smart: bool = ..., num_batches_regularization: _Optional[int] = ..., is_sparse: bool = ..., format: _Optional[str] = ..., sparse_remote_update: bool = ..., gradient_clipping_threshold: _Optional[float] = ..., is_static: bool = ..., para_id: _Optional[int] = ..., update_hooks: _Optional[_Iterable[_Union[ParameterUpdaterHookConfig, _Mapping]]] = ..., need_compact: bool = ..., sparse_update: bool = ..., is_shared: bool = ..., parameter_block_size: _Optional[int] = ...) -> None: ...

class ParameterUpdaterHookConfig(_message.Message):
    __slots__ = ["sparsity_ratio", "type"]
    SPARSITY_RATIO_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    sparsity_ratio: float
    type: str
    def __init__(self, type: _Optional[str] = ..., sparsity_ratio: _Optional[float] = ...) -> None: ...

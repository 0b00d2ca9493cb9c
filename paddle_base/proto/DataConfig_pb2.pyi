from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataConfig(_message.Message):
    __slots__ = ["async_load_data", "buffer_capacity", "constant_slots", "context_len", "data_ratio", "feat_dim", "file_group_conf", "file_load_num", "files", "float_slot_dims", "for_test", "is_main_data", "load_data_args", "load_data_module", "load_data_object", "slot_dims", "sub_data_configs", "train_sample_num", "type", "usage_ratio"]
    ASYNC_LOAD_DATA_FIELD_NUMBER: _ClassVar[int]
    BUFFER_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LEN_FIELD_NUMBER: _ClassVar[int]
    DATA_RATIO_FIELD_NUMBER: _ClassVar[int]
    FEAT_DIM_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_GROUP_CONF_FIELD_NUMBER: _ClassVar[int]
    FILE_LOAD_NUM_FIELD_NUMBER: _ClassVar[int]
    FLOAT_SLOT_DIMS_FIELD_NUMBER: _ClassVar[int]
    FOR_TEST_FIELD_NUMBER: _ClassVar[int]
    IS_MAIN_DATA_FIELD_NUMBER: _ClassVar[int]
    LOAD_DATA_ARGS_FIELD_NUMBER: _ClassVar[int]
    LOAD_DATA_MODULE_FIELD_NUMBER: _ClassVar[int]
    LOAD_DATA_OBJECT_FIELD_NUMBER: _ClassVar[int]
    SLOT_DIMS_FIELD_NUMBER: _ClassVar[int]
    SUB_DATA_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    TRAIN_SAMPLE_NUM_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    USAGE_RATIO_FIELD_NUMBER: _ClassVar[int]
    async_load_data: bool
    buffer_capacity: int
    constant_slots: _containers.RepeatedScalarFieldContainer[float]
    context_len: int
    data_ratio: int
    feat_dim: int
    file_group_conf: FileGroupConf
    file_load_num: int
    files: str
    float_slot_dims: _containers.RepeatedScalarFieldContainer[int]
    for_test: bool
    is_main_data: bool
    load_data_args: str
    load_data_module: str
    load_data_object: str
    slot_dims: _containers.RepeatedScalarFieldContainer[int]
    sub_data_configs: _containers.RepeatedCompositeFieldContainer[DataConfig]
    train_sample_num: int
    type: str
    usage_ratio: float
    def __init__(self, type: _Optional[str] = ..., files: _Optional[str] = ..., feat_dim: _Optional[int] = ..., slot_dims: _Optional[_Iterable[int]] = ..., context_len: _Optional[int] = ..., buffer_capacity: _Optional[int] = ..., train_sample_num: _Optional[int] = ..., file_load_num: _Optional[int] = ..., async_load_data: bool = ..., for_test: bool = ..., file_group_conf: _Optional[_Union[FileGroupConf, _Mapping]] = ..., float_slot_dims: _Optional[_Iterable[int]] = ..., constant_slots: _Optional[_Iterable[float]] = ..., load_data_module: _Optional[str] = ..., load_data_object: _Optional[str] = ..., load_data_args: _Optional[str] = ..., sub_data_configs: _Optional[_Iterable[_Union[DataConfig, _Mapping]]] = ..., data_ratio: _Optional[int] = ..., is_main_data: bool = ..., usage_ratio: _Optional[float] = ...) -> None: ...

class FileGroupConf(_message.Message):
    __slots__ = ["load_file_count", "load_thread_num", "queue_capacity"]
    LOAD_FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOAD_THREAD_NUM_FIELD_NUMBER: _ClassVar[int]
    QUEUE_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    load_file_count: int
    load_thread_num: int
    queue_capacity: int
    def __init__(self, queue_capacity: _Optional[int] = ..., load_file_count: _Optional[int] = ..., load_thread_num: _Optional[int] = ...) -> None: ...

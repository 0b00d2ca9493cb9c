from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataHeader(_message.Message):
    __slots__ = ["slot_defs"]
    SLOT_DEFS_FIELD_NUMBER: _ClassVar[int]
    slot_defs: _containers.RepeatedCompositeFieldContainer[SlotDef]
    def __init__(self, slot_defs: _Optional[_Iterable[_Union[SlotDef, _Mapping]]] = ...) -> None: ...

class DataSample(_message.Message):
    __slots__ = ["id_slots", "is_beginning", "subseq_slots", "var_id_slots", "vector_slots"]
    ID_SLOTS_FIELD_NUMBER: _ClassVar[int]
    IS_BEGINNING_FIELD_NUMBER: _ClassVar[int]
    SUBSEQ_SLOTS_FIELD_NUMBER: _ClassVar[int]
    VAR_ID_SLOTS_FIELD_NUMBER: _ClassVar[int]
    VECTOR_SLOTS_FIELD_NUMBER: _ClassVar[int]
    id_slots: _containers.RepeatedScalarFieldContainer[int]
    is_beginning: bool
    subseq_slots: _containers.RepeatedCompositeFieldContainer[SubseqSlot]
    var_id_slots: _containers.RepeatedCompositeFieldContainer[VectorSlot]
    vector_slots: _containers.RepeatedCompositeFieldContainer[VectorSlot]
    def __init__(self, is_beginning: bool = ..., vector_slots: _Optional[_Iterable[_Union[VectorSlot, _Mapping]]] = ..., id_slots: _Optional[_Iterable[int]] = ..., var_id_slots: _Optional[_Iterable[_Union[VectorSlot, _Mapping]]] = ..., subseq_slots: _Optional[_Iterable[_Union[SubseqSlot, _Mapping]]] = ...) -> None: ...

class SlotDef(_message.Message):
    __slots__ = ["dim", "type"]
    class SlotType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    DIM_FIELD_NUMBER: _ClassVar[int]
    INDEX: SlotDef.SlotType
    STRING: SlotDef.SlotType
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VAR_MDIM_DENSE: SlotDef.SlotType
    VAR_MDIM_INDEX: SlotDef.SlotType
    VECTOR_DENSE: SlotDef.SlotType
    VECTOR_SPARSE_NON_VALUE: SlotDef.SlotType
    VECTOR_SPARSE_VALUE: SlotDef.SlotType
    dim: int
    type: SlotDef.SlotType
    def __init__(self, type: _Optional[_Union[SlotDef.SlotType, str]] = ..., dim: _Optional[int] = ...) -> None: ...

class SubseqSlot(_message.Message):
    __slots__ = ["lens", "slot_id"]
    LENS_FIELD_NUMBER: _ClassVar[int]
    SLOT_ID_FIELD_NUMBER: _ClassVar[int]
    lens: _containers.RepeatedScalarFieldContainer[int]
    slot_id: int
    def __init__(self, slot_id: _Optional[int] = ..., lens: _Optional[_Iterable[int]] = ...) -> None: ...

class VectorSlot(_message.Message):
    __slots__ = ["dims", "ids", "strs", "values"]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    STRS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    strs: _containers.RepeatedScalarFieldContainer[str]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ..., ids: _Optional[_Iterable[int]] = ..., dims: _Optional[_Iterable[int]] = ..., strs: _Optional[_Iterable[str]] = ...) -> None: ...

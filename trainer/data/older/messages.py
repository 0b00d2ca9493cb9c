"""Read files of ProtoData. A file has a header and then samples, each as a message that follows its length.

A file *.gz is compressed.

Each length is checked before its message is read. A damaged file therefore causes an error and cannot exhaust memory.

Source: paddle_base/proto/DataFormat.proto and gserver/dataproviders/ProtoDataProvider.cpp of v0.10.
"""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError

from paddle_base.proto.DataFormat_pb2 import DataHeader, DataSample, SlotDef, VectorSlot
from paddle_base.runtime.errors import DataError
from paddle_base.runtime.regular_files import open_regular
from trainer.data.checks import SampleError
from trainer.data.input_types import DataType, InputType, SequenceType

Readable = BinaryIO | gzip.GzipFile
MESSAGE_BYTES = 1 << 28  # maximum bytes of a message: 64 million numbers of four bytes
VARINT_BYTES = 5  # maximum bytes of an encoded length, because a length is below 2^32
_KINDS = {
    SlotDef.VECTOR_DENSE: DataType.Dense,
    SlotDef.VECTOR_SPARSE_NON_VALUE: DataType.SparseNonValue,
    SlotDef.VECTOR_SPARSE_VALUE: DataType.SparseValue,
    SlotDef.INDEX: DataType.Index,
    SlotDef.VAR_MDIM_DENSE: DataType.Dense,
    SlotDef.VAR_MDIM_INDEX: DataType.Index,
}
_ON_GRIDS = (SlotDef.VAR_MDIM_DENSE, SlotDef.VAR_MDIM_INDEX)
_OF_IDS = (SlotDef.INDEX, SlotDef.VAR_MDIM_INDEX)


def read_messages(path: str) -> Iterator[bytes]:
    """Yield the messages of a file.

    Raises: DataError: a length is cut off, too large, or larger than the rest of the file, or a file *.gz is damaged.
        OSError: the file cannot be read.
    """
    with open_regular(Path(path)) as plain, gzip.open(plain) if path.endswith(".gz") else plain as file:
        try:
            for number in itertools.count():
                length = _read_length(file, path, number)
                if length is None:
                    return
                message = file.read(length)
                if len(message) < length:
                    raise DataError(f"{path}: message {number} ends after {len(message)} of {length} bytes")
                yield message
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} is no whole gzip file: {error}") from error


def _read_length(file: Readable, path: str, number: int) -> int | None:
    length = 0
    for place in range(VARINT_BYTES):
        byte = file.read(1)
        if not byte:
            if place:
                raise DataError(f"{path}: the length of message {number} is cut off")
            return None
        length |= (byte[0] & 0x7F) << (7 * place)
        if byte[0] < 0x80:
            break
    if byte[0] >= 0x80 or length > MESSAGE_BYTES:
        raise DataError(
            f"{path}: message {number} claims to have over {MESSAGE_BYTES} bytes: this is no file of ProtoData"
        )
    return length


def read_header(path: str) -> DataHeader:
    """Return the header of a file.

    Raises: DataError: the file has no header, or its slots are not usable.
    """
    header = DataHeader()
    try:
        header.ParseFromString(next(read_messages(path), b""))
    except DecodeError as error:
        raise DataError(f"{path} does not begin with a header of ProtoData: {error}") from error
    kinds = [slot.type for slot in header.slot_defs]
    if not kinds or any(kind not in _KINDS for kind in kinds):
        names = ", ".join(SlotDef.SlotType.Name(kind) for kind in kinds) or "none"
        raise DataError(f"{path} has the slots {names}; it must have slots, and all of them must hold numbers or ids")
    is_id = [kind in _OF_IDS for kind in kinds]
    if is_id != sorted(is_id):
        raise DataError(f"{path} has a slot of ids before a slot of vectors; the slots of vectors must come first")
    return header


def require_header(path: str, header: DataHeader) -> None:
    """Check that a file has the slots of the first file.

    Raises: DataError: the two lists of slots differ.
    """
    if read_header(path) != header:
        raise DataError(f"{path} does not have the slots of the first file of the list")


def read_samples(path: str) -> Iterator[DataSample]:
    """Yield the samples after the header.

    Raises: DataError: see `read_messages`; also, a message is not a sample.
    """
    for number, message in enumerate(read_messages(path)):
        if not number:
            continue
        sample = DataSample()
        try:
            sample.ParseFromString(message)
        except DecodeError as error:
            raise DataError(f"{path}: message {number} is no sample: {error}") from error
        yield sample


# ----- Samples in the form that a provider yields -----


def slots_of(path: str, *, in_sequences: bool, is_each_sequence: bool) -> list[InputType]:
    """Return the type of each slot of a file. The first sample of the file determines the dimensions of grids.

    Args: in_sequences: whether consecutive samples form sequences (see `has_sequences`). is_each_sequence: whether each
        sample is a sequence (type proto_sequence). A sparse vector then becomes a sequence of ids, and every other slot
        becomes a sequence of one item.
    Raises: DataError: see `read_header`; also, a slot on a grid is empty in the first sample.
    """
    first = next(read_samples(path), DataSample())
    grids = {SlotDef.VAR_MDIM_DENSE: iter(first.vector_slots), SlotDef.VAR_MDIM_INDEX: iter(first.var_id_slots)}
    found = []
    for slot in read_header(path).slot_defs:
        level = int(in_sequences and not is_each_sequence)
        if slot.type in grids:
            dimensions = len(next(grids[slot.type], VectorSlot()).dims)
            if not dimensions:
                raise DataError(f"{path}: the first sample does not give the extents of a grid")
            found.append(InputType(slot.dim, SequenceType.SEQUENCE, _KINDS[slot.type], dimensions))
            continue
        if slot.type not in _OF_IDS:
            next(grids[SlotDef.VAR_MDIM_DENSE], None)
        if is_each_sequence and slot.type == SlotDef.VECTOR_SPARSE_NON_VALUE:
            found.append(InputType(slot.dim, SequenceType.SEQUENCE, DataType.Index))
        else:
            found.append(InputType(slot.dim, level, _KINDS[slot.type]))
    return found


def has_sequences(path: str) -> bool:
    """Return whether some samples of a file do not begin a sequence. Consecutive samples then form sequences."""
    return any(not sample.is_beginning for sample in read_samples(path))


def make_sample(sample: DataSample, header: DataHeader) -> list[Any]:
    """Return a sample's slots.

    Raises: SampleError: the sample does not have the slots of the header.
    """
    ids, vectors, grids = iter(sample.id_slots), iter(sample.vector_slots), iter(sample.var_id_slots)
    try:
        slots = [
            next(ids)
            if slot.type == SlotDef.INDEX
            else _make_slot(next(grids if slot.type == SlotDef.VAR_MDIM_INDEX else vectors), slot)
            for slot in header.slot_defs
        ]
    except StopIteration:
        raise SampleError(f"it has fewer slots than the header, which has {len(header.slot_defs)}") from None
    if any(next(rest, None) is not None for rest in (ids, vectors, grids)):
        raise SampleError(f"it has more slots than the header, which has {len(header.slot_defs)}")
    return slots


def _make_slot(vector: VectorSlot, slot: SlotDef) -> Any:
    if slot.type == SlotDef.VECTOR_SPARSE_VALUE:
        if len(vector.ids) != len(vector.values):
            raise SampleError(f"a sparse vector has {len(vector.ids)} ids and {len(vector.values)} values")
        return list(zip(vector.ids, vector.values, strict=True))
    if slot.type == SlotDef.VECTOR_DENSE:
        return list(vector.values)
    if slot.type not in _ON_GRIDS:
        return list(vector.ids)
    items: Sequence[Any] = list(vector.ids)
    if slot.type == SlotDef.VAR_MDIM_DENSE:
        items = [vector.values[first : first + slot.dim] for first in range(0, len(vector.values), slot.dim)]
    return list(vector.dims), items


def join_sequences(samples: Iterator[list[Any]], beginnings: Iterator[bool]) -> Iterator[list[list[Any]]]:
    """Join consecutive samples into sequences, slot by slot. A true element of `beginnings` begins a sequence."""
    gathered: list[list[Any]] = []
    for sample, begins in zip(samples, beginnings, strict=False):
        if begins and gathered:
            yield gathered
            gathered = []
        if not gathered:
            gathered = [[] for _ in sample]
        for slot, item in zip(gathered, sample, strict=True):
            slot.append(item)
    if gathered:
        yield gathered

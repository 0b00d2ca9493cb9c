"""Turn batches of samples, as readers yield them, into the inputs of a network.

Source: spec/v2.md section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime.errors import ConfigError, DataError
from trainer.data.checks import SampleError, shorten
from trainer.data.columns import ColumnSet
from trainer.data.input_types import DataType, InputType, SequenceType, Slot, to_input_type
from trainer.network.pictures import Shapes
from trainer.v2.errors import DATA_LAYER, WrongTypeError
from trainer.v2.slots import Frame, Slots

Feeding = Mapping[str, int] | Sequence[str] | None
Encoded = list[tuple[npt.NDArray[Any], ...]]  # for each data layer, the arrays of its column


class DataFeeder:
    """Convert batches.

    Args: data_types: the name and the type of each data layer. feeding: in which column of a sample each data layer
        finds its values: {name: column} or a list of names; None if the columns have the order of `data_types`.
    Raises: TypeError: an argument has another form. DataError: `feeding` lacks a data layer.
    """

    def __init__(self, data_types: Sequence[tuple[str, InputType]], feeding: Feeding = None) -> None:
        kinds = {name: to_input_type(name, kind, DATA_LAYER) for name, kind in data_types}
        self._kinds = kinds
        self._encoder = _make_encoder(kinds)
        names = list(kinds)
        if feeding is None:
            feeding = names
        elif isinstance(feeding, str | bytes) or not isinstance(feeding, Mapping | Sequence):
            raise WrongTypeError("Feeding should be dict or sequence or None.")
        if not isinstance(feeding, Mapping):
            feeding = {name: column for column, name in enumerate(feeding)}
        missing = [name for name in names if name not in feeding]
        if missing:
            given = ", ".join(map(str, feeding)) or "none"
            raise DataError(f"feeding has no column for the data layer {missing[0]!r}; it has {given}")
        self._columns = [feeding[name] for name in names]
        for name, column in zip(names, self._columns, strict=True):
            if not isinstance(column, int) or column < 0:
                raise WrongTypeError(
                    f"feeding[{name!r}] is {shorten(column)}; it must be the number of a column from 0"
                )

    def __call__(self, batch: Sequence[Any], where: str = "") -> Slots:
        """Return {data layer: its values} for a list of samples, which are lists or tuples of columns.

        Args: where: which batch it is, for messages.
        Raises: DataError: a sample lacks a column, or a value does not have the type; the text names the sample.
        """
        try:
            return self.convert(batch)
        except DataError as error:
            raise DataError(f"{where}, {error}" if where else str(error)) from None  # one line says all

    def convert(self, batch: Sequence[Any]) -> Slots:
        """Do what a call does."""
        return self.join([self.encode(batch)])

    def encode(self, batch: Sequence[Any]) -> Encoded:
        """Return the samples as arrays, for `join`. Several threads may do so at the same time.

        Raises: DataError: see a call.
        """
        batch = batch if isinstance(batch, list | tuple) else list(batch)  # a generator can be read only once
        return _encode(self._encoder, self._pick(batch))

    def join(self, parts: Sequence[Encoded]) -> Slots:
        """Return {data layer: its values} for the samples of all parts, in order."""
        if len(parts) == 1:
            return Slots(self._encoder.convert(parts[0]))
        columns = zip(*parts, strict=True)
        whole = [tuple(map(np.concatenate, zip(*column, strict=True))) for column in columns]
        return Slots(self._encoder.convert(whole))

    def _pick(self, batch: Sequence[Any]) -> list[list[Any]]:
        """Return the values of each data layer.

        Raises: DataError: a sample lacks a column.
        """
        try:
            return [[sample[column] for sample in batch] for column in self._columns]
        except (IndexError, KeyError, TypeError):
            self._name_wrong_sample(batch)
            raise

    def _name_wrong_sample(self, batch: Sequence[Any]) -> None:
        """Raise DataError for the first sample that lacks a column, if there is one."""
        for number, sample in enumerate(batch):
            try:
                for column in self._columns:
                    sample[column]
            except (IndexError, KeyError, TypeError):
                names = ", ".join(self._encoder.names)
                is_column = not isinstance(sample, Sequence) or isinstance(sample, str | bytes)
                batched = "; does the reader lack paddle.batch(reader, size)?" if is_column else ""
                raise DataError(
                    f"sample {number} is {shorten(sample)}; it must be a list or tuple of {max(self._columns) + 1} "
                    f"columns, of which the data layers {names} take {self._columns}{batched}"
                ) from None


class FrameFeeder(DataFeeder):
    """A feeder for pictures of any size, as in v0.11: the arrays of a batch tell their height and width.

    Args: take: is told before each batch the shapes of its pictures that have another size than their data layer, and
        raises ConfigError if they cannot be used. By default they can, as in a feeder that a program makes itself.
    """

    def __init__(
        self,
        data_types: Sequence[tuple[str, InputType]],
        feeding: Feeding = None,
        take: Callable[[Shapes], None] = lambda _: None,
    ) -> None:
        super().__init__(data_types, feeding)
        self._take = take

    def convert(self, batch: Sequence[Any]) -> Slots:
        """Return {data layer: its values} for a list of samples.

        Arrays (height, width) and (channels, height, width) become rows of all their numbers.

        Raises: DataError: as for a call, or the pictures of a batch have different shapes.
        """
        columns = self._pick(batch if isinstance(batch, list | tuple) else list(batch))
        shapes = {name: _picture_shape(kind, values) for (name, kind), values in self._pairs(columns)}
        frames = {number: Frame(*shape[-2:]) for number, shape in enumerate(shapes.values()) if shape}
        others = {name: shape for name, shape in shapes.items() if shape and math.prod(shape) != self._kinds[name].dim}
        try:
            self._take(others)
        except ConfigError as error:
            self._take({})
            try:
                _encode(self._encoder, columns)
            except DataError as wrong:
                raise DataError(f"{wrong}; as a picture it does not fit: {error}") from None
            raise
        if not others:
            return Slots(self._encoder.convert(_encode(self._encoder, columns)), frames)
        for (name, _), values in self._pairs(columns):
            if name in others:
                _compare_shapes(values, others[name])
        kinds = {
            name: replace(kind, dim=math.prod(others.get(name, (kind.dim,)))) for name, kind in self._kinds.items()
        }
        encoder = _make_encoder(kinds)
        return Slots(encoder.convert(_encode(encoder, columns)), frames)

    def _pairs(self, columns: Sequence[Any]) -> Iterator[tuple[tuple[str, InputType], Any]]:
        return zip(self._kinds.items(), columns, strict=True)


def _picture_shape(kind: InputType, values: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of the first value if it is an array of 2 or 3 dimensions, otherwise ()."""
    if kind.type != DataType.Dense or kind.seq_type != SequenceType.NO_SEQUENCE or not values:
        return ()
    first = values[0]
    if not isinstance(first, np.ndarray) and not (isinstance(first, list | tuple) and np.ndim(first[:1]) > 1):
        return ()  # most rows are flat, and np.shape would convert them
    try:
        shape: tuple[int, ...] = np.shape(first)
    except ValueError:  # lists of different lengths
        return ()
    return shape if len(shape) in (2, 3) else ()


def _compare_shapes(values: Sequence[Any], shape: tuple[int, ...]) -> None:
    """Raise DataError for the first picture of a batch that has another shape than the first one."""
    for row, value in enumerate(values):
        if np.shape(value) != shape:
            raise DataError(
                f"sample {row} has the shape {np.shape(value)} and sample 0 {shape}: The data shape must be same in "
                "one mini-batch."
            )


def _make_encoder(kinds: Mapping[str, InputType]) -> ColumnSet:
    return ColumnSet([Slot(name, kind, size=kind.dim) for name, kind in kinds.items()], DATA_LAYER)


def _encode(encoder: ColumnSet, slots: Sequence[Sequence[Any]]) -> Encoded:
    """Return the values of each data layer as arrays.

    Raises: DataError: a value does not have the type; the text names the sample.
    """
    try:
        return encoder.encode_slots(slots)
    except SampleError as error:
        where = "" if error.row is None else f"sample {error.row}: "
        raise DataError(f"{where}{error}") from None

"""A provider of the samples in tables, which a config names by `define_parquet_data_sources`.

Its samples have the order of a provider that yields each row of the same files, so the parameters have the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from paddle_base.runtime.errors import ConfigError
from trainer.arrays.rng import Stream
from trainer.data.chunks import Chunk
from trainer.data.columns import ColumnSet
from trainer.data.input_types import DataType, InputType, SequenceType
from trainer.data.provider2 import DataProvider, provider
from trainer.data.tables.blocks import BlockReader
from trainer.data.tables.mixing import mix

KIND = "parquet"  # the type of such data in a config
OPTIONS = ("should_shuffle", "pool_size", "min_pool_size", "cache")
_TYPES = range(DataType.Dense, DataType.Index + 1)
_SEQUENCES = range(SequenceType.NO_SEQUENCE, SequenceType.SUB_SEQUENCE + 1)


class TableProvider(DataProvider):
    """A provider whose samples come from columns of tables.

    Attributes: names: the names of the columns of each data layer.
    """

    names: ClassVar[Mapping[str, Sequence[str]]]

    def open_chunks(
        self, files: Sequence[str], columns: ColumnSet, mixing: Stream | None, first_until: float | None = None
    ) -> Iterator[Chunk]:
        """Return the samples of these files (see DataProvider)."""
        reader = BlockReader(self.slots_of_data_layers, self.names, columns)
        if first_until is not None:
            return _read_first(reader, files, first_until)
        if mixing is None:
            return (chunk for file in files for chunk in reader.read(file))
        return mix(files, reader.read, [_count_levels(slot) for slot in self.slots], mixing)

    def __str__(self) -> str:
        """Return the provider's name in the log and in messages."""
        return "of Parquet"


def make_provider(arguments: Mapping[str, Any]) -> type[DataProvider]:
    """Return a provider that reads the files of the list.

    Args: arguments: `slots`, a list of (name of the data layer, dim, seq_type, type, names of columns), and values for
    OPTIONS. They may come from a model file.
    Raises: ConfigError: the arguments have another form.
    """
    try:
        slots = {name: _check_slot(*slot) for name, *slot in arguments["slots"]}
        options = {name: arguments[name] for name in OPTIONS if name in arguments}
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigError(
            "the parquet data have no slots of the form that define_parquet_data_sources writes; define them by it"
        ) from error
    made = provider(input_types={name: kind for name, (kind, _) in slots.items()}, **options)(_yield_nothing)
    names = {name: columns for name, (_, columns) in slots.items()}
    return type("ParquetData", (TableProvider,), {"options": made.options, "function": made.function, "names": names})


def _check_slot(dim: Any, seq_type: Any, kind: Any, columns: Any) -> tuple[InputType, list[str]]:
    if seq_type not in _SEQUENCES or kind not in _TYPES or not columns or any(type(one) is not str for one in columns):
        raise ValueError
    return InputType(dim, int(seq_type), int(kind)), list(columns)


def _yield_nothing(_settings: Any, _file: str) -> Iterator[Any]:
    return iter(())


def _count_levels(kind: InputType) -> int:
    return kind.seq_type + (kind.type in (DataType.SparseNonValue, DataType.SparseValue))


def _read_first(reader: BlockReader, files: Sequence[str], until: float) -> Iterator[Chunk]:
    for file in files:
        block = next(reader.read(file, 1), None)
        if block is not None:
            yield block
            if time.monotonic() > until:
                return

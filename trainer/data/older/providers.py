"""Make providers for SimpleData and ProtoData. Their samples come from files, and need no generator of the user.

v0.10 shuffled the samples of these files with a separate random generator. This program picks them as it picks the
samples of a PyDataProvider2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.runtime.errors import ConfigError, MissingInputError
from trainer.data.older import messages, text
from trainer.data.provider2 import CacheType, DataProvider, provider

SIMPLE = "simple"
OF_MESSAGES = {  # type of ProtoData -> whether each sample is a sequence
    "proto": False,
    "proto_group": False,
    "proto_sequence": True,
    "proto_sequence_group": True,
}


def is_of_files(kind: str) -> bool:
    """Return whether data of the type `kind` are files of a fixed format."""
    return kind == SIMPLE or kind in OF_MESSAGES


def make_provider(config: DataConfig, entries: Sequence[str]) -> type[DataProvider]:
    """Return a provider that reads the files of the list.

    Raises: ConfigError: the config lacks a value that the type needs, or the list names no file. MissingInputError: the
        first file, whose header defines the slots, does not exist. DataError: the first file does not have the format.
    """
    if not entries:
        raise ConfigError(
            f"the list {config.files} of {config.type} data names no file; write the name of a file into each line"
        )
    if config.type == SIMPLE:
        # a sample has feat_dim values for each of its frames, which are one frame and context_len frames on each side
        dim = config.feat_dim * (2 * config.context_len + 1)

        def read_text(_settings: Any, path: str) -> Iterator[Any]:
            yield from text.read_lines(path, dim)

        return _name(
            provider(input_types=text.slots_of(dim), cache=CacheType.CACHE_PASS_IN_MEM)(read_text), "SimpleData"
        )
    return _name(_make_provider_of_messages(entries, is_each_sequence=OF_MESSAGES[config.type]), "ProtoData")


def _make_provider_of_messages(entries: Sequence[str], *, is_each_sequence: bool) -> type[DataProvider]:
    if not os.path.isfile(entries[0]):  # noqa: PTH113 - Path's fails for a name that is too long
        raise MissingInputError(
            f"the file {entries[0]}, the first one of the list of ProtoData, is not in {Path.cwd()}; correct the list"
        )
    header = messages.read_header(entries[0])
    joins = not is_each_sequence and any(map(messages.has_sequences, entries))
    slots = messages.slots_of(entries[0], in_sequences=joins, is_each_sequence=is_each_sequence)
    if joins and any(slot.grid for slot in slots):
        raise ConfigError("ProtoData: a slot with a grid is itself a sequence, so every sample must begin a sequence")

    def read(_settings: Any, path: str) -> Iterator[Any]:
        messages.require_header(path, header)
        rows: Iterator[Any] = (messages.make_sample(one, header) for one in messages.read_samples(path))
        if joins:
            rows = messages.join_sequences(rows, (one.is_beginning for one in messages.read_samples(path)))
        # if there is a single slot, a provider yields the value of the slot instead of a list
        yield from (row[0] for row in rows) if len(slots) == 1 else rows

    options: dict[str, Any] = {"input_types": slots, "cache": CacheType.CACHE_PASS_IN_MEM}
    if joins:  # as in v0.10, the batch size counts frames, and a sequence longer than a batch forms a batch by itself
        options |= {"calc_batch_size": lambda sample: len(sample[0]), "can_over_batch_size": False}
    made = provider(**options)(read)
    made.takes_longer_alone = joins
    return made


def _name(made: type[DataProvider], name: str) -> type[DataProvider]:
    """Set the name of the class; messages call the provider by this name."""
    made.__name__ = name
    return made

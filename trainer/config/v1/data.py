"""The data sources of the oldest configurations: TrainData(PyData(...)), TestData(SimpleData(...)).

Source: legacy config_parser.py; spec/config.md section 16.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paddle_base.proto import DataConfig_pb2
from trainer.config.building.argument_errors import ArgumentError, to_float, to_int, to_list, to_text, wrong
from trainer.config.building.declare import helper
from trainer.config.building.log import logger
from trainer.config.building.state import current


def data_config(
    kind: str,
    files: Any,
    async_load_data: bool = False,
    constant_slots: Iterable[float] | None = None,
    data_ratio: int = 1,
    is_main_data: bool = True,
    usage_ratio: float | None = None,
    **unknown: Any,
) -> DataConfig_pb2.DataConfig:
    """Return the message of a data source with the fields common to all types.

    Raises: ArgumentError: an argument is unknown or has a wrong value.
    """
    if unknown:
        raise ArgumentError(
            f"there is no argument {min(unknown)!r}; those of all data are files, async_load_data, constant_slots, "
            "data_ratio, is_main_data and usage_ratio"
        )
    ratio = current().usage_ratio if usage_ratio is None else to_float("usage_ratio", usage_ratio)
    if not 0 <= ratio <= 1:
        raise wrong("usage_ratio", usage_ratio, "it must be in [0, 1]")
    message = DataConfig_pb2.DataConfig(
        type=kind,
        async_load_data=bool(async_load_data),
        data_ratio=to_int("data_ratio", data_ratio),
        is_main_data=bool(is_main_data),
        usage_ratio=ratio,
    )
    if files is not None:
        message.files = to_text("files", files)
    message.constant_slots.extend(to_float("constant_slots", slot) for slot in to_list(constant_slots or ()))
    return message


def define(message: DataConfig_pb2.DataConfig, *, for_test: bool) -> None:
    """Make a data source the source of the training data or of the test data.

    Raises: ArgumentError: the training data or the test data already has a source.
    """
    config = current().config
    field = "test_data_config" if for_test else "data_config"
    if config.HasField(field):
        raise ArgumentError(f"the {'test' if for_test else 'training'} data is defined twice")
    place: DataConfig_pb2.DataConfig = getattr(config, field)
    place.CopyFrom(message)
    place.for_test = for_test


@helper("v1")
def SimpleData(
    files: str | None = None,
    feat_dim: int | None = None,
    context_len: int | None = None,
    buffer_capacity: int | None = None,
    **more: Any,
) -> DataConfig_pb2.DataConfig:
    """Return a data source of text files with a label and feat_dim numbers in each line."""
    message = data_config("simple", files, **more)
    if feat_dim is not None:
        message.feat_dim = to_int("feat_dim", feat_dim)
    if context_len is not None:
        message.context_len = to_int("context_len", context_len)
    if buffer_capacity:
        message.buffer_capacity = to_int("buffer_capacity", buffer_capacity)
    return message


@helper("v1")
def PyData(
    files: str | None = None,
    type: str | None = None,
    file_group_queue_capacity: int | None = None,
    load_data_module: str | None = None,
    load_data_object: str | None = None,
    load_data_args: str = "",
    load_file_count: int | None = None,
    constant_slots: Any = None,
    load_thread_num: int | None = None,
    **more: Any,
) -> DataConfig_pb2.DataConfig:
    """Return a data source whose samples come from an object of a Python module."""
    message = data_config("py" if type is None else to_text("type", type), files, constant_slots=constant_slots, **more)
    message.load_data_module = to_text("load_data_module", load_data_module)
    message.load_data_object = to_text("load_data_object", load_data_object)
    message.load_data_args = to_text("load_data_args", load_data_args)
    _set_group(message, file_group_queue_capacity, load_file_count, load_thread_num)
    return message


@helper("v1")
def ProtoData(
    files: str | None = None,
    type: str | None = None,
    file_group_queue_capacity: int | None = None,
    load_file_count: int | None = None,
    constant_slots: Any = None,
    load_thread_num: int | None = None,
    **more: Any,
) -> DataConfig_pb2.DataConfig:
    """Return a data source whose samples come from files of protobuf messages."""
    kind = "proto" if type is None else to_text("type", type)
    message = data_config(kind, files, constant_slots=constant_slots, **more)
    _set_group(message, file_group_queue_capacity, load_file_count, load_thread_num)
    return message


def _set_group(message: DataConfig_pb2.DataConfig, capacity: Any, file_count: Any, thread_num: Any) -> None:
    group = {"queue_capacity": capacity, "load_file_count": file_count, "load_thread_num": thread_num}
    for key, value in group.items():
        if value is not None:
            setattr(message.file_group_conf, key, to_int(key, value))


@helper("v1")
def Data(
    type: str,
    files: str | None = None,
    feat_dim: int | None = None,
    slot_dims: Any = None,
    context_len: int | None = None,
    buffer_capacity: int | None = None,
    **more: Any,
) -> DataConfig_pb2.DataConfig:
    """Return a data source of any type."""
    message = data_config(to_text("type", type), files, **more)
    numbers = {"feat_dim": feat_dim, "context_len": context_len, "buffer_capacity": buffer_capacity}
    for key, value in numbers.items():
        if value is not None:
            setattr(message, key, to_int(key, value))
    sizes = [] if slot_dims is None else to_list(slot_dims)
    message.slot_dims.extend(to_int("slot_dims", size) for size in sizes)
    return message


@helper("v1")
def MultiData(sub_data: Any = ()) -> DataConfig_pb2.DataConfig:
    """Return a data source that mixes several data sources in proportion to their data_ratio."""
    parts = [_message("sub_data", part) for part in to_list(sub_data)]
    return DataConfig_pb2.DataConfig(type="multi", sub_data_configs=parts)


def _message(argument: str, value: Any) -> DataConfig_pb2.DataConfig:
    if not isinstance(value, DataConfig_pb2.DataConfig):
        raise wrong(argument, value, "it must be the result of SimpleData(), PyData(), MultiData() or Data()")
    return value


@helper("v1")
def TrainData(data_config: Any, async_load_data: bool | None = None) -> None:
    """Define the training data."""
    _define("data_config", data_config, async_load_data, for_test=False)


@helper("v1")
def TestData(data_config: Any, async_load_data: bool | None = None) -> None:
    """Define the test data."""
    _define("data_config", data_config, async_load_data, for_test=True)


def _define(argument: str, value: Any, async_load_data: bool | None, *, for_test: bool) -> None:
    define(_message(argument, value), for_test=for_test)
    if async_load_data is not None:
        logger.warning("async_load_data is an argument of SimpleData(), PyData(), MultiData() or Data()")
        config = current().config
        (config.test_data_config if for_test else config.data_config).async_load_data = bool(async_load_data)

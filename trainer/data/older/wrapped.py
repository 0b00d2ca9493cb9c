"""Make the provider of data of type `py` from a class of PyDataProviderWrapper.

The samples are those of PyDataProvider2: only their order, the declaration of their slots and the making of the user's
object differ.
"""

from __future__ import annotations

import cProfile
import functools
import itertools
import numbers
import pickle
import pickletools
import pstats
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from paddle_base.runtime import glog
from trainer.data.checks import SampleError, shorten, user_code
from trainer.data.input_types import MOST_IDS, DataType, InputType
from trainer.data.older.wrapper import GeneralPyDataProvider, IndexSlot, SlotType, StringSlot
from trainer.data.provider2 import DataProvider, deserialize_args, provider

KIND = "py"
_TYPES = {0: DataType.Dense, 1: DataType.SparseNonValue, 2: DataType.SparseValue, 3: DataType.Index}
Drawn = tuple[str, int, Any]  # as in trainer.data.reader


def pack_for_class(text: str, *, is_own: bool) -> str | bytes:
    """Return `load_data_args` as the user's code expects it: bytes if it is a pickle, which Python 2 had in a text.

    Args: is_own: whether a config script wrote `text` in this process. If not, it must be a pickle of plain values.
    Raises: PlainPickleError: the text comes from a model file and is not such a pickle.
    """
    if not is_own:
        # written again, because the user's code may use a reader that runs code which a pickle names
        return pickle.dumps(deserialize_args(text), protocol=0)
    try:
        data = text.encode("latin-1")
        end = [place for opcode, _, place in pickletools.genops(data) if opcode.name == "STOP"]
    except Exception:  # a text of any content may raise any error of pickletools
        return text
    return data if end == [len(data) - 1] else text


def adapt(found: type[GeneralPyDataProvider], packed: str | bytes | None) -> type[DataProvider]:
    """Return a provider with the samples of an instance of `found`.

    Args: packed: the value of the keyword argument `load_data_args`; None if the config has no such value.
    """

    def begin(settings: Any, file_list: Sequence[str], is_train: bool, input_order: Sequence[str], **_: Any) -> None:
        instance = found(*file_list, **({} if packed is None else {"load_data_args": packed}))
        slots = list_slots(instance)
        if len(slots) != len(input_order):
            raise ValueError(
                f"there are {len(slots)} slots ({', '.join(map(str, slots))}); the network has {len(input_order)} "
                f"inputs ({', '.join(input_order)})"
            )
        settings.instance, settings.declared = instance, slots
        settings.input_types = [_type_of(slot, is_sequence=bool(instance.use_seq_flag)) for slot in slots]
        settings.may_nest = bool(instance.use_seq_flag)
        settings.unread = frozenset(
            name for name, slot in zip(input_order, slots, strict=True) if isinstance(slot, StringSlot)
        )
        settings.can_over_batch_size = bool(instance.can_over_batch_size)
        settings.calc_batch_size = _find_count(instance)
        settings.should_shuffle = False  # the samples of a pass already have their order
        settings.order_samples = functools.partial(_order_samples, settings, shuffles=is_train)

    def read(settings: Any, entry: str) -> Any:
        samples = settings.instance.generateData(entry)
        if samples is None or isinstance(samples, Mapping):
            return samples  # GeneratorWrapper reports it
        return _list_values(samples, settings.declared, is_sequence=settings.may_nest)

    made = provider(init_hook=begin)(read)
    made.__name__, made.__module__ = found.__name__, found.__module__
    return made


def list_slots(instance: GeneralPyDataProvider) -> list[SlotType]:
    """Return the types of the slots.

    Raises: ValueError, TypeError: there are no slots, or one of them is not a type of PyDataProviderWrapper.
    """
    given = instance.getSlots()
    slots = [] if given is None else list(given)
    if not slots:
        raise ValueError("there are no slots: give slots=[...] to @provider, or set obj.slots in the init_hook")
    for place, slot in enumerate(slots):
        if not isinstance(slot, SlotType) or getattr(slot, "type", None) not in (*_TYPES, StringSlot.type):
            raise TypeError(
                f"slot {place} (counted from 0) is {shorten(slot)}; it must be DenseSlot(n), SparseNonValueSlot(n), "
                "SparseValueSlot(n), IndexSlot(n) or StringSlot(n)"
            )
        is_whole = isinstance(slot.dim, numbers.Integral) and not isinstance(slot.dim, bool)
        if not is_whole or not 0 < slot.dim < MOST_IDS:
            raise ValueError(f"slot {place} (counted from 0) is {slot}; its size must be a whole number above 0")
    return slots


def _type_of(slot: SlotType, *, is_sequence: bool) -> InputType:
    # no layer reads a text, so its column has "no id" for each text
    kind, dim = (DataType.Index, 1) if isinstance(slot, StringSlot) else (_TYPES[slot.type], int(slot.dim))
    return InputType(dim, int(is_sequence), kind)


def _find_count(instance: Any) -> Callable[[Any], int] | None:
    """Return the function that counts the units of a sample; None if every sample counts one unit."""
    is_default = type(instance).calculateDataBatchSize is GeneralPyDataProvider.calculateDataBatchSize
    if is_default or getattr(instance, "calc_batch_size", True) is None:
        return None
    count: Callable[[Any], int] = instance.calculateDataBatchSize
    return count


def _list_values(samples: Iterable[Any], slots: Sequence[SlotType], *, is_sequence: bool) -> Iterator[Any]:
    """Yield samples in the form of PyDataProvider2, in which the only slot of a sample has no list around it."""
    texts = [place for place, slot in enumerate(slots) if isinstance(slot, StringSlot)]
    ids = [place for place, slot in enumerate(slots) if isinstance(slot, IndexSlot)] if is_sequence else []
    for number, given in enumerate(samples, 1):
        sample = given
        if isinstance(given, Mapping):
            raise SampleError(
                f"sample {number} (counted from 1) is a dict; a provider of PyDataProviderWrapper yields a list of "
                f"{len(slots)} slots in the order of the inputs of the network"
            )
        if len(slots) == 1 and isinstance(given, numbers.Integral | str | bytes):
            sample = [given]
        if (ids or texts) and hasattr(sample, "__len__") and len(sample) == len(slots):
            sample = list(sample)
            for place in ids:
                if isinstance(sample[place], numbers.Integral):
                    sample[place] = [sample[place]]
            for place in texts:
                sample[place] = _forget(sample[place], f"sample {number} (counted from 1): slot {place}", is_sequence)
        if len(slots) > 1:
            yield sample
        elif hasattr(sample, "__len__") and len(sample) == 1:
            yield sample[0]
        else:
            raise SampleError(f"sample {number} (counted from 1): {shorten(sample)} is no list of 1 slot")


def _forget(value: Any, place: str, is_sequence: bool) -> Any:
    """Return a text, or a list of texts, with "no id" in place of each text."""
    if isinstance(value, str | bytes):
        return [-1] if is_sequence else -1
    if is_sequence and isinstance(value, list | tuple):
        return [_forget(one, place, isinstance(one, list | tuple)) for one in value]
    raise SampleError(f"{place} is {shorten(value)}; a StringSlot takes {'texts' if is_sequence else 'a text'}")


# ----- The order of samples -----


def _order_samples(settings: Any, entries: Sequence[Iterator[Drawn]], *, shuffles: bool) -> Iterator[Drawn]:
    """Yield the samples of a pass: those of one pool after the other.

    Args: entries: the samples of each entry of the list. shuffles: whether pools may be shuffled.
    """
    instance: Any = settings.instance
    with user_code(f"reset of the data provider {settings}"):
        instance.reset()
    is_own = type(instance).shuffle is not GeneralPyDataProvider.shuffle
    if shuffles and (instance.should_shuffle or is_own):
        samples = _shuffle_pools(settings, deque(entries))
    else:
        samples = itertools.chain.from_iterable(entries)
    return _profile(instance, samples) if instance.profile_filename else samples


def _shuffle_pools(settings: Any, entries: deque[Iterator[Drawn]]) -> Iterator[Drawn]:
    instance = settings.instance
    limit = instance.max_pool_size if instance.file_count == 0 else 0
    while entries:
        pool = list(_fill(entries, instance.file_count, limit))
        limit = limit or len(pool)  # as in v0.10, a later pool has as many samples as the first pool
        places = {id(sample): (entry, number) for entry, number, sample in pool}
        instance.data_pool = [sample for _, _, sample in pool]
        with user_code(f"shuffle of the data provider {settings}"):
            instance.shuffle()
        shuffled, instance.data_pool = instance.data_pool, []
        for sample in shuffled:
            yield (*places.get(id(sample), ("the pool", 0)), sample)
        del pool, places, shuffled  # before the next pool is read


def _fill(entries: deque[Iterator[Drawn]], files: int, limit: int) -> Iterator[Drawn]:
    """Yield the samples of the next pool: `limit` samples, or those of the next `files` entries if `limit` is 0."""
    if not limit:
        for _ in range(min(files, len(entries))):
            yield from entries.popleft()
        return
    count = 0
    while entries and count < limit:
        drawn = next(entries[0], None)
        if drawn is None:
            entries.popleft()
        else:
            count += 1
            yield drawn


def _profile(instance: Any, samples: Iterator[Drawn]) -> Iterator[Drawn]:
    """Yield samples, and write a profile of the reading thread at the end of the pass."""
    number = getattr(instance, "profile_count", 0)
    instance.profile_count = number + 1
    profiler = cProfile.Profile()
    try:
        profiler.enable()
    except ValueError as error:  # another profiler is active
        glog.warning(f"profile_filename={instance.profile_filename!r} has no effect: {error}")
        yield from samples
        return
    try:
        yield from samples
    finally:
        profiler.disable()
    name = f"{instance.profile_filename}_{number}"
    try:
        with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123 - the user's name may be any text
            pstats.Stats(profiler, stream=file).sort_stats("cumulative").print_stats()
    except OSError as error:
        glog.warning(f"the profile of the provider cannot be written to {name}: {error.strerror}")
    else:
        glog.info(f"saving profile to file {name}")

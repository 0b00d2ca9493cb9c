"""PyDataProviderWrapper: the names that provider modules of data of type `py` import.

The `@provider` decorator turns a generator function into a class. The trainer makes an instance of the class with the
entries of the list as positional arguments, and with the keyword argument `load_data_args` if the config has one.

Source: python/paddle/trainer/PyDataProviderWrapper.py and gserver/dataproviders/PyDataProvider.cpp of v0.10.
"""

from __future__ import annotations

import functools
import logging
import math
import numbers
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainer.data.provider2 import unpickle_args

__all__ = [
    "DenseSlot",
    "GeneralPyDataProvider",
    "IndexSlot",
    "PoolSize",
    "SlotType",
    "SparseNonValueSlot",
    "SparseValueSlot",
    "StringSlot",
    "init_hook_wrapper",
    "provider",
]


class SlotType:
    """The type of a slot. Args: dim: the number of its elements, or of its ids.

    With `use_seq` a sample gives a list, and each item of this list is a value as the sub-class says; or a sample gives
    a list of such lists, which are sub-sequences.
    """

    type: int  # the number of the type in v0.10's DataFormat.proto

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def __repr__(self) -> str:
        """Return the type as the provider writes it."""
        return f"{type(self).__name__}({self.dim})"


class DenseSlot(SlotType):
    """A list or numpy array of `dim` numbers."""

    type = 0


class SparseNonValueSlot(SlotType):
    """A vector of zeros and ones, given as the list of the positions of its ones."""

    type = 1


class SparseValueSlot(SlotType):
    """A sparse vector, given as a list of pairs (id, value)."""

    type = 2


class IndexSlot(SlotType):
    """An id in [0, dim)."""

    type = 3


class StringSlot(SlotType):
    """A text. As in v0.10, no layer and no evaluator reads it."""

    type = 6


class PoolSize:
    """A number of samples. As `pool_size`, it limits the pool to samples; a plain number counts files."""

    def __init__(self, pool_size: int) -> None:
        self.size = pool_size


class GeneralPyDataProvider:
    """The base class of all providers. `@provider` makes a sub-class, and a module may write one by hand.

    Attributes: file_list: the entries of the list. use_seq_flag: whether every slot is a sequence. should_shuffle:
        whether the samples of the pool are shuffled. file_count: the number of entries whose samples are the first
        pool. max_pool_size: if it is not 0, the number of samples of each pool. can_over_batch_size: whether a batch
        may end with a sample that exceeds its size. profile_filename: where the profile of each pass is written, or
        None. data_pool: the samples of the pool, during `shuffle`.
    """

    logger = logging.getLogger("paddle.provider")
    use_seq_flag: bool = False
    should_shuffle: bool = True
    can_over_batch_size: bool = True
    file_count: int = sys.maxsize
    max_pool_size: int = 0
    profile_filename: str | None = None

    def __init__(self, *file_list: str, **arguments: Any) -> None:
        del arguments  # unused, as in v0.10
        self.file_list = list(file_list)
        self.data_pool: list[Any] = []

    def reset(self) -> None:
        """Begin a pass. A sub-class may do more; the trainer opens the generators itself."""

    def shuffle(self) -> None:
        """Shuffle the pool with the random numbers of Python. The same seed gives the order of Python 2."""
        if not self.should_shuffle:
            return
        pool = self.data_pool
        for last in range(len(pool) - 1, 0, -1):
            other = int(random.random() * (last + 1))
            pool[last], pool[other] = pool[other], pool[last]

    def getSlots(self) -> Any:
        """Return the list of the types of the slots."""
        return []

    def generateData(self, fn: str) -> Iterable[Any]:
        """Return the samples of an entry of the list. A sub-class must define this method."""
        raise NotImplementedError(f"{type(self).__name__} has no generateData(self, file_name)")

    def calculateDataBatchSize(self, data: Any) -> int:
        """Return the number of units that a sample counts in a batch."""
        del data
        return 1


def default_init_hook(cls: Any, *args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def provider(
    slots: Any = None,
    use_seq: bool = False,
    should_shuffle: bool = True,
    pool_size: Any = 1,
    can_over_batch_size: bool = True,
    calc_batch_size: Callable[[Any], int] | None = None,
    debug: bool = False,
    init_hook: Callable[..., Any] = default_init_hook,
    profile_filename: str | None = None,
) -> Callable[[Callable[..., Any]], type[GeneralPyDataProvider]]:
    """Return a decorator for `def process(obj, file_name)`, a generator of samples; a sample is a list of slots.

    Args:
        slots: the list of the types of the slots, or a function of (obj, *file_list, **arguments) that returns it. None
            if the init_hook sets obj.slots.
        use_seq: whether every slot is a sequence, or a sequence of sequences.
        should_shuffle: whether the samples of the pool are shuffled; those of test data are not.
        pool_size: the number of files whose samples are shuffled together, or PoolSize(number of samples). A later pool
            has as many samples as the first pool had. A negative number means all files.
        can_over_batch_size: whether a batch may end with a sample that exceeds its size.
        calc_batch_size: a function that returns the number of units that a sample counts in a batch; by default 1.
        debug: whether the logger `obj.logger` writes messages of level DEBUG.
        init_hook: a function called as init_hook(obj, *file_list, **arguments). It may set any attribute, and change
            slots, pool_size, use_seq_flag, should_shuffle, can_over_batch_size and calc_batch_size of `obj`.
        profile_filename: if given, the profile of each pass is written to `<profile_filename>_<number of the pass>`.
    """

    def decorate(handler: Callable[..., Any]) -> type[GeneralPyDataProvider]:
        def begin(self: Any, *file_list: str, **arguments: Any) -> None:
            self.logger.setLevel(logging.DEBUG if debug else logging.INFO)
            self.use_seq_flag, self.should_shuffle, self.pool_size = use_seq, should_shuffle, pool_size
            self.can_over_batch_size, self.calc_batch_size = can_over_batch_size, calc_batch_size
            self.debug, self.profile_filename = debug, profile_filename
            init_hook(self, *file_list, **arguments)
            if slots is not None:
                self.slots = slots(self, *file_list, **arguments) if callable(slots) else slots
            self.file_count, self.max_pool_size = _parse_pool_size(self.pool_size)
            GeneralPyDataProvider.__init__(self, *file_list, **arguments)

        def count(self: Any, data: Any) -> int:
            return 1 if self.calc_batch_size is None else self.calc_batch_size(data)

        members = {
            "__init__": begin,
            "getSlots": lambda self: getattr(self, "slots", None),
            "generateData": lambda self, fn: handler(self, fn),
            "calculateDataBatchSize": count,
            "__doc__": handler.__doc__,
            "__module__": getattr(handler, "__module__", ""),
        }
        return type(getattr(handler, "__name__", "process"), (GeneralPyDataProvider,), members)

    return decorate


def _parse_pool_size(given: Any) -> tuple[int, int]:
    """Return (number of files of the first pool, number of samples of a pool); the second is 0 if files count."""
    size = given.size if isinstance(given, PoolSize) else given
    # a number such as 1e4 is whole, and an infinite one means all
    is_number = isinstance(size, numbers.Real) and not isinstance(size, bool)
    if not is_number or size == 0 or (math.isfinite(size) and size != int(size)) or math.isnan(size):
        shown = f"PoolSize({size!r})" if isinstance(given, PoolSize) else repr(given)
        raise TypeError(
            f"pool_size is {shown}; it must be a number of files, or PoolSize(number of samples), and not 0"
        )
    if size < 0 or math.isinf(size):
        return sys.maxsize, 0
    return (0, int(size)) if isinstance(given, PoolSize) else (int(size), 0)


def init_hook_wrapper(func: Callable[..., Any]) -> Callable[..., None]:
    """Return an init_hook that calls func(obj=..., file_list=..., **args) with the args of the config."""

    @functools.wraps(func)
    def wrapper(obj: Any, *file_list: str, **kwargs: Any) -> None:
        args = kwargs.get("load_data_args", {})
        if isinstance(args, str | bytes):
            args = unpickle_args(args)
        if not isinstance(args, Mapping):
            raise TypeError(f"init_hook_wrapper needs args that are a dict, not a {type(args).__name__}")
        func(obj=obj, **{**args, "file_list": file_list})

    return wrapper

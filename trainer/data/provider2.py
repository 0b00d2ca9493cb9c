"""PyDataProvider2: the names that provider modules import.

The `@provider` decorator turns a generator function into a class that the trainer instantiates.

Source: spec/config.md 15; python/paddle/trainer/PyDataProvider2.py of v0.10.
"""

from __future__ import annotations

import inspect
import logging
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from trainer.arrays.rng import Stream
from trainer.data.checks import PartialSample, SampleError, check_sample
from trainer.data.chunks import Chunk
from trainer.data.columns import ColumnSet
from trainer.data.input_types import (
    DataType,
    InputType,
    SequenceType,
    Slot,
    dense_array,
    dense_slot,
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    index_slot,
    integer_sequence,
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_binary_vector_sub_sequence,
    sparse_float_vector,
    sparse_float_vector_sequence,
    sparse_float_vector_sub_sequence,
    sparse_non_value_slot,
    sparse_value_slot,
    to_input_type,
)
from trainer.data.plain_pickle import load_plain

__all__ = [
    "CacheType",
    "CheckInputTypeWrapper",
    "CheckWrapper",
    "DataType",
    "InputOrderWrapper",
    "InputType",
    "SequenceType",
    "SingleSlotWrapper",
    "dense_array",
    "dense_slot",
    "dense_vector",
    "dense_vector_sequence",
    "dense_vector_sub_sequence",
    "deserialize_args",
    "index_slot",
    "integer_sequence",
    "integer_value",
    "integer_value_sequence",
    "integer_value_sub_sequence",
    "provider",
    "sparse_binary_vector",
    "sparse_binary_vector_sequence",
    "sparse_binary_vector_sub_sequence",
    "sparse_float_vector",
    "sparse_float_vector_sequence",
    "sparse_float_vector_sub_sequence",
    "sparse_non_value_slot",
    "sparse_value_slot",
]

Generator = Callable[..., Iterable[Any]]  # a generator function: it takes (settings, file name) and yields samples


class CacheType:
    """Whether the provider reads in every pass (NO_CACHE), or the samples of the first pass stay in memory."""

    NO_CACHE = 0
    CACHE_PASS_IN_MEM = 1


class GeneratorWrapper:
    """Refuse a function that returns None or a dictionary. A generator or a list of samples is accepted."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def __call__(self, settings: Any, filename: str) -> Iterable[Any]:
        """Return the samples."""
        samples = self.generator(settings, filename)
        if samples is None or isinstance(samples, Mapping):
            kind = type(samples).__name__
            raise TypeError(
                f"the provider's function returns a {kind} and is no generator: use `yield` for each sample"
            )
        return samples


class SingleSlotWrapper:
    """Put each value that a provider with a single slot yields into a list, because a sample is a list of slots."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def __call__(self, settings: Any, filename: str) -> Iterator[Any]:
        """Yield samples."""
        for item in self.generator(settings, filename):
            yield item if isinstance(item, dict) else [item]


class InputOrderWrapper:
    """Turn dictionaries into lists in the order of the network's inputs. A slot that a dictionary lacks is None."""

    def __init__(self, generator: Generator, input_order: Sequence[str]) -> None:
        self.generator = generator
        self.order = input_order

    def __call__(self, settings: Any, filename: str) -> Iterator[Any]:
        """Yield samples as lists in input order."""
        for item in self.generator(settings, filename):
            if not isinstance(item, Mapping):
                yield item
            elif all(map(item.__contains__, self.order)):
                yield [item.get(name) for name in self.order]
            else:
                yield PartialSample(item, self.order)


class CheckInputTypeWrapper:
    """Refuse dictionaries from a provider whose input types are a list."""

    def __init__(self, generator: Generator, input_types: Sequence[InputType], logger: logging.Logger) -> None:
        self.generator = generator
        self.input_types = input_types
        self.logger = logger

    def __call__(self, settings: Any, filename: str) -> Iterator[Any]:
        """Yield the samples."""
        for item in self.generator(settings, filename):
            if isinstance(item, Mapping):
                raise TypeError("the provider yields a dict but its input_types are a list: declare them as a dict")
            yield item


class CheckWrapper:
    """Compare each sample with the types (`check=True`). Skip a wrong sample with a warning, or raise an error."""

    def __init__(
        self, generator: Generator, input_types: Sequence[InputType], check_fail_continue: bool, logger: logging.Logger
    ) -> None:
        self.generator = generator
        self.input_types = input_types
        self.check_fail_continue = check_fail_continue
        self.logger = logger

    def __call__(self, settings: Any, filename: str) -> Iterator[Any]:
        """Yield the valid samples."""
        for number, item in enumerate(self.generator(settings, filename), 1):
            try:
                check_sample(item, self.input_types)
            except SampleError as error:
                if not self.check_fail_continue:
                    raise SampleError(f"sample {number} (counted from 1): {error}") from error
                self.logger.warning("sample %d of %s (counted from 1) is left out: %s", number, filename, error)
                continue
            yield item


_SHUFFLE_WORDS: dict[Any, bool] = {
    1: True,
    "t": True,
    "true": True,
    "on": True,
    "1": True,
    0: False,
    "f": False,
    "false": False,
    "off": False,
    "0": False,
}


def parse_should_shuffle(given: Any, logger: logging.Logger) -> bool | None:
    """Return what a value of `should_shuffle` means: True, False, or None (shuffle only in training)."""
    word = given.lower() if isinstance(given, str) else given
    if word is None or word in _SHUFFLE_WORDS:
        return _SHUFFLE_WORDS.get(word)
    logger.warning("should_shuffle is %r, which means neither yes nor no; the default is used", given)
    return None


def _parse_limit(name: str, given: Any) -> int:
    """Return a number of samples. A negative number means no limit."""
    try:
        return operator.index(given)
    except TypeError as error:
        raise TypeError(f"{name} is {given!r}; it must be a whole number, -1 for no limit") from error


def check_hook(hook: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check that an init_hook can be called with the settings and these arguments by name.

    Raises: TypeError: it cannot; the text names its file, its line and what it gets.
    """
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):  # a callable that does not tell its parameters
        return
    try:
        signature.bind(None, **arguments)
    except TypeError as error:
        body = getattr(hook, "__code__", None)
        place = f" ({Path(body.co_filename).name}:{body.co_firstlineno})" if body else ""
        raise TypeError(
            f"init_hook {getattr(hook, '__name__', hook)}{place}: {error}; it gets the settings, and by name "
            f"{', '.join(sorted(arguments))}, among them args of define_py_data_sources2: give it these parameters, or "
            "**kwargs for those that it does not need"
        ) from error


class DataProvider:
    """The class that `@provider` makes from a function; user code receives an instance as `settings`.

    The init_hook may read and set these attributes: input_types (or slots), should_shuffle, pool_size, min_pool_size,
    can_over_batch_size, calc_batch_size, cache, check and generator. The init_hook may also set attributes of other
    names for the user's own use.
    """

    options: ClassVar[dict[str, Any]]
    function: ClassVar[Generator]
    # whether a sample that is larger than a batch forms a batch by itself without can_over_batch_size; if not, such a
    # sample is an error
    takes_longer_alone: ClassVar[bool] = False
    # a function that returns the samples of a pass in their order, for a provider with a pool of its own; it gets the
    # samples of each entry of the list. Such a provider sets should_shuffle to False
    order_samples: Callable[[Sequence[Iterator[Any]]], Iterator[Any]] | None = None
    may_nest: bool = False  # whether a sequence may have sub-sequences, although its type does not say so
    unread: frozenset[str] = frozenset()  # the data layers whose values no layer reads

    def __init__(self, file_list: Sequence[str], **arguments: Any) -> None:
        options = type(self).options  # the class has the options, because a hook may set any attribute of `self`
        self.logger = logging.getLogger("paddle.provider")
        self.file_list = file_list
        self.input_order: Sequence[str] = arguments["input_order"]
        self.generator: Generator = type(self).function
        self.should_shuffle: Any = options["should_shuffle"]
        self.pool_size: int = options["pool_size"]
        self.min_pool_size: int = options["min_pool_size"]
        self.can_over_batch_size: bool = options["can_over_batch_size"]
        self.calc_batch_size: Callable[[Any], int] | None = options["calc_batch_size"]
        self.cache: int = options["cache"]
        self.check: bool = options["check"]
        self.input_types: Any = None
        self.slots: Any = None
        if options["init_hook"] is not None:
            arguments["file_list"] = file_list
            check_hook(options["init_hook"], arguments)
            options["init_hook"](self, **arguments)
        self.should_shuffle = parse_should_shuffle(self.should_shuffle, self.logger)
        self.pool_size = _parse_limit("pool_size", self.pool_size)
        self.min_pool_size = _parse_limit("min_pool_size", self.min_pool_size)
        self._settle_types()
        self._wrap_generator(options["check_fail_continue"])

    def _settle_types(self) -> None:
        """Set `slots` to the input_types of the init_hook, or without them to the input_types of the decorator.

        If neither gives input_types, `slots` keeps the value that the hook has set.
        """
        for given in (type(self).options["input_types"], self.input_types):
            if given is not None:
                self.slots = given
        if self.slots is None:
            raise ValueError("no input types: give them to @provider, or set settings.input_types in the init_hook")
        self.is_by_name = isinstance(self.slots, Mapping)
        if self.is_by_name:
            missing = [name for name in self.input_order if name not in self.slots]
            if missing:
                raise ValueError(
                    f"input_types has no {', '.join(missing)}; the network's inputs are "
                    f"{', '.join(self.input_order)}, input_types has {', '.join(map(str, self.slots))}: give the slot "
                    "the name of its data_layer"
                )
            self.slots = [self.slots[name] for name in self.input_order]
        if isinstance(self.slots, InputType):
            self.slots = [self.slots]
        self.slots = list(self.slots)
        if len(self.slots) != len(self.input_order):
            raise ValueError(
                f"there are {len(self.slots)} input types; the network has {len(self.input_order)} inputs "
                f"({', '.join(self.input_order)})"
            )
        self.slots = [to_input_type(name, kind) for name, kind in zip(self.input_order, self.slots, strict=True)]
        # a long name, because the user's init_hook may have set any attribute
        self.slots_of_data_layers = [
            Slot(name, kind, may_nest=self.may_nest) for name, kind in zip(self.input_order, self.slots, strict=True)
        ]

    def _wrap_generator(self, check_fail_continue: bool) -> None:
        self.generator = GeneratorWrapper(self.generator)
        if len(self.slots) == 1:
            self.generator = SingleSlotWrapper(self.generator)
        if self.is_by_name:
            self.generator = InputOrderWrapper(self.generator, self.input_order)
        else:
            self.generator = CheckInputTypeWrapper(self.generator, self.slots, self.logger)
        if self.check:
            self.generator = CheckWrapper(self.generator, self.slots, check_fail_continue, self.logger)

    def open_chunks(
        self, files: Sequence[str], columns: ColumnSet, mixing: Stream | None, first_until: float | None = None
    ) -> Iterator[Chunk] | None:
        """Return the encoded samples of these entries; None if the generator yields the samples one by one.

        Args: mixing: a stream that picks the entry of each sample; None: the entries follow one another. first_until:
            with this, only the first sample of each entry, and none after the first one from this time on.
        """
        return None

    def __str__(self) -> str:
        """Return `module::function`, the provider's name in the log and in messages."""
        return f"{type(self).__module__}::{type(self).__name__}"


def provider(
    input_types: Any = None,
    should_shuffle: Any = None,
    pool_size: int = -1,
    min_pool_size: int = -1,
    can_over_batch_size: bool = True,
    calc_batch_size: Callable[[Any], int] | None = None,
    cache: int = CacheType.NO_CACHE,
    check: bool = False,
    check_fail_continue: bool = False,
    init_hook: Callable[..., Any] | None = None,
    **ignored: Any,
) -> Callable[[Generator], type[DataProvider]]:
    """Return a decorator for `def process(settings, file_name)`, a generator of samples.

    Args:
        input_types: a list in the order of the network's inputs, or a dict by data layer name.
        should_shuffle: whether samples are shuffled; None means only in training.
        pool_size: number of samples that are shuffled together; -1 means all.
        min_pool_size: number of samples that are read before the first batch; -1 means pool_size.
        can_over_batch_size: whether a batch may end with a sample that exceeds its size.
        calc_batch_size: a function that returns the number of units that a sample counts in a batch; by default 1.
        cache: CacheType.CACHE_PASS_IN_MEM keeps the samples of the first pass in memory.
        check: whether to check every sample. check_fail_continue: whether to skip a wrong sample.
        init_hook: a function called as init_hook(settings, file_list=..., is_train=..., input_order=..., **args).
        ignored: other arguments. `slots` is an old name of input_types; all further names are ignored, as in v0.10.
    """
    # the first statement, while locals() has nothing but the arguments
    given = dict(locals())
    options = {name: value for name, value in given.items() if name != "ignored"}
    if "slots" in ignored and options["input_types"] is None:
        options["input_types"] = ignored["slots"]

    def decorate(function: Generator) -> type[DataProvider]:
        name = getattr(function, "__name__", "process")
        return type(
            name,
            (DataProvider,),
            {
                "options": options,
                "function": staticmethod(function),
                "__doc__": function.__doc__,
                "__module__": getattr(function, "__module__", ""),
            },
        )

    return decorate


def deserialize_args(args: str | bytes) -> Any:
    """Return the plain values that `define_py_data_sources2(args=...)` pickled. No code in the pickle runs.

    Raises: PlainPickleError: the pickle contains values that are not plain.
    """
    return load_plain(args.encode("latin-1") if isinstance(args, str) else args)


def unpickle_args(args: str | bytes) -> Any:
    """Return the objects that this process pickled, as a config script does. All others are for `deserialize_args`."""
    data = args.encode("latin-1") if isinstance(args, str) else args
    return pickle.loads(data, encoding="utf-8", errors="surrogateescape")

"""Check samples against their types (`check=True`), and report errors of user code with the file and line."""

from __future__ import annotations

import contextlib
import numbers
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError, MissingInputError, PaddleError
from trainer.arrays.arguments import is_finite
from trainer.config.building.names import module_line, suggestion
from trainer.config.scripts.python2 import is_script_file
from trainer.config.scripts.python2_hints import python2_hint
from trainer.config.scripts.script_errors import start_hint
from trainer.data.input_types import NO_IDS, DataType, InputType

_NAMES_SHOWN = 8
_CALLERS_SHOWN = 4


class SampleError(ValueError):
    """A sample does not have the declared types.

    `row` is the position of the sample among the checked samples, and `slot` that of the slot; None if it is unknown.
    """

    def __init__(self, message: str, row: int | None = None, slot: int | None = None) -> None:
        super().__init__(message)
        self.row, self.slot = row, slot


class PartialSample(list[Any]):
    """The slots of a sample whose dictionary lacks some slots. As in v0.10, None stands for a missing slot."""

    def __init__(self, given: Mapping[Any, Any], order: Sequence[str]) -> None:
        super().__init__(given.get(name) for name in order)
        self._order = order
        self._names = list(given)  # a copy, because the provider may change its dictionary later

    def find_missing(self, position: int) -> str:
        """Return an error message if the dictionary lacks the slot at this position, otherwise ""."""
        name = self._order[position]
        if name in self._names:
            return ""
        shown = [repr(one) for one in self._names[:_NAMES_SHOWN]]
        if len(self._names) > _NAMES_SHOWN:
            shown.append("...")
        return f"the sample has no slot {name!r}; it has {', '.join(shown) or 'none'}"


def check_sample(sample: Any, types: Sequence[InputType]) -> None:
    """Check that a sample (a list in slot order) has the declared types.

    Raises: SampleError: the text names the slot's position and the problem.
    """
    if not hasattr(sample, "__len__") or len(sample) != len(types):
        raise SampleError(f"a sample must be a list of {len(types)} slots, not {shorten(sample)}")
    for position, (slot, kind) in enumerate(zip(sample, types, strict=True)):
        wrong = _find_fault(slot, kind, kind.seq_type)
        if wrong:
            raise SampleError(find_missing(sample, position) or f"slot {position} ({kind}): {wrong}")


def find_missing(sample: Any, position: int) -> str:
    """Return an error message if the sample lacks the slot at this position, otherwise ""."""
    return sample.find_missing(position) if isinstance(sample, PartialSample) else ""


def _find_fault(element: Any, kind: InputType, levels: int) -> str:
    """Return what is wrong with a slot, or "". `levels` is the number of levels of nested lists in `element`."""
    if levels == 0 and kind.type == DataType.Index:
        is_good = _is_id(element, kind.dim) or (isinstance(element, numbers.Integral) and int(element) in NO_IDS)
        return "" if is_good else f"{shorten(element)} is no id below {kind.dim}"
    try:
        items = element.reshape(-1) if levels == 0 and isinstance(element, np.ndarray) else list(element)
    except TypeError:
        return f"{shorten(element)} is no list"
    if levels:
        faults = ((place, _find_fault(item, kind, levels - 1)) for place, item in enumerate(items))
        return next((f"item {place}: {fault}" for place, fault in faults if fault), "")
    if kind.type == DataType.Dense:
        if len(items) != kind.dim:
            return f"it has {len(items)} numbers instead of {kind.dim}"
        if isinstance(items, np.ndarray) and items.dtype.kind in "fiub":
            return ""
        return next((f"{shorten(x)} is no number" for x in items if not isinstance(x, numbers.Real)), "")
    if kind.type == DataType.SparseValue:
        if any(not hasattr(x, "__len__") or len(x) != 2 for x in items):
            return f"{shorten(element)} is no list of pairs (id, value)"
        items = [x[0] for x in items]
    bad = next((f"{shorten(x)} is no id below {kind.dim}" for x in items if not _is_id(x, kind.dim)), "")
    return bad or ("an id occurs twice" if len(set(items)) != len(items) else "")


def _is_id(value: Any, upper: int) -> bool:
    return isinstance(value, numbers.Integral) and 0 <= int(value) < upper


def check_finite(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Check that the numbers are finite, and return them.

    Raises: SampleError: the text names the first number that is not finite, and its position in its row.
    """
    if not is_finite(values):
        place = np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)
        raise SampleError(
            f"number {int(place[-1]) + 1} is {values[place]:g}, but training needs finite numbers: replace it, "
            "or leave the sample out"
        )
    return values


def check_ids(ids: npt.NDArray[Any], upper: int, lowest: int) -> npt.NDArray[Any]:
    """Return ids as int32; the values that mean "no id" (NO_IDS) become -1.

    Raises: SampleError: an id is below `lowest` or not below `upper`.
    """
    unsigned = max(NO_IDS)
    if ids.size and int(ids.max()) == unsigned and lowest < 0:
        ids = np.where(ids == unsigned, -1, ids)
    if ids.size and not (lowest <= int(ids.min()) and int(ids.max()) < upper):
        bad = next(one for one in ids.tolist() if not lowest <= one < upper)
        raise SampleError(f"id {bad} is not in [0, {upper})")
    return ids.astype(np.int32)


def shorten(value: Any) -> str:
    """Return a value as text of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@contextlib.contextmanager
def user_code(doing: str, count: Callable[[], int] = int) -> Iterator[None]:
    """Turn any exception of the user's code into one message with the file, the line and the text of the line.

    Args: doing: what the code did.  count: returns the number of samples that the code has yielded, for the message.
    Raises: MissingInputError: the code did not find a file.  DataError: the code raised another exception.
    """
    try:
        yield
    except PaddleError:
        raise
    except (Exception, SystemExit) as error:
        kind = MissingInputError if isinstance(error, FileNotFoundError) else DataError
        before = (
            f"; samples of this entry before it: {count()}" if count() and not isinstance(error, SampleError) else ""
        )
        raise kind(f"{doing}: {describe(error)}{before}") from error


def describe(error: BaseException) -> str:
    """Return `file.py:12 (text of the line): TypeError: message` for the deepest frame in a script of the user.

    Then `; called at file.py:30 (text of the line)` follows for each calling line of the user's code, but at most
    _CALLERS_SHOWN times.
    """
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    message += start_hint(error)
    if isinstance(error, NameError):
        message += suggestion(str(error.name)) or module_line(str(error.name))
    message += python2_hint(error)
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        # Python turns the StopIteration of a generator into a RuntimeError. Only the traceback of the StopIteration
        # contains the frame of the generator.
        frames += traceback.extract_tb(error.__cause__.__traceback__)
        message += " (end the generator by `return`, and give `next(f)` a default value)"
    users = [frame for frame in frames if is_script_file(frame.filename)]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {type(error).__name__}: {error.msg}{python2_hint(error)}"
    if not users:
        return message
    deepest, *callers = dict.fromkeys(_place(frame) for frame in reversed(users))
    return "; called at ".join([f"{deepest}: {message}", *callers[:_CALLERS_SHOWN]])


def _place(frame: traceback.FrameSummary) -> str:
    line = f" ({frame.line})" if frame.line else ""
    return f"{Path(frame.filename).name}:{frame.lineno}{line}"


# ----- What the first samples contain -----

ENOUGH_SAMPLES = 100  # samples after which a slot is judged; fewer may be alike by chance
LEAST_SAMPLES = 10  # samples of a shorter pass, after whose end a slot is judged
FEW_IDS = 3  # ids that a text without any known word may have: those of its start, of its end and of unknown words
MANY_IDS = 100  # least size of a dictionary, of which a text has more than FEW_IDS ids


class ContentCheck:
    """Warn once if a slot of the first samples is empty, constant, or a text of unknown words only.

    Training goes on with such a slot without an error, and learns nothing from it.

    Args: name: name of the data layer. kind: the declared type. size: the size of the data layer.
    """

    def __init__(self, name: str, kind: InputType, size: int) -> None:
        self._name, self.kind, self._size = name, kind, max(size, kind.dim)
        self._samples = self._items = 0
        self._ids: set[int] = set()  # the ids that occur, until there are more than FEW_IDS
        self._row: Any = None  # the first row of a dense slot
        self._is_alike = True  # whether all rows of a dense slot are equal
        self._has_ended = False

    def add(self, encoded: Sequence[Any]) -> None:
        """Count encoded samples (see `trainer.data.columns`)."""
        if self._has_ended:
            return
        self._samples += len(encoded[0])
        numbers = encoded[self.kind.seq_type + bool(self.kind.grid) :]
        if self.kind.type == DataType.Dense:
            rows = numbers[0]
            self._items += len(rows)
            self._row = rows[0] if self._row is None and len(rows) else self._row
            self._is_alike = self._is_alike and bool((rows == self._row).all())
        else:
            ids = numbers[0] if self.kind.type == DataType.Index else numbers[1]
            self._items += len(ids)
            if len(self._ids) <= FEW_IDS:
                self._ids.update(_find_distinct(ids)[: FEW_IDS + 1].tolist())
        if self._samples >= ENOUGH_SAMPLES:
            self.end()

    def end(self) -> None:
        """Judge the samples so far, at the end of a pass or when there are enough samples."""
        if not self._has_ended and self._samples >= LEAST_SAMPLES:
            self._has_ended = True
            if finding := self._find():
                glog.warning(f"slot {self._name} ({self.kind}) {finding}")

    def _find(self) -> str:
        first = f"of the first {self._samples} samples"
        if not self._items:
            return (
                f"is empty in all {first}, so nothing is learnt from it: look at what the provider yields; words that "
                "are bytes, for example, are in no dictionary of texts"
            )
        kind, ids = self.kind, sorted(self._ids)
        is_text = kind.type != DataType.Dense and (kind.seq_type or kind.type != DataType.Index)
        if is_text:
            most = FEW_IDS if self._size >= MANY_IDS else int(kind.type == DataType.Index)
            if len(ids) > most:
                return ""
            shown = ", ".join(map(str, ids))
            return f"has only {shown} of {self._size} ids in all {first}: does the dictionary know none of the words?"
        if self._is_alike if kind.type == DataType.Dense else len(ids) == 1:
            value = shorten(self._row.tolist() if kind.type == DataType.Dense else ids[0])
            return (
                f"has the same value in all {first}, {value}, so nothing is learnt from it: look at what the provider "
                "yields; a label looks like this, too, if data is sorted by class and not shuffled"
            )
        return ""


def _find_distinct(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return each of the ids once. np.unique does this too, and imports numpy.ma, 10 ms of the start of a trainer."""
    ordered = np.sort(ids)
    is_new = np.ones(len(ordered), bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]

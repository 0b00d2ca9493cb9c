"""The interface of evaluators. A batch is measured once, and several accumulators add up the measures."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.encoding import decode_array, encode_array
from trainer.arrays.text import ROWS_ADVICE

Numbers = npt.NDArray[np.float64]
MEASURE = r"([^\s=](?:[^=]*[^\s=])?)=(\S+)"  # a measure in the text of an evaluator: words and number
SETTINGS = frozenset({"positive_label"})  # words of these texts that precede a setting and no measure


class Measure(Protocol):
    """The measure of one or several batches. `a += b` never changes b."""

    def __iadd__(self, other: Any) -> Self:
        """Add the measure of further batches."""

    def state(self) -> Any:
        """Return the measure in a form that JSON can store, for a checkpoint."""

    def put_back(self, state: Any) -> None:
        """Restore the measure that `state` returned."""


class Share:
    """The measure of most evaluators: a total and its divisor. They are floats, which are added faster than arrays."""

    __slots__ = ("count", "total")

    def __init__(self, total: float = 0.0, count: float = 0.0) -> None:
        self.total = float(total)
        self.count = float(count)

    def __iadd__(self, other: Share) -> Self:
        self.total += other.total
        self.count += other.count
        return self

    def state(self) -> Any:
        """Return the total and the count as texts, which keep every bit."""
        return [self.total.hex(), self.count.hex()]

    def put_back(self, state: Any) -> None:
        """Restore both numbers."""
        self.total, self.count = map(float.fromhex, state)

    def value(self) -> float:
        """Return the quotient, or 0 if the count is 0."""
        return ratio(self.total, self.count)


class Sums:
    """An array of sums. Batches are added element by element; the first batch determines the shape."""

    def __init__(self, values: npt.ArrayLike = ()) -> None:
        self.values: Numbers = np.array(values, np.float64)

    def __iadd__(self, other: Sums) -> Self:
        if other.values.size:
            self.values = self.values + other.values if self.values.size else other.values.copy()
        return self

    def state(self) -> Any:
        """Return the numbers."""
        return encode_array(self.values)

    def put_back(self, state: Any) -> None:
        """Restore the numbers."""
        self.values = decode_array(state)


class Evaluator:
    """Measure batches and print the result.

    A subclass overrides `measure`, and also `nothing` and `text` if its measure is not a `Share`.

    Raises: ConfigError: the evaluator has an unsupported number of inputs.
    """

    least_inputs, most_inputs = 1, 1
    has_metrics = True  # whether it measures anything; a printer does not
    is_quiet = False  # whether the log lines of batches, passes and tests leave out the text of this evaluator

    def __init__(self, config: EvaluatorConfig) -> None:
        self.config = config
        self.name: str = config.name
        self._input_names = list(config.input_layers)
        count = len(config.input_layers)
        if not self.least_inputs <= count <= self.most_inputs:
            raise ConfigError(f"{self} has {count} inputs; it takes {self.least_inputs} to {self.most_inputs}")

    def __str__(self) -> str:
        return f"evaluator {self.name} ({self.config.type})"

    def nothing(self) -> Measure:
        """Return the measure of no batch. It is the initial value of a sum."""
        return Share()

    def measure(self, outputs: Mapping[str, Argument]) -> Measure:
        """Return the batch's measure; `outputs` has the outputs of all layers by name."""
        raise NotImplementedError

    def finish(self, total: Any) -> None:
        """Log the lines that precede the line with the text at the end of a pass, a test or a log period."""

    def finish_pass(self, total: Any) -> None:
        """Log further lines that precede only the lines of passes and of tested models."""

    def metrics(self, total: Any) -> dict[str, float]:
        """Return the numbers of a sum of measures by name. The name of a single number is that of the evaluator."""
        return {self.name: total.value()}

    def text(self, total: Any) -> str:
        """Return the printed form of a sum of measures."""
        return f"{self.name}={self.metrics(total)[self.name]:g}"

    # ----- for subclasses -----

    def inputs(self, outputs: Mapping[str, Argument]) -> list[Argument]:
        """Return the outputs of the evaluator's layers."""
        return [outputs[name] for name in self._input_names]

    def numbers(self, argument: Argument, role: str) -> Array:
        """Return an argument's values.

        Raises: ConfigError: the argument has ids and no values.
        """
        if argument.value is None:
            raise ConfigError(f"{self} needs a {role} of numbers, not of ids")
        return argument.value

    def labels(self, argument: Argument, role: str = "label") -> Ids:
        """Return an argument's ids.

        Raises: ConfigError: the argument has values and no ids.
        """
        if argument.ids is None:
            raise ConfigError(f"{self} needs a {role} of ids (integer_value), not of numbers")
        return argument.ids

    def label_numbers(self, argument: Argument, role: str = "label") -> Numbers:
        """Return an argument's ids, or its numbers if it has one number in each row, as old providers declare labels.

        Raises: ConfigError: the argument is sparse or has several columns.
        """
        if argument.ids is None and argument.value is not None and argument.value.shape[1] == 1:
            return argument.value[:, 0].astype(np.float64)
        return self.labels(argument, role).astype(np.float64)

    def weights(self, argument: Argument) -> Numbers:
        """Return the weight of each row.

        Raises: ConfigError: the argument does not have one number in each row.
        """
        if argument.value is None or argument.value.shape[1] != 1:
            raise ConfigError(f"{self}: its weight input must be a dense layer of size 1")
        return argument.value[:, 0].astype(np.float64)

    def starts(self, argument: Argument, role: str) -> Ids:
        """Return the first row of each sequence of an argument, and then the number of rows.

        Raises: ConfigError: the argument has no sequences.
        """
        if argument.starts is None:
            raise ConfigError(f"{self} needs sequences as its {role}")
        return argument.starts

    def require_equal_rows(self, first: Argument, other: Argument, role: str) -> None:
        """Check that both arguments have the same number of rows.

        Raises: DataError: the numbers of rows differ; the text contains both numbers.
        """
        if first.rows != other.rows:
            raise DataError(
                f"{self}: its first input has {first.rows} rows, but its {role} has {other.rows}; {ROWS_ADVICE}"
            )


class Accumulator:
    """The sums of the costs and measures of some batches. As in v0.10, the sum of the costs is a float32 number."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self._evaluators = evaluators
        self.reset()

    def reset(self) -> None:
        """Set all sums to the sums of no batch."""
        self.samples = 0
        self._cost = np.float32(0)
        self._measures = [evaluator.nothing() for evaluator in self._evaluators]

    def add(self, cost: float, samples: int, measures: Sequence[Measure]) -> None:
        """Add a batch."""
        self.samples += samples
        self._cost += np.float32(cost)
        for number, measure in enumerate(measures):
            self._measures[number] += measure

    def finish(self) -> None:
        """Let each evaluator log its own lines, which come before the summary line with all results."""
        for evaluator, measure in zip(self._evaluators, self._measures, strict=True):
            evaluator.finish(measure)

    def finish_pass(self) -> None:
        """Let the validation layers log their results, which come before the line of a pass or of a tested model."""
        for evaluator, measure in zip(self._evaluators, self._measures, strict=True):
            evaluator.finish_pass(measure)

    def state(self) -> dict[str, Any]:
        """Return the sums in a form that JSON can store."""
        return {
            "samples": self.samples,
            "cost": float(self._cost).hex(),
            "measures": {
                one.name: measure.state() for one, measure in zip(self._evaluators, self._measures, strict=True)
            },
        }

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Restore the sums that `state` returned. An evaluator that the state lacks begins with the sum of no batch."""
        self.reset()
        self.samples, self._cost = operator.index(state["samples"]), np.float32(float.fromhex(state["cost"]))
        for evaluator, measure in zip(self._evaluators, self._measures, strict=True):
            if evaluator.name in state["measures"]:
                measure.put_back(state["measures"][evaluator.name])

    def average_cost(self) -> float:
        """Return the cost per sample, a float32."""
        return float(self._cost / np.float32(self.samples)) if self.samples else 0.0

    def text(self) -> str:
        """Return the texts of all evaluators, with a blank after each text."""
        return "".join(
            f"{evaluator.text(measure)} "
            for evaluator, measure in zip(self._evaluators, self._measures, strict=True)
            if not evaluator.is_quiet
        )

    def metrics(self) -> dict[str, float]:
        """Return the numbers of all evaluators by name, in full precision."""
        found: dict[str, float] = {}
        for evaluator, measure in zip(self._evaluators, self._measures, strict=True):
            found |= evaluator.metrics(measure) if evaluator.has_metrics else {}
        return found

    def results(self) -> dict[str, str]:
        """Return the number of each measure as printed, by a name that no other measure of these evaluators has.

        The name is the word that precedes the number in the text. If several measures have the same word, each name is
        the evaluator's name, a dot and all words of the measure, such as `spam.precision` or `ctc.insertions_error`.
        """
        found = [
            (evaluator.name, words, number)
            for evaluator, measure in zip(self._evaluators, self._measures, strict=True)
            if not evaluator.is_quiet
            for words, number in re.findall(MEASURE, evaluator.text(measure))
            if words not in SETTINGS
        ]
        short = [words if words == name else words.split()[-1] for name, words, _ in found]
        uses = Counter(short)
        return {
            word if uses[word] == 1 or words == name else f"{name}.{'_'.join(words.split())}": number
            for word, (name, words, number) in zip(short, found, strict=True)
        }


E = TypeVar("E", bound=type[Evaluator])
# for each type of the message, the class; every module of an evaluator enters its classes
EVALUATORS: dict[str, type[Evaluator]] = {}


def evaluates(kind: str) -> Callable[[E], E]:
    """Enter a class into EVALUATORS as the evaluator of a type of the message.

    Raises: ValueError: another class has the type.
    """

    def enter(found: E) -> E:
        if EVALUATORS.setdefault(kind, found) is not found:
            raise ValueError(f"two classes evaluate type {kind!r}: {EVALUATORS[kind].__name__} and {found.__name__}")
        return found

    return enter


def ratio(numerator: float, denominator: float) -> float:
    """Return the quotient, or 0 if the denominator is 0."""
    return float(numerator / denominator) if denominator else 0.0

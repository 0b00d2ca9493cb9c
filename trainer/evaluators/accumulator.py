"""Add up the costs and measures of several batches: of a pass, of some batches of a pass, or of a test."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.evaluators.base import Evaluator, Measure

MEASURE = r"([^\s=](?:[^=]*[^\s=])?)=(\S+)"  # a measure in the text of an evaluator: words and number
SETTINGS = frozenset({"positive_label"})  # words of these texts that precede a setting and no measure


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

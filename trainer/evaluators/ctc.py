"""The edit distance between decoded sequences (best paths of CTC) and labels.

Source: spec/trainer.md 6.8.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from trainer.arrays.arguments import Argument, Array
from trainer.evaluators.base import Evaluator, Sums, evaluates

_WORDS = ("deletions", "insertions", "substitutions", "sequences")


@evaluates("ctc_edit_distance")
class CtcEditDistance(Evaluator):
    """The edit distance per sequence, averaged over all sequences. Each distance is divided by the longer length.

    The last column is the blank. The best path takes the symbol with the largest value in each frame, joins repeated
    symbols, and then removes blanks.
    """

    least_inputs, most_inputs = 2, 2

    def nothing(self) -> Sums:
        """Return empty sums."""
        return Sums()

    def measure(self, outputs: Mapping[str, Argument]) -> Sums:
        """Return six sums: distance, deletions, insertions, substitutions, wrong sequences, and all sequences."""
        activations, label = self.inputs(outputs)
        decoded = decode_best_paths(self.numbers(activations, "prediction"), self.starts(activations, "prediction"))
        bounds = itertools.pairwise(self.starts(label, "label").tolist())
        symbols = self.labels(label).tolist()
        sums = np.zeros(6)
        for path, (start, stop) in zip(decoded, bounds, strict=True):
            edits = np.array(count_edits(symbols[start:stop], path), np.float64)
            longest = max(stop - start, len(path), 1)
            sums += [edits.sum() / longest, *(edits / longest), float(edits.any()), 1.0]
        return Sums(sums)

    def metrics(self, total: Sums) -> dict[str, float]:
        """Return the mean distance, and the mean rates of deletions, insertions, substitutions and wrong sequences."""
        sums = total.values if total.values.size else np.zeros(6)
        names = ["error", *(f"{word.removesuffix('s')}_error" for word in _WORDS)]
        means = (sums[:5] / (sums[5] or 1.0)).tolist()
        return {f"{self.name}.{name}": mean for name, mean in zip(names, means, strict=True)}

    def text(self, total: Sums) -> str:
        """Return the text with all rates."""
        distance, *means = self.metrics(total).values()
        kinds = "".join(f"  {word} error={mean:g}" for word, mean in zip(_WORDS, means, strict=True))
        return f"{self.name}={distance:g}{kinds}"


def decode_best_paths(values: Array, starts: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> list[list[int]]:
    """Return the symbols of the best path of each sequence."""
    best = values.argmax(axis=1).tolist()
    blank = values.shape[1] - 1
    return [
        [symbol for symbol, _ in itertools.groupby(best[start:stop]) if symbol != blank]
        for start, stop in itertools.pairwise(starts.tolist())
    ]


def count_edits(label: Sequence[int], decoded: Sequence[int]) -> tuple[int, int, int]:
    """Return the numbers of deletions, insertions and substitutions of a shortest way from the label to `decoded`."""
    n, m = len(label), len(decoded)
    cost = [[max(i, j) if not i or not j else 0 for j in range(m + 1)] for i in range(n + 1)]
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost[i][j] = min(
                cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (label[i - 1] != decoded[j - 1])
            )
    deletions = insertions = substitutions = 0
    while n and m:
        if label[n - 1] == decoded[m - 1] and cost[n][m] == cost[n - 1][m - 1]:
            n, m = n - 1, m - 1
        elif cost[n][m] == cost[n - 1][m - 1] + 1:
            substitutions, n, m = substitutions + 1, n - 1, m - 1
        elif cost[n][m] == cost[n - 1][m] + 1:
            deletions, n = deletions + 1, n - 1
        else:
            insertions, m = insertions + 1, m - 1
    return deletions + n, insertions + m, substitutions

"""The cost of a beam search in several steps: the cross entropy of the correct path among all paths of the search.

Source: gserver/layers/CrossEntropyOverBeam.cpp of PaddlePaddle 0.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_ids, require_matrix, require_rows, require_starts, require_sub_starts
from trainer.layers.sequence.pooling import count_sub_sequences

NO_CANDIDATE = -1  # the number that fills the rest of a row with fewer candidates than columns


@dataclass(frozen=True)
class Expansion:
    """One step of a beam search for one sample.

    A step has lists of scored items. The candidates are the items of a list that the search keeps. For each candidate
    of a step, the next step has one list, and these lists are in the order of the candidates.

    Attributes: first: the row of the batch that has the sample's first score. bounds: the start of each list in the
        sample's scores, and the end of the last list. candidates: for each candidate, the number of its list and of
        its item. gold: the correct item of the correct list.
    """

    first: int
    bounds: Sequence[int]
    candidates: Sequence[tuple[int, int]]
    gold: int

    def row_of(self, number: int, item: int) -> int:
        """Return the row of the batch with the score of an item."""
        return self.first + self.bounds[number] + item


def list_paths(steps: Sequence[Expansion]) -> tuple[list[list[int]], int]:
    """Return the rows of each path's scores, one row for each step, and the index of the correct path.

    If the correct item is not a candidate of a step, all paths end at this step, and the correct path is added as the
    last path.

    Raises: DataError: a list does not contain the correct item.
    """
    right: list[tuple[int, int]] = []  # the list and the item of the correct path at each step
    number, place = 0, -1
    for depth, step in enumerate(steps):
        if not 0 <= step.gold < step.bounds[number + 1] - step.bounds[number]:
            many = step.bounds[number + 1] - step.bounds[number]
            raise DataError(f"the correct item of step {depth} is {step.gold}, but its list has {many} items")
        right.append((number, step.gold))
        if right[-1] not in step.candidates:
            break
        # the number of a candidate is the number of its list in the next step
        number = place = step.candidates.index(right[-1])
    else:
        right = []
    last = len(right) - 1 if right else len(steps) - 1
    paths = []
    for one in range(len(steps[last].candidates)):
        rows: list[int] = []
        parent = one
        for step in reversed(steps[: last + 1]):
            of_list, item = step.candidates[parent]
            rows.insert(0, step.row_of(of_list, item))
            parent = of_list
        paths.append(rows)
    if right:
        paths.append([step.row_of(*one) for step, one in zip(steps, right, strict=False)])
        place = len(paths) - 1
    return paths, place


class BeamCostLayer(Layer):
    """The cost is -ln of the correct path's probability; the probabilities are the softmax of the paths' summed scores.

    Each step has three inputs. The scores, (frames, 1), are sequences in the first step and have sub-sequences in later
    steps. The candidates have the form that kmax_seq_score returns: (lists, beam size). The correct items are ids, one
    for each sample. Output: (samples, 1).

    Raises (forward): DataError: a step has more or fewer lists than the previous step has candidates, or a list lacks
        the correct item.
    """

    is_cost = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(3, 1 << 30)
        if len(config.inputs) % 3:
            raise ConfigError(f"{self} takes scores, candidates and the correct items of each step")
        self._shapes: list[int] = []  # number of rows of each step's scores
        # for each sample: the rows of each path's scores, and the gradients of the paths' summed scores
        self._found: list[tuple[list[list[int]], Array]] = []

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the costs."""
        groups = [inputs[position : position + 3] for position in range(0, len(inputs), 3)]
        scores = [require_matrix(self, group[0], 1)[:, 0] for group in groups]
        self._shapes = [len(one) for one in scores]
        bounds = [self._find_bounds(group[0], is_first=not depth) for depth, group in enumerate(groups)]
        samples = {len(outer) - 1 for outer, _ in bounds} | {len(require_ids(self, group[2])) for group in groups}
        if len(samples) > 1:
            numbers = ", ".join(map(str, sorted(samples)))
            raise DataError(f"{self}: its inputs have {numbers} samples; these numbers must be equal")
        self._found, costs = [], np.zeros((samples.pop(), 1), scores[0].dtype)
        for sample in range(len(costs)):
            steps = [
                self._make_step(group, outer, inner, sample)
                for group, (outer, inner) in zip(groups, bounds, strict=True)
            ]
            costs[sample] = self._add_sample(steps, scores, sample)
        return Argument(value=costs)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of the scores: softmax - 1 for the correct path, and softmax for all other paths."""
        results: list[Array | None] = [None] * len(wanted)
        for position, rows in enumerate(self._shapes):
            results[3 * position] = np.zeros((rows, 1), gradient.dtype)
        for sample, (paths, slopes) in enumerate(self._found):
            for path, slope in zip(paths, slopes, strict=True):
                for position, row in enumerate(path):
                    result = results[3 * position]
                    assert result is not None  # set above
                    result[row, 0] += slope * gradient[sample, 0]
        return [one if want else None for one, want in zip(results, wanted, strict=True)]

    def _find_bounds(self, scores: Argument, *, is_first: bool) -> tuple[Ids, Ids]:
        """Return the first list of each sample, and the first row of each list in the scores."""
        starts = require_starts(self, scores)
        if is_first:
            return np.arange(len(starts)), starts
        sub_starts = require_sub_starts(self, scores)
        return count_sub_sequences(starts, sub_starts), sub_starts

    def _make_step(self, group: Sequence[Argument], outer: Ids, inner: Ids, sample: int) -> Expansion:
        candidates = require_rows(self, group[1])
        if len(candidates) != len(inner) - 1:
            raise DataError(
                f"{self}: {len(inner) - 1} lists of scores come with {len(candidates)} rows of candidates; these "
                "numbers must be equal"
            )
        begin, end = int(outer[sample]), int(outer[sample + 1])
        first = int(inner[begin])
        rows = candidates[begin:end].astype(np.int64)
        chosen = [(number, item) for number, row in enumerate(rows.tolist()) for item in row if item != NO_CANDIDATE]
        bounds = (inner[begin : end + 1] - first).tolist()
        return Expansion(first, bounds, chosen, int(require_ids(self, group[2])[sample]))

    def _add_sample(self, steps: Sequence[Expansion], scores: Sequence[Array], sample: int) -> float:
        for depth in range(1, len(steps)):
            lists, candidates = len(steps[depth].bounds) - 1, len(steps[depth - 1].candidates)
            if lists != candidates:
                raise DataError(
                    f"{self}: step {depth} of sample {sample} has {lists} lists for {candidates} candidates"
                )
        try:
            paths, right = list_paths(steps)
        except DataError as error:
            raise DataError(f"{self}: sample {sample}: {error}") from error
        sums = np.array([sum(scores[depth][row] for depth, row in enumerate(path)) for path in paths])
        powers = np.exp(sums - sums.max())
        shares = powers / powers.sum()
        cost = -float(np.log(shares[right]))
        shares[right] -= 1
        self._found.append((paths, shares))
        return cost

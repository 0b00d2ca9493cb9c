"""The F1 score of the chunks in tagged sequences.

Source: spec/trainer.md 6.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Ids
from trainer.evaluators.base import Evaluator, Sums, evaluates, ratio


class Scheme(NamedTuple):
    """A tagging scheme.

    `tags` is the number of tags of each chunk type. The other fields are the numbers of these tags; -1: no such tag.
    """

    tags: int
    begin: int
    inside: int
    end: int
    single: int


SCHEMES: Mapping[str, Scheme] = {
    "IOB": Scheme(2, 0, 1, -1, -1),
    "IOBES": Scheme(4, 0, 1, 2, 3),
    "IOE": Scheme(2, -1, 0, 1, -1),
    "plain": Scheme(1, -1, -1, -1, -1),
}


class Chunks(NamedTuple):
    """The first frame, the last frame and the type of each chunk of tagged sequences, in order."""

    first: Ids
    last: Ids
    kind: Ids


@evaluates("chunk")
class ChunkF1(Evaluator):
    """The F1 score of decoded chunks. A chunk is correct if it equals a chunk of the label.

    Inputs: the decoded ids, and the ids of the label.
    """

    least_inputs, most_inputs = 2, 2

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__(config)
        if config.chunk_scheme not in SCHEMES:
            raise ConfigError(f"{self}: chunk_scheme '{config.chunk_scheme}' is not one of {', '.join(SCHEMES)}")
        self._scheme = SCHEMES[config.chunk_scheme]

    def nothing(self) -> Sums:
        """Return empty sums."""
        return Sums()

    def measure(self, outputs: Mapping[str, Argument]) -> Sums:
        """Return three counts: the chunks of the label, the decoded chunks, and the correctly decoded chunks.

        Raises: DataError: an id is not a tag of the scheme.
        """
        decoded, label = self.inputs(outputs)
        self.require_equal_rows(decoded, label, "label")
        starts = self.starts(label, "label")
        found, true = (
            self._chunks(self.labels(one, role), starts) for one, role in ((decoded, "first input"), (label, "label"))
        )
        _, i, j = np.intersect1d(found.first, true.first, assume_unique=True, return_indices=True)
        correct = (found.last[i] == true.last[j]) & (found.kind[i] == true.kind[j])
        return Sums((len(true.first), len(found.first), correct.sum()))

    def metrics(self, total: Sums) -> dict[str, float]:
        """Return precision, recall and F1 score of the chunks."""
        true, found, correct = total.values.tolist() if total.values.size else (0.0, 0.0, 0.0)
        precision, recall = ratio(correct, found), ratio(correct, true)
        f1 = ratio(2 * precision * recall, precision + recall)
        return {f"{self.name}.precision": precision, f"{self.name}.recall": recall, f"{self.name}.F1-score": f1}

    def text(self, total: Sums) -> str:
        """Return the text with F1 and the numbers of chunks."""
        true, found, correct = total.values.tolist() if total.values.size else (0.0, 0.0, 0.0)
        f1 = self.metrics(total)[f"{self.name}.F1-score"]
        return f"{self.name}={f1:g} true_chunks={true:.0f} result_chunks={found:.0f} correct_chunks={correct:.0f}"

    def _chunks(self, ids: Ids, starts: Ids) -> Chunks:
        other = self.config.num_chunk_types
        upper = other * self._scheme.tags
        wrong = (ids < 0) | (ids > upper)
        if wrong.any():
            raise DataError(
                f"{self}: id {ids[wrong.argmax()]} is not in [0, {upper}], the ids of the tags and of 'other'"
            )
        chunks = find_chunks(ids, starts, self._scheme, other)
        counted = ~np.isin(chunks.kind, list(self.config.excluded_chunk_types))
        return Chunks(chunks.first[counted], chunks.last[counted], chunks.kind[counted])


def find_chunks(ids: Ids, starts: Ids, scheme: Scheme, other: int) -> Chunks:
    """Return the chunks of tagged sequences.

    A chunk begins at every change of the type, at the tags B (begin) and S (single), and after the tags E (end) and S.
    A chunk ends before the next chunk, before the type `other`, and at the end of its sequence.
    """
    kind, tag = np.divmod(ids, scheme.tags)
    is_first_frame: npt.NDArray[np.bool_] = np.zeros(len(ids) + 1, bool)
    is_first_frame[starts] = True
    is_first_frame = is_first_frame[:-1]
    changes = is_first_frame.copy()
    changes[1:] |= kind[1:] != kind[:-1]
    changes |= np.isin(tag, [scheme.begin, scheme.single])
    changes[1:] |= np.isin(tag[:-1], [scheme.end, scheme.single])
    begins = changes & (kind != other)
    stops = np.flatnonzero(np.append(changes | (kind == other), True))
    first = np.flatnonzero(begins)
    last = stops[np.searchsorted(stops, first, side="right")] - 1
    return Chunks(first, last, kind[first])

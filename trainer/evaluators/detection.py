"""The mean average precision of detected boxes.

Source: spec/trainer.md 6.3; DetectionMAPEvaluator.cpp of v0.11.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.evaluators.base import Evaluator, Numbers, evaluates

DETECTION_COLUMNS = 7  # image, class, score, and four columns of the box
LABEL_COLUMNS = 6  # class, four columns of the box, and whether the box is difficult
AP_TYPES = ("11point", "Integral")


class Matches:
    """The labelled boxes and the detections of each class.

    For each class, `boxes` has the number of labelled boxes that count, and `detections` has a pair (score, whether the
    detection found a box) for each detection. A detection whose best box does not count is left out.
    """

    def __init__(self) -> None:
        self.boxes: dict[int, int] = {}
        self.detections: dict[int, list[tuple[float, bool]]] = {}

    def __iadd__(self, other: Matches) -> Self:
        for kind, count in other.boxes.items():
            self.boxes[kind] = self.boxes.get(kind, 0) + count
        for kind, found in other.detections.items():
            self.detections.setdefault(kind, []).extend(found)
        return self

    def state(self) -> Any:
        """Return the numbers of boxes and the detections, as lists of pairs."""
        found = [
            [kind, [[float(score).hex(), bool(hit)] for score, hit in pairs]] for kind, pairs in self.detections.items()
        ]
        return [list(self.boxes.items()), found]

    def put_back(self, state: Any) -> None:
        """Restore the numbers of boxes and the detections."""
        boxes, found = state
        self.boxes = dict(boxes)
        self.detections = {kind: [(float.fromhex(score), hit) for score, hit in pairs] for kind, pairs in found}


@evaluates("detection_map")
class DetectionMap(Evaluator):
    """100 times the mean over all classes of the area under the precision-recall curve of a class.

    The first input has the detections, with rows (image, class, score, xmin, ymin, xmax, ymax). The second input has
    the labels: a sequence for each image, with a row (class, xmin, ymin, xmax, ymax, difficult) for each box. The
    config language passes the second input twice, so there may be a third input.
    """

    least_inputs, most_inputs = 2, 3

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__(config)
        if config.ap_type not in AP_TYPES:
            raise ConfigError(f"{self}: ap_type '{config.ap_type}' is not one of {', '.join(AP_TYPES)}")

    def nothing(self) -> Matches:
        """Return a measure that has no boxes and no detections."""
        return Matches()

    def measure(self, outputs: Mapping[str, Argument]) -> Matches:
        """Return the measure of a batch."""
        inputs = self.inputs(outputs)
        detections = self._rows(inputs[0], "detections", DETECTION_COLUMNS)
        labels = self._rows(inputs[1], "labels", LABEL_COLUMNS)
        matches = Matches()
        for image, (start, stop) in enumerate(itertools.pairwise(self.starts(inputs[1], "label").tolist())):
            self._match_image(detections[detections[:, 0] == image, 1:], labels[start:stop], matches)
        return matches

    def metrics(self, total: Matches) -> dict[str, float]:
        """Return the mean in percent. It leaves out classes without boxes and classes without detections."""
        areas = [
            self._average_precision(np.array(total.detections[kind]), count)
            for kind, count in total.boxes.items()
            if count and kind in total.detections
        ]
        return {self.name: float(100 * sum(areas) / max(len(areas), 1))}

    def text(self, total: Matches) -> str:
        """Return `Detection mAP=x`."""
        return f"Detection mAP={self.metrics(total)[self.name]:g}"

    def _rows(self, argument: Argument, role: str, width: int) -> Numbers:
        values = self.numbers(argument, role).astype(np.float64)
        if values.shape[1] != width:
            raise ConfigError(f"{self}: its {role} have {values.shape[1]} columns; they must be {width}")
        return values

    def _match_image(self, detections: Numbers, labels: Numbers, matches: Matches) -> None:
        """Add the boxes and the detections of an image to `matches`.

        Shapes: detections: (n, 6), that is, class, score and box; labels: (boxes, LABEL_COLUMNS).
        """
        for kind in {*detections[:, 0].astype(int).tolist(), *labels[:, 0].astype(int).tolist()}:
            if kind == self.config.background_id:
                continue
            boxes = labels[labels[:, 0] == kind]
            counts = np.full(len(boxes), True) if self.config.evaluate_difficult else boxes[:, 5] == 0
            matches.boxes[kind] = matches.boxes.get(kind, 0) + int(counts.sum())
            found = detections[detections[:, 0] == kind, 1:]
            if not len(found):
                continue
            taken = np.full(len(boxes), False)
            results = matches.detections.setdefault(kind, [])
            for score, *box in found[np.argsort(-found[:, 0], kind="stable")].tolist():
                overlaps = overlap(np.array(box), boxes[:, 1:5])
                best = int(overlaps.argmax()) if len(overlaps) else -1
                if best < 0 or overlaps[best] <= self.config.overlap_threshold:
                    results.append((score, False))
                elif counts[best]:  # as in PASCAL VOC, a find of a difficult box is neither right nor wrong
                    results.append((score, not taken[best]))
                    taken[best] = True

    def _average_precision(self, detections: Numbers, boxes: int) -> float:
        """Return the area under the precision-recall curve of a class.

        Shapes: detections: (n, 2), that is, the score, and whether the detection found a box.
        """
        if not len(detections):
            return 0.0
        hits = np.cumsum(detections[np.argsort(-detections[:, 0], kind="stable"), 1])
        precision, recall = hits / np.arange(1, len(hits) + 1), hits / boxes
        if self.config.ap_type == "Integral":
            return float(np.diff(recall, prepend=0.0) @ precision)
        reached = recall >= np.arange(11)[:, None] / 10.0
        return float(np.where(reached, precision, 0.0).max(axis=1).mean())


def overlap(box: Numbers, boxes: Numbers) -> Numbers:
    """Return the area of the intersection of `box` with each of `boxes`, divided by the area of their union.

    Shapes: box: (4,), that is, xmin, ymin, xmax and ymax; boxes: (n, 4); result: (n,).
    """
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    common = np.clip(high - low, 0.0, None).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - common
    shares: Numbers = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares

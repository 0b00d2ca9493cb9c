"""Object detection in images: prior boxes, the cost of predictions for the prior boxes, and the detected boxes.

Source: gserver/layers/PriorBox.cpp, MultiBoxLossLayer.cpp and DetectionOutputLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix, require_starts
from trainer.layers.image.boxes import decode, encode, match, suppress
from trainer.layers.image.shape import input_shape

# how many numbers describe a box, a prior box with its variances, a label (class, box, difficult), and a found object
# (image, class, score, box)
BOX, PRIOR, LABEL, FOUND = 4, 8, 6, 7


class PriorBoxLayer(Layer):
    """Boxes of several sizes and shapes around each place of a map, with their variances.

    The boxes are clipped to the image, and one row holds all boxes. Inputs: the layer with the map, and the image.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        conf = config.inputs[0].priorbox_conf
        if not conf.min_size or len(conf.max_size) not in (0, len(conf.min_size)) or len(conf.variance) != BOX:
            raise ConfigError(f"{self} needs a min_size, either no max_size or one for each min_size, and 4 variances")
        ratios = [ratio for one in conf.aspect_ratio for ratio in (one, 1 / one)]
        sizes: list[tuple[float, float]] = []
        for smallest in conf.min_size:
            sizes.append((smallest, smallest))
            sizes += [(np.sqrt(smallest * largest),) * 2 for largest in conf.max_size]
            sizes += [(smallest * np.sqrt(r), smallest / np.sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
        self._sizes = np.array(sizes)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the boxes and variances."""
        _, height, width = input_shape(self, 0)
        _, image_height, image_width = input_shape(self, 1)
        image = np.array([image_width, image_height], np.float64)
        rows, columns = np.mgrid[:height, :width]
        centres = (np.stack([columns, rows], axis=-1) + 0.5) * image / (width, height)
        result = np.empty((height, width, len(self._sizes), PRIOR))
        for first, sign in ((0, -0.5), (2, 0.5)):
            corners = centres[:, :, None] + sign * self._sizes
            result[..., first : first + 2] = np.clip(corners / image, 0, 1)
        result[..., BOX:] = self.config.inputs[0].priorbox_conf.variance
        value = inputs[0].value
        return Argument(value=result.reshape(1, result.size).astype(np.float32 if value is None else value.dtype))


class _Predictions:
    """The predictions of several layers for the priors.

    Each row of a layer has the order channels, height, width. `join` reorders each row into one row for each prior.
    """

    def __init__(self, layer: Layer, first: int, count: int, numbers: int) -> None:
        conf = layer.config.inputs[0]
        sizes = conf.multibox_loss_conf if conf.HasField("multibox_loss_conf") else conf.detection_output_conf
        self._layer, self._first, self._numbers = layer, first, numbers
        self._sources = range(first, first + count)
        self._default = sizes.height * sizes.width
        self._pixels: list[int] = []

    def join(self, inputs: Sequence[Argument], priors: int) -> Array:
        """Return the predictions, (n, priors, numbers)."""
        self._pixels = [self._find_pixels(position) for position in self._sources]
        parts = []
        for position, pixels in zip(self._sources, self._pixels, strict=True):
            x = require_matrix(self._layer, inputs[position], self._layer.input_configs[position].size)
            parts.append(x.reshape(len(x), x.shape[1] // pixels, pixels).swapaxes(1, 2).reshape(x.shape))
        joined = np.hstack(parts)
        if joined.shape[1] != priors * self._numbers:
            raise ConfigError(
                f"{self._layer}: inputs {self._sources.start} to {self._sources.stop - 1} have {joined.shape[1]} "
                f"values a row; {priors} priors need {priors * self._numbers}"
            )
        return joined.reshape(len(joined), priors, self._numbers)

    def part(self, gradient: Array) -> Iterator[Array]:
        """Yield the gradient of each input from the gradient of the joined predictions."""
        flat, begin = gradient.reshape(len(gradient), gradient.shape[1] * gradient.shape[2]), 0
        for position, pixels in zip(self._sources, self._pixels, strict=True):
            end = begin + self._layer.input_configs[position].size
            piece = flat[:, begin:end].reshape(len(flat), pixels, (end - begin) // pixels)
            yield np.ascontiguousarray(piece.swapaxes(1, 2)).reshape(len(flat), end - begin)
            begin = end

    def _find_pixels(self, position: int) -> int:
        source = self._layer.input_configs[position]
        pixels: int = source.height * source.width or self._default
        if source.size % pixels:
            raise ConfigError(f"{self._layer}: input {source.name} has {source.size} values, no multiple of {pixels}")
        return pixels


class MultiBoxLossLayer(Layer):
    """The error of locations and classes, divided by the number of matched priors; every output row has this cost.

    Inputs: the priors; the labels, a sequence of (class, box, difficult) for each image; one or more layers with the
    predicted locations; as many layers with the predicted classes. Most priors match no box. Of the priors without a
    box, only the priors with the highest probabilities of an object enter the cost; their label is background.
    """

    is_cost = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        conf = self._conf = config.inputs[0].multibox_loss_conf
        self.require_inputs(2 + 2 * conf.input_num, 2 + 2 * conf.input_num)
        self._places = _Predictions(self, 2, conf.input_num, BOX)
        self._classes = _Predictions(self, 2 + conf.input_num, conf.input_num, conf.num_classes)
        self._flows: tuple[Array, Array]

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the cost in each row.

        Raises: DataError: a label's class is out of range, or labels and predictions differ in the number of images.
        """
        priors = _read_priors(self, inputs[0])
        starts, labels = require_starts(self, inputs[1], 1), require_matrix(self, inputs[1], LABEL)
        places, scores = self._places.join(inputs, len(priors)), self._classes.join(inputs, len(priors))
        if labels.size and not (labels[:, 0].min() >= 0 and labels[:, 0].max() < self._conf.num_classes):
            raise DataError(f"{self}: a label's class is not in [0, {self._conf.num_classes})")
        if len(starts) - 1 != len(places):
            raise DataError(f"{self}: there are labels of {len(starts) - 1} images, but predictions of {len(places)}")
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        matches, is_negative = self._match(priors, labels, starts, shares)
        images, found = np.nonzero(matches >= 0)
        count = max(1, len(images))
        boxes = labels[starts[images] + matches[images, found]]
        distance = places[images, found] - encode(priors[found, :BOX], priors[found, BOX:], boxes[:, 1:5])
        # the smooth L1 cost of Fast R-CNN, whose gradient a box far away does not dominate
        cost = np.where(np.abs(distance) < 1, 0.5 * distance**2, np.abs(distance) - 0.5).sum()
        wanted = np.full(matches.shape, self._conf.background_id)
        wanted[images, found] = boxes[:, 0]
        counted = np.nonzero((matches >= 0) | is_negative)
        cost -= np.log(shares[(*counted, wanted[counted])]).sum()
        flows = np.zeros_like(places), np.zeros_like(scores)
        flows[0][images, found] = np.clip(distance, -1, 1)
        flows[1][counted] = shares[counted]
        flows[1][(*counted, wanted[counted])] -= 1
        self._flows = flows[0] / count, flows[1] / count
        return Argument(value=np.full((len(places), 1), cost / count, places.dtype))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of the predictions; as in v0.10, the cost of the whole batch counts only once."""
        factor = gradient.mean() if gradient.size else 0
        parts = [*self._places.part(self._flows[0] * factor), *self._classes.part(self._flows[1] * factor)]
        return [None, None, *parts]

    def _match(self, priors: Array, labels: Array, starts: Ids, shares: Array) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Return the box of each prior (an index of the image's boxes, or -1), and which priors count as background.

        Shapes: both (images, priors).
        """
        conf = self._conf
        matches: Ids = np.full(shares.shape[:2], -1)
        is_negative: npt.NDArray[np.bool_] = np.zeros(shares.shape[:2], np.bool_)
        objects = np.delete(shares, conf.background_id, axis=2).max(axis=2)
        for image, (begin, end) in enumerate(pairwise(starts)):
            if begin == end:
                continue
            matches[image], overlap = match(priors[:, :BOX], labels[begin:end, 1:5], conf.overlap_threshold)
            candidates = np.flatnonzero((matches[image] < 0) & (overlap < conf.neg_overlap))
            worst = candidates[np.argsort(-objects[image, candidates], kind="stable")]
            is_negative[image, worst[: int((matches[image] >= 0).sum() * conf.neg_pos_ratio)]] = True
        return matches, is_negative


class DetectionOutputLayer(Layer):
    """The boxes detected in all images: rows of (image, class, score, box).

    Inputs: the priors; one or more layers with the predicted locations; as many layers with the predicted classes.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        conf = self._conf = config.inputs[0].detection_output_conf
        self.require_inputs(1 + 2 * conf.input_num, 1 + 2 * conf.input_num)
        self._places = _Predictions(self, 1, conf.input_num, BOX)
        self._classes = _Predictions(self, 1 + conf.input_num, conf.input_num, conf.num_classes)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the boxes, ordered by image, then by class, then by descending score."""
        priors = _read_priors(self, inputs[0])
        places, scores = self._places.join(inputs, len(priors)), self._classes.join(inputs, len(priors))
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        boxes = decode(priors[:, :BOX], priors[:, BOX:], places)
        rows = [row for image in range(len(places)) for row in self._find(image, boxes[image], shares[image])]
        return Argument(value=np.array(rows, places.dtype).reshape(len(rows), FOUND))

    def _find(self, image: int, boxes: Array, shares: Array) -> list[list[float]]:
        """Return the rows of one image."""
        conf = self._conf
        limits = {"least": conf.confidence_threshold, "most_overlap": conf.nms_threshold}
        found = [
            (kind, prior)
            for kind in range(conf.num_classes)
            if kind != conf.background_id
            for prior in suppress(boxes, shares[:, kind], count=conf.nms_top_k, **limits)
        ]
        if 0 < conf.keep_top_k < len(found):
            best = sorted(found, key=lambda one: -shares[one[1], one[0]])[: conf.keep_top_k]
            found = sorted(best, key=lambda one: one[0])
        return [[image, kind, shares[prior, kind], *np.clip(boxes[prior], 0, 1)] for kind, prior in found]


def _read_priors(layer: Layer, one: Argument) -> Array:
    """Return the box and the variances of each prior, (priors, 8); every row of the input repeats all priors."""
    if one.value is None or not len(one.value) or one.value.shape[1] % PRIOR:
        raise ConfigError(f"{layer} needs priors of {PRIOR} numbers each as its first input")
    priors: Array = one.value[0].reshape(-1, PRIOR)
    return priors

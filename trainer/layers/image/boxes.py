"""Arithmetic of boxes for detection: overlaps, codes, matches.

A box is (left, top, right, bottom) as fractions of the size of the image. A code is the position of a box relative to a
prior box; a prior has a variance for each of the four numbers of a code.
Source: gserver/layers/DetectionUtil.cpp of v0.10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.arrays.arguments import Array, Ids

TOUCHING = 1e-6  # overlaps up to this value count as zero


def overlaps(boxes: Array, others: Array) -> Array:
    """Return the intersection area of each pair of boxes divided by the area of their union.

    Shapes: boxes: (n, 4), others: (m, 4); result: (n, m).
    """
    corner = np.maximum(boxes[:, None, :2], others[None, :, :2])
    common = np.prod(np.maximum(np.minimum(boxes[:, None, 2:], others[None, :, 2:]) - corner, 0), axis=2)
    union = _areas(boxes)[:, None] + _areas(others) - common
    result: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return result


def encode(priors: Array, variances: Array, boxes: Array) -> Array:
    """Return the position of each box relative to its prior: centre and logarithm of the size. Shapes: all (n, 4)."""
    size, box_size = priors[:, 2:] - priors[:, :2], boxes[:, 2:] - boxes[:, :2]
    shift = (boxes[:, :2] + boxes[:, 2:] - priors[:, :2] - priors[:, 2:]) / 2 / size
    return np.hstack([shift, np.log(np.abs(box_size / size))]) / variances


def decode(priors: Array, variances: Array, codes: Array) -> Array:
    """Return the boxes that the codes describe. Shapes: priors, variances: (n, 4); codes, result: (any, n, 4)."""
    size, centre = priors[:, 2:] - priors[:, :2], (priors[:, :2] + priors[:, 2:]) / 2
    scaled = codes * variances
    centres, halves = scaled[..., :2] * size + centre, np.exp(scaled[..., 2:]) * size / 2
    return np.concatenate([centres - halves, centres + halves], axis=-1)


def match(priors: Array, boxes: Array, threshold: float) -> tuple[Ids, Array]:
    """Return the index of the box assigned to each prior (-1: no box), and the overlap of the prior with its box.

    The first match is the pair of a box and a prior with the largest overlap. The best pair of the rest follows, until
    every box has a prior or no overlap remains. Then each remaining prior gets the box that it overlaps most, if the
    overlap reaches the threshold. For a prior without a box, the second result is the largest overlap with any box.
    """
    common = overlaps(priors, boxes)
    common[common <= TOUCHING] = 0
    found = np.full(len(priors), -1)
    largest = common.max(axis=1)
    left = common.copy()
    for _ in range(len(boxes)):
        prior, box = np.unravel_index(left.argmax(), left.shape)
        if left[prior, box] <= 0:
            break
        found[prior], largest[prior] = box, left[prior, box]
        left[prior], left[:, box] = 0, 0
    others = (found < 0) & (common.max(axis=1) >= max(threshold, TOUCHING))
    found[others] = common[others].argmax(axis=1)
    return found, largest


def suppress(boxes: Array, scores: Array, *, least: float, most_overlap: float, count: int) -> Ids:
    """Return the indices of the boxes, the best first; a box that overlaps a better box too much is left out.

    Args: least: boxes with this score or a lower score are left out. most_overlap: the largest allowed overlap.
        count: number of the best boxes to consider; 0 considers all boxes.
    """
    candidates = np.flatnonzero(scores > least)
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    if count > 0:
        candidates = candidates[:count]
    kept: list[int] = []
    while len(candidates):
        best, candidates = candidates[0], candidates[1:]
        kept.append(int(best))
        common = overlaps(boxes[best : best + 1], boxes[candidates])[0]
        candidates = candidates[common <= most_overlap]
    return np.array(kept, np.intp)


def _areas(boxes: Array) -> npt.NDArray[np.floating[Any]]:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    areas: Array = sides[:, 0] * sides[:, 1]
    return areas

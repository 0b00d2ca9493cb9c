"""Arithmetic of boxes for detection: overlaps, codes, matches. Pure.

A box is (left, top, right, bottom) as shares of the image's size; priors have a variance for each number of their code.
Source: gserver/layers/DetectionUtil.cpp of v0.10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.arrays.arguments import Array, Ids

TOUCHING = 1e-6  # overlaps up to this are none


def overlaps(boxes: Array, others: Array) -> Array:
    """Return for each pair the area of what is common to both, over that of what is in either.

    Shapes: boxes: (n, 4), others: (m, 4); result: (n, m).
    """
    corner = np.maximum(boxes[:, None, :2], others[None, :, :2])
    common = np.prod(np.maximum(np.minimum(boxes[:, None, 2:], others[None, :, 2:]) - corner, 0), axis=2)
    union = _areas(boxes)[:, None] + _areas(others) - common
    result: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return result


def encode(priors: Array, variances: Array, boxes: Array) -> Array:
    """Return where the boxes lie relative to their priors: centre and logarithm of the size. Shapes: all (n, 4)."""
    size, box_size = priors[:, 2:] - priors[:, :2], boxes[:, 2:] - boxes[:, :2]
    shift = (boxes[:, :2] + boxes[:, 2:] - priors[:, :2] - priors[:, 2:]) / 2 / size
    return np.hstack([shift, np.log(np.abs(box_size / size))]) / variances


def decode(priors: Array, variances: Array, codes: Array) -> Array:
    """Return the boxes of codes. Shapes: priors, variances: (n, 4); codes, result: (any, n, 4)."""
    size, centre = priors[:, 2:] - priors[:, :2], (priors[:, :2] + priors[:, 2:]) / 2
    scaled = codes * variances
    centres, halves = scaled[..., :2] * size + centre, np.exp(scaled[..., 2:]) * size / 2
    return np.concatenate([centres - halves, centres + halves], axis=-1)


def match(priors: Array, boxes: Array, threshold: float) -> tuple[Ids, Array]:
    """Return for each prior the box that it is to find, -1 for none, and its largest overlap with any box.

    Each box gets the prior that fits it best, pair by pair; then each prior that is left the box that it overlaps most,
    if by the threshold at least.
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
    """Return the boxes that are left, best first: of those that overlap too much only the best stays.

    Args: least: boxes of this score or less are left out.  count: number of the best boxes to look at; 0: all.
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

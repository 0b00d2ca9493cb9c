"""Warnings about the classes of a data set, of which a network could not learn some or all."""

from __future__ import annotations

from collections.abc import Mapping

from paddle_cluster.prepare.log import say

MANY = 20  # from so many classes on, classes of one sample each are more likely ids
SHOWN = 5


def warn_of_classes(training: Mapping[str, int], test: Mapping[str, int]) -> None:
    """Log a warning if nearly each sample has a class of its own, and one that names classes only of test samples.

    Args: label of a class -> number of its samples, which may be 0.
    """
    classes = {label for part in (training, test) for label, count in part.items() if count}
    samples = sum(training.values()) + sum(test.values())
    if len(classes) >= MANY and 2 * len(classes) > samples:
        say(
            f"WARNING: {samples} samples have {len(classes)} different labels, so most labels are of one sample, from "
            "which a network learns nothing; set CSV_LABEL to another column if these are ids"
        )
        return
    unknown = sorted(label for label in classes if not training.get(label))
    if unknown:
        more = ", ..." if len(unknown) > SHOWN else ""
        say(
            f"WARNING: the training data have no sample of {len(unknown)} classes of the test data: "
            f"{', '.join(map(repr, unknown[:SHOWN]))}{more}; the network never predicts them"
        )

"""`paddle.dataset`: the data sets of v0.10 and v0.11, read from the cache of that time or fetched into it.

Beside them: `digits`, which needs no download, and `synthetic(name)`, made-up samples in the form of a data set.
"""

from paddle.v2.dataset import (
    cifar,
    common,
    conll05,
    digits,
    flowers,
    imdb,
    imikolov,
    mnist,
    movielens,
    mq2007,
    sentiment,
    uci_housing,
    voc2012,
    wmt14,
)
from paddle.v2.dataset.made_up import synthetic

__all__ = [
    "cifar",
    "common",
    "conll05",
    "digits",
    "flowers",
    "imdb",
    "imikolov",
    "mnist",
    "movielens",
    "mq2007",
    "sentiment",
    "synthetic",
    "uci_housing",
    "voc2012",
    "wmt14",
]

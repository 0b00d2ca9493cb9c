"""LETOR's MQ2007: documents ranked for queries, 46 features each, as pairs, lists or single documents."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddle.v2.archives import read_lines
from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError, MissingInputError, UsageError

URL = "http://research.microsoft.com/en-us/um/beijing/projects/letor/LETOR4.0/Data/MQ2007.rar"
MD5 = "7be1640ae95c6408dab0ae7207bdc706"

_FEATURES = 46


@dataclass(frozen=True)
class Query:
    """A document for a query."""

    query_id: int
    relevance_score: int
    feature_vector: list[float]


def load_from_text(filepath: str | Path, shuffle: bool = False, fill_missing: float = -1) -> list[list[Query]]:
    """Return the documents of each query, of a file of lines `2 qid:10032 1:0.05 ... 46:0.07 #docid = ...`.

    Args: shuffle: the queries in random order (module `random`).  fill_missing: the value of a feature that is absent.
    """
    with Path(filepath).open("rb") as file:
        lines = (line.split("#")[0] for line in read_lines(str(filepath), file))
        documents = [_query(str(filepath), line, fill_missing) for line in lines if line.strip()]
    queries = [list(group) for _, group in itertools.groupby(documents, lambda one: one.query_id)]
    if shuffle:
        random.shuffle(queries)
    return queries


def _query(path: str, line: str, fill_missing: float) -> Query:
    try:
        score, query, *pairs = line.split()
        features = [float(fill_missing)] * _FEATURES
        for pair in pairs:
            number, value = pair.split(":")
            features[int(number) - 1] = float(value)
        return Query(int(query.removeprefix("qid:")), int(score), features)
    except (ValueError, IndexError) as error:
        raise DataError(f"{path} has a damaged line: {line[:80]}") from error


def gen_plain_txt(querylist: list[Query]) -> Iterator[tuple[int, int, Any]]:
    """Yield (query, relevance, features) of each document, the most relevant first."""
    for one in sorted(querylist, key=lambda document: -document.relevance_score):
        yield one.query_id, one.relevance_score, np.array(one.feature_vector)


def gen_point(querylist: list[Query]) -> Iterator[tuple[int, Any]]:
    """Yield (relevance, features) of each document."""
    for one in querylist:
        yield one.relevance_score, np.array(one.feature_vector)


def gen_pair(querylist: list[Query]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield ([1], features, features) of each pair of documents of unequal relevance, the more relevant first."""
    for left, right in itertools.combinations(querylist, 2):
        if left.relevance_score != right.relevance_score:
            more, less = (left, right) if left.relevance_score > right.relevance_score else (right, left)
            yield np.array([1]), np.array(more.feature_vector), np.array(less.feature_vector)


def gen_list(querylist: list[Query]) -> Iterator[tuple[Any, Any]]:
    """Yield (relevances (n, 1), features (n, 46)) of all documents of a query."""
    yield (
        np.array([[one.relevance_score] for one in querylist]),
        np.array([one.feature_vector for one in querylist]),
    )


_FORMS = {"plain_txt": gen_plain_txt, "pointwise": gen_point, "pairwise": gen_pair, "listwise": gen_list}


def _reader(filepath: str, format: str = "pairwise", shuffle: bool = False, fill_missing: float = -1) -> Iterator[Any]:
    """Yield samples of a file of the data set; a query without a relevant document is left out.

    Args: format: "pairwise", "listwise", "pointwise" or "plain_txt".
    """
    if format not in _FORMS:
        raise UsageError(f"format {format!r} of mq2007 is unknown; the formats are {', '.join(_FORMS)}")
    for query in load_from_text(_find(filepath), shuffle, fill_missing):
        if any(one.relevance_score for one in query):
            yield from _FORMS[format](query)


def _find(filepath: str) -> Path:
    """Return the path of an unpacked file of the archive."""
    folder = Path(common.DATA_HOME) / "MQ2007"
    for base in (folder, folder / "MQ2007"):
        if (base / filepath).is_file():
            return base / filepath
    raise MissingInputError(f"there is no {folder / filepath}; unpack {fetch()} there, by `unrar x`")


train = functools.partial(_reader, "MQ2007/Fold1/train.txt")
test = functools.partial(_reader, "MQ2007/Fold1/test.txt")


def fetch() -> str:
    """Fetch the archive, and return its path."""
    return common.download(URL, "MQ2007", MD5)

"""Reads ratings of films in the layout of MovieLens 1M, for the recommendation demo."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_base.runtime.errors import DataError, MissingInputError
from paddle_cluster.prepare.dataset import Dataset, Source
from paddle_cluster.prepare.input.fetch import fetch
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.limits import Meter
from paddle_cluster.prepare.split import LabelledLine, hold_out, shuffle
from paddle_cluster.prepare.values import Settings

Record = list[str]

RATING = re.compile(r"[0-9]{1,18}::[0-9]{1,18}::[0-9]{1,18}::[0-9]{1,18}")
TITLE_WITH_YEAR = re.compile(r"^(.*)\(\d+\)$")
DIGITS = 18  # maximum number of digits of an id
CELL_BYTES = 24  # bytes of an element of the films x genres matrix, in the lists, meta.bin and meta.json together
ZERO, ONE = 0.0, 1.0  # the lists refer to these two objects; an element therefore needs no separate object
PICKLE_PROTOCOL = 2  # the newest pickle protocol that a script of 2017 can read


def read_movielens(settings: Settings, scratch: Path) -> Dataset:
    """Return ratings as lines `user::movie::score::time`, with meta.bin and meta.json as common files.

    Raises: MissingInputError: if ratings.dat, users.dat or movies.dat is missing.  DataError: if a line is malformed.
    """
    with fetch(settings, scratch) as data:
        folder = data.nearest("ratings.dat")
        if folder is None:
            raise MissingInputError(f"{data.path} has no ratings.dat; it needs the files of ml-1m")
        encoding = settings.data_encoding
        ratings = _records(data, folder / "ratings.dat", 4, encoding)
        users = list(_records(data, folder / "users.dat", 5, encoding))
        movies = list(_records(data, folder / "movies.dat", 3, encoding))
        return dataset_of_ratings(ratings, users, movies, settings, data.memory)


def dataset_of_ratings(
    ratings: Iterable[Record], users: Sequence[Record], movies: Sequence[Record], settings: Settings, memory: Meter
) -> Dataset:
    """Split ratings into training and test, and describe users and movies for the config and its provider.

    Args: memory: counts the bytes of the films x genres matrix.
    """
    meta = {"movie": _describe_movies(movies, memory), "user": _describe_users(users)}
    samples = [_rating(number, record, meta) for number, record in enumerate(ratings, start=1)]
    training, test = hold_out(shuffle(samples, settings.seed), settings.test_fraction)
    return Dataset(
        training,
        test,
        training_name="ratings.dat.train",
        test_name="ratings.dat.test",
        common={
            "meta.bin": pickle.dumps(meta, protocol=PICKLE_PROTOCOL),
            "meta.json": json.dumps(meta).encode(),
        },
        facts={"users": len(users), "movies": len(movies)},
    )


def _records(data: Input, place: PurePosixPath, fields: int, encoding: str) -> Iterator[Record]:
    if not data.has(place):
        raise MissingInputError(
            f"{data.path / place} does not exist; expected ratings.dat, users.dat and movies.dat as in ml-1m"
        )
    for number, line in enumerate(data.lines(str(place), encoding), start=1):
        if not line:
            continue
        record = line.split("::")
        if len(record) != fields:
            raise DataError(f"{place.name} line {number}: {len(record)} fields instead of {fields}, separated by '::'")
        data.hold(line, str(place))
        yield record


def _rating(number: int, record: Record, meta: Mapping[str, Mapping[Any, Any]]) -> LabelledLine:
    user, movie, score, _ = record
    line = "::".join(record)
    if not RATING.fullmatch(line):
        raise DataError(f"ratings.dat line {number}: not four whole numbers: {line[:100]!r}")
    for kind, key in (("user", int(user)), ("movie", int(movie))):
        if key not in meta[kind]:
            raise DataError(f"ratings.dat line {number}: {kind} {key} is not in {kind}s.dat")
    return LabelledLine(line, score)


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= DIGITS


def _describe_movies(movies: Sequence[Record], memory: Meter) -> dict[Any, Any]:
    """Describe each film by its title (a sequence of characters, without the year) and its genres."""
    titles = [TITLE_WITH_YEAR.sub(r"\1", record[1].strip()).strip() for record in movies]
    genres = [set(record[2].split("|")) for record in movies]
    characters = _number_values("".join(titles))
    kinds = _number_values(kind for names in genres for kind in names)
    memory.take(len(movies) * len(kinds) * CELL_BYTES, f"movies.dat, {len(movies)} films x {len(kinds)} genres")
    features = [
        {"type": "embedding", "name": "title", "dict": characters, "seq": "sequence"},
        {"type": "one_hot_dense", "name": "genres", "dict": kinds},
    ]
    values = [
        [[characters[c] for c in title], [ONE if kind in names else ZERO for kind in kinds]]
        for title, names in zip(titles, genres, strict=True)
    ]
    return _describe("movies.dat", [record[0] for record in movies], features, values)


def _describe_users(users: Sequence[Record]) -> dict[Any, Any]:
    """Describe each user by gender, age and occupation."""
    dictionaries = [_number_values(record[place] for record in users) for place in (1, 2, 3)]
    features = [
        {"type": "embedding", "name": name, "dict": numbers, "seq": "no_sequence"}
        for name, numbers in zip(("gender", "age", "occupation"), dictionaries, strict=True)
    ]
    values = [[numbers[record[place]] for place, numbers in enumerate(dictionaries, start=1)] for record in users]
    return _describe("users.dat", [record[0] for record in users], features, values)


def _number_values(values: Iterable[str]) -> dict[str, int]:
    """Return a number for each distinct value. Values that are numbers (ages, occupations) keep their order."""
    ordered = sorted(set(values), key=lambda value: (int(value) if _is_number(value) else -1, value))
    return {value: number for number, value in enumerate(ordered)}


def _describe(
    name: str, keys: Sequence[str], features: Sequence[dict[str, Any]], values: Sequence[Any]
) -> dict[Any, Any]:
    """Return the description that the demo's config and provider read: `__meta__` -> fields, and id -> values."""
    if not keys or not all(_is_number(key) for key in keys):
        raise DataError(f"{name}: it is empty, or it has an id that is not a whole number")
    ids = [int(key) for key in keys]
    id_field = {"type": "id", "min": min(ids), "max": max(ids), "count": len(set(ids)), "is_key": True}
    described: dict[Any, Any] = {
        "__meta__": {"raw_meta": [id_field, *features], "feature_map": list(range(1, len(features) + 1))}
    }
    described.update(zip(ids, values, strict=True))
    return described


MOVIELENS = Source("movielens", read_movielens, "input", test_fraction="1/10", example="recommendation")

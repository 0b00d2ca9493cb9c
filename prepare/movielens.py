"""Ratings of films in the layout of MovieLens 1M, for the recommendation demo."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prepare.dataset import Dataset
from prepare.errors import DataError, MissingInputError
from prepare.fetch import fetch
from prepare.settings import Settings
from prepare.split import Sample, hold_out, shuffle
from prepare.text import read_lines

Record = list[str]
Tables = tuple[list[Record], list[Record], list[Record]]

TITLE_WITH_YEAR = re.compile(r"^(.*)\(\d+\)$")
PICKLE_PROTOCOL = 2  # the newest that a script of 2017 reads


def read_movielens(settings: Settings, scratch: Path) -> Dataset:
    """Return ratings as lines `user::movie::score::time`, with meta.bin and meta.json beside them.

    Raises: MissingInputError: without ratings.dat, users.dat and movies.dat.  DataError: for lines of another shape.
    """
    path = fetch(settings, scratch)
    found = [*path.rglob("ratings.dat")] if path.is_dir() else []
    if not found:
        raise MissingInputError(f"{path} has no ratings.dat; it needs the files of ml-1m")
    folder = min(found, key=lambda file: (len(file.parts), file)).parent
    encoding = settings.data_encoding
    return dataset_of_ratings(
        (
            _records(folder / "ratings.dat", 4, encoding),
            _records(folder / "users.dat", 5, encoding),
            _records(folder / "movies.dat", 3, encoding),
        ),
        settings,
    )


def dataset_of_ratings(tables: Tables, settings: Settings) -> Dataset:
    """Divide ratings into training and test, and describe users and movies for the config and its provider."""
    ratings, users, movies = tables
    meta = {"movie": _describe_movies(movies), "user": _describe_users(users)}
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


def _records(path: Path, fields: int, encoding: str) -> list[Record]:
    if not path.is_file():
        raise MissingInputError(f"{path} does not exist; expected ratings.dat, users.dat and movies.dat as in ml-1m")
    records = []
    for number, line in enumerate(read_lines(path, encoding), start=1):
        if not line:
            continue
        record = line.split("::")
        if len(record) != fields:
            raise DataError(f"{path.name} line {number}: {len(record)} fields instead of {fields}, separated by '::'")
        records.append(record)
    return records


def _rating(number: int, record: Record, meta: Mapping[str, Mapping[Any, Any]]) -> Sample:
    user, movie, score, _ = record
    if not all(value.isascii() and value.isdigit() for value in record):
        raise DataError(f"ratings.dat line {number}: not four whole numbers: {'::'.join(record)!r}")
    for kind, key in (("user", int(user)), ("movie", int(movie))):
        if key not in meta[kind]:
            raise DataError(f"ratings.dat line {number}: {kind} {key} is not in {kind}s.dat")
    return Sample("::".join(record), score)


def _describe_movies(movies: Sequence[Record]) -> dict[Any, Any]:
    """Describe title (a sequence of characters, without the year) and genres (any number of them)."""
    titles = [TITLE_WITH_YEAR.sub(r"\1", record[1].strip()).strip() for record in movies]
    genres = [record[2].split("|") for record in movies]
    characters = _number_values("".join(titles))
    kinds = _number_values(kind for names in genres for kind in names)
    features = [
        {"type": "embedding", "name": "title", "dict": characters, "seq": "sequence"},
        {"type": "one_hot_dense", "name": "genres", "dict": kinds},
    ]
    values = [
        [[characters[c] for c in title], [float(kind in names) for kind in kinds]]
        for title, names in zip(titles, genres, strict=True)
    ]
    return _describe("movies.dat", [record[0] for record in movies], features, values)


def _describe_users(users: Sequence[Record]) -> dict[Any, Any]:
    """Describe gender, age and occupation, one value each."""
    dictionaries = [_number_values(record[place] for record in users) for place in (1, 2, 3)]
    features = [
        {"type": "embedding", "name": name, "dict": numbers, "seq": "no_sequence"}
        for name, numbers in zip(("gender", "age", "occupation"), dictionaries, strict=True)
    ]
    values = [[numbers[record[place]] for place, numbers in enumerate(dictionaries, start=1)] for record in users]
    return _describe("users.dat", [record[0] for record in users], features, values)


def _number_values(values: Iterable[str]) -> dict[str, int]:
    """Number the different values; those that are numbers keep their order (ages, occupations)."""
    ordered = sorted(set(values), key=lambda value: (int(value) if value.isdecimal() else -1, value))
    return {value: number for number, value in enumerate(ordered)}


def _describe(
    name: str, keys: Sequence[str], features: Sequence[dict[str, Any]], values: Sequence[Any]
) -> dict[Any, Any]:
    """Return {'__meta__': fields, id: values} as the demo's config and provider read it."""
    if not keys or not all(key.isascii() and key.isdigit() for key in keys):
        raise DataError(f"{name}: empty, or an id that is not a whole number")
    ids = [int(key) for key in keys]
    id_field = {"type": "id", "min": min(ids), "max": max(ids), "count": len(set(ids)), "is_key": True}
    described: dict[Any, Any] = {
        "__meta__": {"raw_meta": [id_field, *features], "feature_map": list(range(1, len(features) + 1))}
    }
    described.update(zip(ids, values, strict=True))
    return described

"""Generates data in the format of other sources, for trials and load tests. The seed determines the data."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from paddle_cluster.prepare.dataset import Dataset, Source
from paddle_cluster.prepare.limits import memory_meter
from paddle_cluster.prepare.sources.movielens import MOVIELENS, dataset_of_ratings
from paddle_cluster.prepare.sources.text import QUICK_START, dataset_of_text
from paddle_cluster.prepare.split import LabelledLine
from paddle_cluster.prepare.values import Settings

WORDS = 200
LONGEST = 20
LEANING = 0.75  # each label has half of the vocabulary; this fraction of a text's words is from the half of its label
GENRES = ("Action", "Comedy", "Drama", "Romance")
AGES = (1, 18, 25, 35, 45, 50, 56)


def read_synthetic(settings: Settings, scratch: Path) -> Dataset:
    """Return SYNTHETIC_ROWS samples of text (with two labels, which depend on the words) or of ratings."""
    draw = Random(settings.seed)
    memory = memory_meter(sys.maxsize)  # no limit, because the user chose SYNTHETIC_ROWS
    if settings.synthetic_shape == "text":
        return dataset_of_text([_text(draw) for _ in range(settings.synthetic_rows)], settings, memory)
    return dataset_of_ratings(*_ratings(draw, settings.synthetic_rows), settings, memory)


def _below(draw: Random, limit: int) -> int:
    """Draw a whole number in [0, limit) by random(), which gives equal sequences in all Python versions."""
    return int(draw.random() * limit)


def _text(draw: Random) -> LabelledLine:
    label = _below(draw, 2)
    words = []
    for _ in range(1 + _below(draw, LONGEST)):
        half = label if draw.random() < LEANING else 1 - label
        words.append(f"w{half * WORDS // 2 + _below(draw, WORDS // 2)}")
    return LabelledLine(" ".join(words), str(label))


def _ratings(draw: Random, rows: int) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Generate the tables of ratings, users and films; a score is higher if the user prefers the film's genre."""
    users, movies = max(4, rows // 50), max(4, rows // 100)
    user_table = [
        [str(i), "FM"[_below(draw, 2)], str(AGES[_below(draw, len(AGES))]), str(_below(draw, 21)), "00000"]
        for i in range(1, users + 1)
    ]
    movie_table = [
        [str(i), f"Film {i} ({1980 + i % 20})", GENRES[_below(draw, len(GENRES))]] for i in range(1, movies + 1)
    ]
    ratings = []
    for row in range(rows):
        user, movie = _below(draw, users), _below(draw, movies)
        likes = user % len(GENRES) == GENRES.index(movie_table[movie][2])
        score = (4 if likes else 2) + _below(draw, 2)
        ratings.append([user_table[user][0], movie_table[movie][0], str(score), str(960_000_000 + row)])
    return ratings, user_table, movie_table


SYNTHETIC = Source(
    "synthetic",
    read_synthetic,
    "nothing",
    shapes={"text": QUICK_START.example, "ratings": MOVIELENS.example},
)

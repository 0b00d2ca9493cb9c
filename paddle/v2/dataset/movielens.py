"""MovieLens 1M: ratings of films.

A sample is [user, gender (0 male, 1 female), age (index in `age_table`), job, film, [ids of categories], [ids of the
words of the title], [rating * 2 - 5]]. Ids of words and categories follow the alphabet; v0.10's followed a hash.
"""

from __future__ import annotations

import functools
import random
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from paddle.v2.archives import read_lines
from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError

URL = "http://files.grouplens.org/datasets/movielens/ml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"
age_table = [1, 18, 25, 35, 45, 50, 56]


class MovieInfo:
    """A film: its id, its categories and its title."""

    def __init__(self, index: str, categories: list[str], title: str) -> None:
        self.index, self.categories, self.title = int(index), categories, title

    def value(self) -> list[Any]:
        """Return [id, [ids of categories], [ids of the words of the title]]."""
        tables = _tables()
        words = [tables.words[word.lower()] for word in self.title.split()]
        return [self.index, [tables.categories[one] for one in self.categories], words]

    def __repr__(self) -> str:
        return f"<MovieInfo id({self.index}), title({self.title}), categories({self.categories})>"


class UserInfo:
    """A user: id, gender, age and job."""

    def __init__(self, index: str, gender: str, age: str, job_id: str) -> None:
        self.index, self.is_male = int(index), gender == "M"
        self.age, self.job_id = age_table.index(int(age)), int(job_id)

    def value(self) -> list[int]:
        """Return [id, 0 male or 1 female, index of the age, job]."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]

    def __repr__(self) -> str:
        gender, age = "M" if self.is_male else "F", age_table[self.age]
        return f"<UserInfo id({self.index}), gender({gender}), age({age}), job({self.job_id})>"


@dataclass(frozen=True)
class _Tables:
    movies: dict[int, MovieInfo]
    users: dict[int, UserInfo]
    words: dict[str, int]
    categories: dict[str, int]


def _rows(name: str) -> Iterator[list[str]]:
    path = common.download(URL, "movielens", MD5)
    try:
        with zipfile.ZipFile(path) as package, package.open(f"ml-1m/{name}") as file:
            for line in read_lines(name, file):
                yield line.split("::")
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it to fetch it again") from error


def _tables() -> _Tables:
    return _read_tables(common.download(URL, "movielens", MD5))


@functools.cache  # of one path: a program may change the cache
def _read_tables(path: str) -> _Tables:
    year = re.compile(r"^(.*)\((\d+)\)$")
    try:
        movies = {}
        for index, title, categories in _rows("movies.dat"):
            found = year.match(title)
            name = found.group(1) if found else title
            movies[int(index)] = MovieInfo(index, categories.split("|"), name)
        users = {int(row[0]): UserInfo(*row[:4]) for row in _rows("users.dat")}
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} has a damaged row ({error}); remove it to fetch it again") from error
    words = _number(word.lower() for movie in movies.values() for word in movie.title.split())
    return _Tables(movies, users, words, _number(one for movie in movies.values() for one in movie.categories))


def _number(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(set(names)))}


def _reader(is_test: bool, rand_seed: int = 0, test_ratio: float = 0.1) -> common.Reader:
    def reader() -> Iterator[list[Any]]:
        tables = _tables()
        draws = random.Random(rand_seed)
        for user, movie, rating, _ in _rows("ratings.dat"):
            if (draws.random() < test_ratio) == is_test:
                score = float(rating) * 2 - 5.0
                yield [*tables.users[int(user)].value(), *tables.movies[int(movie)].value(), [score]]

    return reader


def train(rand_seed: int = 0, test_ratio: float = 0.1) -> common.Reader:
    """Return the reader of the training samples: those for which a number drawn is at least `test_ratio`."""
    return _reader(False, rand_seed, test_ratio)


def test(rand_seed: int = 0, test_ratio: float = 0.1) -> common.Reader:
    """Return the reader of the test samples, which `train` of the same arguments leaves out."""
    return _reader(True, rand_seed, test_ratio)


def get_movie_title_dict() -> dict[str, int]:
    """Return {word of a title: id}."""
    return _tables().words


def movie_categories() -> dict[str, int]:
    """Return {category: id}."""
    return _tables().categories


def max_movie_id() -> int:
    """Return the largest id of a film."""
    return max(_tables().movies)


def max_user_id() -> int:
    """Return the largest id of a user."""
    return max(_tables().users)


def max_job_id() -> int:
    """Return the largest id of a job."""
    return max(user.job_id for user in _tables().users.values())


def user_info() -> dict[int, UserInfo]:
    """Return {id: user}."""
    return _tables().users


def movie_info() -> dict[int, MovieInfo]:
    """Return {id: film}."""
    return _tables().movies


def fetch() -> None:
    """Fetch the file."""
    common.download(URL, "movielens", MD5)


def convert(path: str) -> None:
    """Write the samples as RecordIO files."""
    common.convert(path, train(), 1000, "movielens_train")
    common.convert(path, test(), 1000, "movielens_test")

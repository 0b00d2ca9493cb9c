"""Made-up samples in the form of a data set, which a network can learn: for trying a program without a download."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from paddle.v2.dataset import common
from paddle.v2.dataset.imikolov import DataType
from paddle_base.runtime.errors import UsageError

_TRAINING, _TEST = 1024, 256  # number of samples
_WORDS = 100  # words of a made-up language
_DICT = {f"w{number}": number for number in range(_WORDS - 3)} | {
    "<s>": _WORDS - 3,
    "<e>": _WORDS - 2,
    "<unk>": _WORDS - 1,
}
_CATEGORIES, _TITLE_WORDS, _MOVIES, _USERS, _JOBS, _VERBS = 18, 300, 200, 100, 20, 50

Draws = np.random.Generator
Make = Callable[[Draws], Any]


def synthetic(name: str) -> SimpleNamespace:
    """Return an object with the functions of `paddle.dataset.<name>`, whose readers give made-up samples.

    The samples are the same each time. Their labels follow a rule, so that costs fall.
    Raises: UsageError: there is no such data set.
    """
    if name not in _SETS:
        raise UsageError(f"there is no made-up data set {name!r}; there are {', '.join(sorted(_SETS))}")
    return _SETS[name]()


def _reader(make: Make, count: int, seed: int) -> common.Samples:
    def reader() -> Iterator[Any]:
        draws = np.random.default_rng(seed)
        return (make(draws) for _ in range(count))

    return common.Samples(reader)


def _parts(make: Make, train: str = "train", test: str = "test") -> dict[str, Callable[..., common.Samples]]:
    """Return the functions of the two parts; what a program hands them, such as a dictionary, changes nothing."""
    return {
        train: lambda *_, **__: _reader(make, _TRAINING, 1),
        test: lambda *_, **__: _reader(make, _TEST, 2),
    }


def _image(size: int, classes: int, least: float) -> Make:
    """Return a maker of (pixels in [`least`, 1], class): noise over the picture of the class."""

    @functools.cache
    def picture(label: int) -> Any:
        return np.random.default_rng(label).uniform(least, 1, size)

    def make(draws: Draws) -> tuple[Any, int]:
        label = int(draws.integers(classes))
        return (0.5 * picture(label) + 0.5 * draws.uniform(least, 1, size)).astype(np.float32), label

    return make


def _house(draws: Draws) -> tuple[Any, Any]:
    features = draws.uniform(-0.5, 0.5, 13)
    return features, np.array([22.5 + features @ np.arange(-6.0, 7.0)])


def _review(draws: Draws) -> tuple[list[int], int]:
    """Return (words, label): each label has its half of the words more often."""
    label = int(draws.integers(2))
    half = draws.integers(_WORDS // 2, size=draws.integers(5, 40)) + label * (_WORDS // 2)
    words = np.where(draws.random(len(half)) < 0.7, half, draws.integers(_WORDS, size=len(half)))
    return [int(word) for word in words], label


def _sentence(draws: Draws) -> list[int]:
    """Return words each of which follows from the one before it."""
    first = int(draws.integers(_WORDS))
    return [(first + 7 * place) % _WORDS for place in range(int(draws.integers(6, 15)))]


def _rating(draws: Draws) -> list[Any]:
    user, movie = int(draws.integers(1, _USERS)), int(draws.integers(1, _MOVIES))
    kinds = sorted({int(one) for one in draws.integers(_CATEGORIES, size=2)})
    title = [int(one) for one in draws.integers(_TITLE_WORDS, size=draws.integers(1, 6))]
    score = 5 if user % 2 == movie % 2 else 1  # each user likes a half of the films
    return [user, user % 2, user % 7, user % _JOBS, movie, kinds, title, [score * 2.0 - 5]]


def _roles(draws: Draws) -> tuple[list[int], ...]:
    words = _sentence(draws)
    verb = len(words) // 2
    around = [words[place] if 0 <= place < len(words) else 0 for place in range(verb - 2, verb + 3)]
    marks = [int(abs(place - verb) < 3) for place in range(len(words))]
    labels = [0 if place < verb else 1 if place == verb else 2 for place in range(len(words))]
    return (words, *([word] * len(words) for word in around), [words[verb] % _VERBS] * len(words), marks, labels)


def _translation(dict_size: int) -> Make:
    """Return a maker of (source, target): a sentence of ids from 3 on, and the same backwards."""

    def make(draws: Draws) -> tuple[list[int], list[int], list[int]]:
        words = [int(one) for one in draws.integers(3, dict_size, size=draws.integers(2, 8))]
        return [0, *words, 1], [0, *words[::-1]], [*words[::-1], 1]

    return make


def _imikolov() -> SimpleNamespace:
    def part(count: int, seed: int) -> Callable[..., common.Samples]:
        def get(word_idx: Any = None, n: int = 5, data_type: int = DataType.NGRAM) -> common.Samples:
            def make(draws: Draws) -> Any:
                words = _sentence(draws)
                if data_type == DataType.NGRAM:
                    return tuple((words[0] + 7 * place) % _WORDS for place in range(n))
                return [_DICT["<s>"], *words], [*words, _DICT["<e>"]]

            return _reader(make, count, seed)

        return get

    return SimpleNamespace(
        DataType=DataType, build_dict=lambda *_, **__: dict(_DICT), train=part(_TRAINING, 1), test=part(_TEST, 2)
    )


def _movielens() -> SimpleNamespace:
    return SimpleNamespace(
        **_parts(_rating),
        age_table=[1, 18, 25, 35, 45, 50, 56],
        get_movie_title_dict=lambda: {f"t{number}": number for number in range(_TITLE_WORDS)},
        movie_categories=lambda: {f"c{number}": number for number in range(_CATEGORIES)},
        max_movie_id=lambda: _MOVIES,
        max_user_id=lambda: _USERS,
        max_job_id=lambda: _JOBS,
    )


def _conll05() -> SimpleNamespace:
    dicts = (dict(_DICT), {f"v{number}": number for number in range(_VERBS)}, {"B-A0": 0, "B-V": 1, "O": 2})
    return SimpleNamespace(get_dict=lambda: dicts, test=_parts(_roles)["test"], train=_parts(_roles)["train"])


def _wmt14() -> SimpleNamespace:
    def part(count: int, seed: int) -> Callable[[int], common.Samples]:
        return lambda dict_size: _reader(_translation(dict_size), count, seed)

    def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
        words = ["<s>", "<e>", "<unk>", *(f"w{number}" for number in range(3, dict_size))]
        one = dict(enumerate(words)) if reverse else {word: number for number, word in enumerate(words)}
        return one, dict(one)

    return SimpleNamespace(train=part(_TRAINING, 1), test=part(_TEST, 2), gen=part(_TEST, 3), get_dict=get_dict)


_SETS: dict[str, Callable[[], SimpleNamespace]] = {
    "cifar": lambda: SimpleNamespace(
        **_parts(_image(3072, 10, 0), "train10", "test10"), **_parts(_image(3072, 100, 0), "train100", "test100")
    ),
    "conll05": _conll05,
    "flowers": lambda: SimpleNamespace(
        **_parts(_image(3 * 224 * 224, 102, -1)), valid=_parts(_image(3 * 224 * 224, 102, -1))["test"]
    ),
    "imdb": lambda: SimpleNamespace(**_parts(_review), word_dict=lambda: dict(_DICT)),
    "imikolov": _imikolov,
    "mnist": lambda: SimpleNamespace(**_parts(_image(784, 10, -1))),
    "movielens": _movielens,
    "sentiment": lambda: SimpleNamespace(**_parts(_review), get_word_dict=lambda: list(_DICT.items())),
    "uci_housing": lambda: SimpleNamespace(**_parts(_house)),
    "wmt14": _wmt14,
}

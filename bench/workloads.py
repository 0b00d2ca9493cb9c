"""Make the directories in which bench/train.py and bench/nodes.py train: copies of the examples with synthetic data."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAIN_LIST = "data/train.list"


@dataclass(frozen=True)
class Sizes:
    """The sizes of the synthetic data; the defaults are those of the published figures."""

    batches: int = 60
    users: int = 6040
    films: int = 3952
    title_words: int = 4758  # number of different words in titles; the network then has 4.97 million parameters
    vocabulary: int = 30000
    text_length: int = 80


@dataclass(frozen=True)
class Workload:
    """One of the timed trainings. `pass_factor`: factor of the number of passes, for a workload with short passes."""

    name: str
    example: str
    config: str
    batch_size: int
    pass_factor: int = 1

    def count_samples(self, directory: Path) -> int:
        """Returns the number of samples that `prepare` has written."""
        text = (directory / (directory / TRAIN_LIST).read_text(encoding="utf-8").strip()).read_text(encoding="utf-8")
        return len(text.splitlines())


WORKLOADS = (
    Workload("recommendation", "recommendation", "trainer_config.py", 1600),
    Workload("lr", "quick_start", "trainer_config.lr.py", 128, pass_factor=10),
    Workload("cnn", "quick_start", "trainer_config.cnn.py", 128),
    Workload("lstm", "quick_start", "trainer_config.lstm.py", 128),
)


def prepare(workload: Workload, directory: Path, sizes: Sizes, *, without_dropout: bool = False) -> Path:
    """Copies the example and writes data of `sizes.batches` batches a pass; returns the directory."""
    shutil.copytree(EXAMPLES / workload.example, directory, ignore=shutil.ignore_patterns("data", "output", "__*"))
    (directory / "data").mkdir()
    samples = sizes.batches * workload.batch_size
    write = write_ratings if workload.example == "recommendation" else write_texts
    write(directory, samples, sizes, random.Random(7))
    # the time of a test after each pass would count as time of training
    changes = {'return "data/test.list" if': "return None if", 'test_list="data/test.list"': "test_list=None"}
    if without_dropout:
        changes["drop_rate=0.25"] = "drop_rate=0"
    for config in directory.glob("*.py"):
        text = config.read_text(encoding="utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        config.write_text(text, encoding="utf-8")
    return directory


def write_lines(path: Path, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def falling(count: int) -> list[float]:
    """Returns cumulative weights of a distribution similar to Zipf's law."""
    return list(itertools.accumulate(1 / (rank + 3) for rank in range(count)))


# ----- Recommendation


def field(kind: str, name: str, count: int, **more: str) -> dict:
    return {"type": kind, "name": name, "dict": {str(number): number for number in range(count)}, **more}


def key(count: int) -> dict:
    return {"type": "id", "is_key": True, "min": 1, "max": count, "count": count}


def write_ratings(directory: Path, samples: int, sizes: Sizes, draw: random.Random) -> None:
    """Writes films and users, and ratings in which some films are much more popular than others."""
    words, weights = range(sizes.title_words), falling(sizes.title_words)
    film_fields = [key(sizes.films), field("embedding", "title", sizes.title_words, seq="sequence")]
    film_fields += [field("one_hot_dense", "genres", 18)]
    user_fields = [key(sizes.users)]
    user_fields += [
        field("embedding", *one, seq="no_sequence") for one in (("gender", 2), ("age", 7), ("occupation", 21))
    ]
    films: dict = {"__meta__": {"raw_meta": film_fields}}
    for film in range(1, sizes.films + 1):
        genres = [0.0] * 18
        for genre in draw.sample(range(18), draw.randint(1, 3)):
            genres[genre] = 1.0
        films[str(film)] = [draw.choices(words, cum_weights=weights, k=draw.randint(1, 7)), genres]
    users: dict = {"__meta__": {"raw_meta": user_fields}}
    for user in range(1, sizes.users + 1):
        users[str(user)] = [draw.randrange(2), draw.randrange(7), draw.randrange(21)]
    with (directory / "data/meta.json").open("w", encoding="utf-8") as file:
        json.dump({"movie": films, "user": users}, file)

    def ratings() -> Iterator[str]:
        for number in range(samples):
            film = min(sizes.films, int(draw.expovariate(4 / sizes.films)) + 1)
            yield f"{draw.randint(1, sizes.users)}::{film}::{draw.randint(1, 5)}::{number}"

    write_lines(directory / "data/ratings.train", ratings())
    (directory / TRAIN_LIST).write_text("data/ratings.train\n", encoding="utf-8")


# ----- Text


def text_lengths(samples: int, mean: int, draw: random.Random) -> Sequence[int]:
    """Returns lengths whose logarithm is normal."""
    return [max(3, int(draw.lognormvariate(math.log(mean) - 0.18, 0.6))) for _ in range(samples)]


def write_texts(directory: Path, samples: int, sizes: Sizes, draw: random.Random) -> None:
    """Writes texts of words that follow Zipf's law, and the dictionary, whose first word stands for unknown words."""
    words = [f"w{number:05d}" for number in range(1, sizes.vocabulary)]
    weights = falling(len(words))
    write_lines(directory / "data/dict.txt", (f"{word}\t1" for word in ["unk", *words]))
    lengths = text_lengths(samples, sizes.text_length, draw)
    texts = (
        f"{draw.randrange(2)}\t{' '.join(draw.choices(words, cum_weights=weights, k=length))}" for length in lengths
    )
    write_lines(directory / "data/train.txt", texts)
    (directory / TRAIN_LIST).write_text("data/train.txt\n", encoding="utf-8")

"""Reviews of films of NLTK's corpus `movie_reviews`. A sample is (ids of the words, 0 negative or 1 positive)."""

from __future__ import annotations

import functools
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from paddle.v2.archives import read_all
from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError

URL = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/movie_reviews.zip"
MD5 = None  # NLTK publishes new editions
NUM_TRAINING_INSTANCES = 1600
NUM_TOTAL_INSTANCES = 2000

_FOLDER = "corpora"
_WORD = re.compile(r"\w+|[^\w\s]+")  # the rule of the corpus: words, and runs of other signs


def _texts(folder: str) -> dict[str, list[list[str]]]:
    """Return {"neg" or "pos": words of each review}, files in the order of their names."""
    unpacked = Path(folder) / "movie_reviews"
    texts: dict[str, list[list[str]]] = {}
    for kind in ("neg", "pos"):
        if unpacked.is_dir():
            found = [path.read_bytes() for path in sorted((unpacked / kind).glob("*.txt"))]
        else:
            found = list(_packed(kind))
        texts[kind] = [_WORD.findall(text.decode("latin-1")) for text in found]
    return texts


def _packed(kind: str) -> Iterator[bytes]:
    path = common.download(URL, _FOLDER, MD5)
    try:
        with zipfile.ZipFile(path) as package:
            for name in sorted(package.namelist()):
                if f"/{kind}/" in name and name.endswith(".txt"):
                    with package.open(name) as file:
                        yield read_all(name, file)
    except (zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it to fetch it again") from error


@functools.cache
def _load(folder: str) -> tuple[list[tuple[str, int]], list[tuple[list[int], int]]]:
    texts = _texts(folder)
    counts = Counter(word for kind in texts.values() for words in kind for word in words)
    ids = {word: number for number, (word, _) in enumerate(counts.most_common())}
    pairs = zip(texts["neg"], texts["pos"])  # noqa: B905 - in turn
    samples = [([ids[word] for word in words], label) for pair in pairs for label, words in enumerate(pair)]
    return list(ids.items()), samples


def _loaded() -> tuple[list[tuple[str, int]], list[tuple[list[int], int]]]:
    return _load(str(Path(common.DATA_HOME) / _FOLDER))


def get_word_dict() -> list[tuple[str, int]]:
    """Return (word, id) of all words, the most frequent first."""
    return _loaded()[0]


def train() -> common.Samples:
    """Return the first 1,600 samples, negative and positive in turn: a reader, and an iterator."""
    return common.Samples(lambda: _loaded()[1][:NUM_TRAINING_INSTANCES])


def test() -> common.Samples:
    """Return the last 400 samples: a reader, and an iterator."""
    return common.Samples(lambda: _loaded()[1][NUM_TRAINING_INSTANCES:])


def fetch() -> None:
    """Fetch the file."""
    common.download(URL, _FOLDER, MD5)


def convert(path: str) -> None:
    """Write the samples as RecordIO files."""
    common.convert(path, train(), 1000, "sentiment_train")
    common.convert(path, test(), 1000, "sentiment_test")

"""Reviews of films. A sample is (ids of the words, 0 for a positive review or 1 for a negative one)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator

from paddle.v2.archives import members, open_tar, read_all
from paddle.v2.dataset import common

URL = "http://ai.stanford.edu/%7Eamaas/data/sentiment/aclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"

_PUNCTUATION = string.punctuation.encode()


def tokenize(pattern: re.Pattern[str]) -> Iterator[list[str]]:
    """Yield the words of each file whose name matches: in lower case, without punctuation."""
    with open_tar(common.download(URL, "imdb", MD5)) as tar:
        for name, content in members(tar, pattern.match):
            text = read_all(name, content).rstrip(b"\n\r").translate(None, _PUNCTUATION).lower()
            yield [word.decode("utf-8", "surrogateescape") for word in text.split()]


def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[str, int]:
    """Return {word: id} of the words that occur more than `cutoff` times, the most frequent first, and `<unk>`."""
    counts = Counter(word for words in tokenize(pattern) for word in words)
    frequent = sorted((-count, word) for word, count in counts.items() if count > cutoff)
    ids = {word: number for number, (_, word) in enumerate(frequent)}
    ids["<unk>"] = len(ids)
    return ids


def reader_creator(
    pos_pattern: re.Pattern[str], neg_pattern: re.Pattern[str], word_idx: dict[str, int]
) -> common.Samples:
    """Return the samples, positive and negative in turn; when one kind has ended, the rest of the other."""
    unknown = word_idx["<unk>"]

    def reader() -> Iterator[tuple[list[int], int]]:
        kinds = [(tokenize(pos_pattern), 0), (tokenize(neg_pattern), 1)]
        while kinds:
            words, label = kinds.pop(0)
            if (review := next(words, None)) is not None:
                yield [word_idx.get(word, unknown) for word in review], label
                kinds.append((words, label))

    return common.Samples(reader)


def train(word_idx: dict[str, int]) -> common.Samples:
    """Return the 25,000 training samples: a reader, and an iterator."""
    return reader_creator(
        re.compile(r"aclImdb/train/pos/.*\.txt$"), re.compile(r"aclImdb/train/neg/.*\.txt$"), word_idx
    )


def test(word_idx: dict[str, int]) -> common.Samples:
    """Return the 25,000 test samples: a reader, and an iterator."""
    return reader_creator(re.compile(r"aclImdb/test/pos/.*\.txt$"), re.compile(r"aclImdb/test/neg/.*\.txt$"), word_idx)


def word_dict() -> dict[str, int]:
    """Return {word: id} of the words that occur more than 150 times in all reviews."""
    return build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), 150)


def fetch() -> None:
    """Fetch the file."""
    common.download(URL, "imdb", MD5)


def convert(path: str) -> None:
    """Write the samples as RecordIO files."""
    ids = word_dict()
    common.convert(path, train(ids), 1000, "imdb_train")
    common.convert(path, test(ids), 1000, "imdb_test")

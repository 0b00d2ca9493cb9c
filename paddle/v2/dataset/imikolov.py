"""The Penn Treebank in Mikolov's form. A sample is a tuple of n ids of words, or (source, target) of a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from paddle.v2.archives import member, open_tar, read_lines
from paddle.v2.dataset import common

URL = "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"

_TRAIN = "./simple-examples/data/ptb.train.txt"
_TEST = "./simple-examples/data/ptb.valid.txt"


class DataType:
    """The two forms of samples."""

    NGRAM = 1
    SEQ = 2


def _sentences(filename: str) -> Iterator[list[str]]:
    with open_tar(common.download(URL, "imikolov", MD5)) as tar:
        for line in read_lines(filename, member(tar, filename)):
            yield line.split()


def build_dict(min_word_freq: int = 50) -> dict[str, int]:
    """Return {word: id} of the words that occur more than `min_word_freq` times, and `<unk>`."""
    counts: Counter[str] = Counter()
    for filename in (_TRAIN, _TEST):
        for sentence in _sentences(filename):
            counts.update(["<s>", *sentence, "<e>"])
    del counts["<unk>"]  # the corpus has the word; it gets the last id
    frequent = sorted((-count, word) for word, count in counts.items() if count > min_word_freq)
    ids = {word: number for number, (_, word) in enumerate(frequent)}
    ids["<unk>"] = len(ids)
    return ids


def reader_creator(filename: str, word_idx: dict[str, int], n: int, data_type: int) -> common.Reader:
    """Return a reader of a member of the archive; see `train`."""
    unknown = word_idx["<unk>"]

    def reader() -> Iterator[tuple[Any, ...]]:
        for sentence in _sentences(filename):
            if data_type == DataType.NGRAM:
                assert n > -1, "Invalid gram length"
                ids = [word_idx.get(word, unknown) for word in ["<s>", *sentence, "<e>"]]
                for end in range(n, len(ids) + 1):
                    yield tuple(ids[end - n : end])
            elif data_type == DataType.SEQ:
                ids = [word_idx.get(word, unknown) for word in sentence]
                if n <= 0 or len(ids) < n:
                    yield [word_idx["<s>"], *ids], [*ids, word_idx["<e>"]]
            else:
                assert False, "Unknown data type"  # noqa: B011 - v0.11's error

    return reader


def train(word_idx: dict[str, int], n: int, data_type: int = DataType.NGRAM) -> common.Reader:
    """Return the reader of the training samples.

    Args: n: words of a sample, or for `DataType.SEQ` the maximum length of a sequence (0: any).
    """
    return reader_creator(_TRAIN, word_idx, n, data_type)


def test(word_idx: dict[str, int], n: int, data_type: int = DataType.NGRAM) -> common.Reader:
    """Return the reader of the test samples; see `train`."""
    return reader_creator(_TEST, word_idx, n, data_type)


def fetch() -> None:
    """Fetch the file."""
    common.download(URL, "imikolov", MD5)


def convert(path: str) -> None:
    """Write the samples of five words as RecordIO files."""
    ids = build_dict()
    common.convert(path, train(ids, 5), 1000, "imikolov_train")
    common.convert(path, test(ids, 5), 1000, "imikolov_test")

"""WMT 14, French to English, small: a sample is (source ids, target ids after `<s>`, target ids up to `<e>`)."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from typing import IO, Any, cast

from paddle.v2.archives import members, open_tar, read_lines
from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError

URL_DEV_TEST = "http://www-lium.univ-lemans.fr/~schwenk/cslm_joint_paper/data/dev+test.tgz"
MD5_DEV_TEST = "7d7897317ddd8ba0ae5c5fa7248d3ff5"
URL_TRAIN = "http://paddlepaddle.cdn.bcebos.com/demo/wmt_shrinked_data/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"
URL_MODEL = "http://paddlepaddle.bj.bcebos.com/demo/wmt_14/wmt14_model.tar.gz"
MD5_MODEL = "0cb4a5366189b6acba876491c8724fa3"

START, END, UNK = "<s>", "<e>", "<unk>"
UNK_IDX = 2

_MOST_WORDS = 80  # longer sentences are left out


def _read_dicts(tar_file: str, dict_size: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the first `dict_size` words of the source language and of the target language, with their ids."""
    with open_tar(tar_file) as tar:
        dicts = {
            name[-len("src.dict") :]: {
                word: number for number, word in enumerate(itertools.islice(read_lines(name, content), dict_size))
            }
            for name, content in members(tar, lambda found: found.endswith(("src.dict", "trg.dict")))
        }
    if len(dicts) != 2:
        raise DataError(f"{tar_file} has no src.dict or no trg.dict")
    return dicts["src.dict"], dicts["trg.dict"]


def reader_creator(tar_file: str, file_name: str, dict_size: int) -> common.Reader:
    """Return a reader of the members whose names end in `file_name`: lines of a source and a target by a tab."""

    def reader() -> Iterator[tuple[list[int], list[int], list[int]]]:
        source_dict, target_dict = _read_dicts(tar_file, dict_size)
        with open_tar(tar_file) as tar:
            for name, content in members(tar, lambda found: found.endswith(file_name)):
                for line in read_lines(name, content):
                    texts = line.split("\t")
                    if len(texts) != 2:
                        continue
                    source = [source_dict.get(word, UNK_IDX) for word in [START, *texts[0].split(), END]]
                    target = [target_dict.get(word, UNK_IDX) for word in texts[1].split()]
                    if max(len(source), len(target)) <= _MOST_WORDS:
                        yield source, [target_dict[START], *target], [*target, target_dict[END]]

    return reader


def _archive() -> str:
    return common.download(URL_TRAIN, "wmt14", MD5_TRAIN)


def train(dict_size: int) -> common.Reader:
    """Return the reader of the training samples, with the first `dict_size` words of both languages."""
    return reader_creator(_archive(), "train/train", dict_size)


def test(dict_size: int) -> common.Reader:
    """Return the reader of the test samples."""
    return reader_creator(_archive(), "test/test", dict_size)


def gen(dict_size: int) -> common.Reader:
    """Return the reader of the samples to translate."""
    return reader_creator(_archive(), "gen/gen", dict_size)


def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return {id: word} of the source and of the target language, or with `reverse=False` {word: id}."""
    source, target = _read_dicts(_archive(), dict_size)
    if not reverse:
        return source, target
    return {number: word for word, number in source.items()}, {number: word for word, number in target.items()}


def model() -> Any:
    """Return the Parameters of the Book's trained model."""
    from paddle.v2.parameters import Parameters  # the data sets themselves need no network

    with gzip.open(common.download(URL_MODEL, "wmt14", MD5_MODEL)) as file:
        return Parameters.from_tar(cast(IO[bytes], file))


def fetch() -> None:
    """Fetch the files."""
    _archive()
    common.download(URL_MODEL, "wmt14", MD5_MODEL)


def convert(path: str) -> None:
    """Write the samples with 30,000 words as RecordIO files."""
    common.convert(path, train(30000), 1000, "wmt14_train")
    common.convert(path, test(30000), 1000, "wmt14_test")

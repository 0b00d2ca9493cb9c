"""CoNLL 2005: semantic roles. Only the test part is free.

A sample is nine lists of a sentence's length: words, the words two and one before the verb, the verb itself, one and
two after it, predicate, marks of these five places, labels (B-, I-, O).
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from paddle.v2.archives import member, open_tar, read_lines
from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError

DATA_URL = "http://www.cs.upc.edu/~srlconll/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
_DICTS = "http://paddlepaddle.bj.bcebos.com/demo/srl_dict_and_embedding/"
WORDDICT_URL, WORDDICT_MD5 = _DICTS + "wordDict.txt", "ea7fb7d4c75cc6254716f0177a506baa"
VERBDICT_URL, VERBDICT_MD5 = _DICTS + "verbDict.txt", "0d2977293bbb6cbefab5b0f97db1e77c"
TRGDICT_URL, TRGDICT_MD5 = _DICTS + "targetDict.txt", "d8c7f03ceb5fc2e5a0fa7503a4353751"
EMB_URL, EMB_MD5 = _DICTS + "emb", "bf436eb0faa1f6f9103017f8be57cdb7"
UNK_IDX = 0

_FOLDER = "conll05st-release/test.wsj"
Sentence = tuple[list[str], str, list[str]]  # words, predicate, labels


def load_dict(filename: str) -> dict[str, int]:
    """Return {line of a text file: its number from 0}."""
    with Path(filename).open("rb") as file:
        return {line: number for number, line in enumerate(read_lines(filename, file))}


def corpus_reader(data_path: str, words_name: str, props_name: str) -> Callable[[], Iterator[Sentence]]:
    """Return a reader of (words, predicate, labels): a sample for each verb of a sentence."""

    def reader() -> Iterator[Sentence]:
        with (
            open_tar(data_path) as one,
            open_tar(data_path) as other,
            gzip.open(member(one, words_name)) as words_file,
            gzip.open(member(other, props_name)) as props_file,
        ):
            words: list[str] = []
            columns: list[list[str]] = []
            lines = zip(read_lines(words_name, words_file), read_lines(props_name, props_file))  # noqa: B905
            for word, props in lines:
                if props:
                    words.append(word)
                    columns.append(props.split())
                    continue
                yield from _samples(words, columns)
                words, columns = [], []

    return reader


def _samples(words: list[str], rows: list[list[str]]) -> Iterator[Sentence]:
    """Yield the samples of a sentence: the first column has its verbs, each other one the roles of a verb."""
    if not rows:
        return
    verbs, *roles = zip(*rows, strict=True)
    predicates = [verb for verb in verbs if verb != "-"]
    for predicate, tags in zip(predicates, roles, strict=True):
        yield words, predicate, list(_labels(tags))


def _labels(tags: Iterable[str]) -> Iterator[str]:
    """Yield B-, I- and O of tags such as `(A0*`, `*`, `*)` and `(V*)`."""
    role, is_inside = "O", False
    for tag in tags:
        if "(" in tag:
            role = tag[1 : tag.index("*")]
            is_inside = ")" not in tag
            yield f"B-{role}"
        elif tag == "*" and not is_inside:
            yield "O"
        elif tag in ("*", "*)"):
            is_inside = tag == "*"
            yield f"I-{role}"
        else:
            raise DataError(f"Unexpected label: {tag}")


def reader_creator(
    corpus_reader: Callable[[], Iterable[Sentence]],
    word_dict: dict[str, int],
    predicate_dict: dict[str, int],
    label_dict: dict[str, int],
) -> common.Reader:
    """Return a reader of the nine lists of ids of each sample of a corpus reader."""

    def reader() -> Iterator[tuple[list[int], ...]]:
        for words, predicate, labels in corpus_reader():
            verb = labels.index("B-V")
            around = range(verb - 2, verb + 3)
            context = [words[place] if 0 <= place < len(words) else "bos" if place < 0 else "eos" for place in around]
            yield (
                [word_dict.get(word, UNK_IDX) for word in words],
                *([word_dict.get(word, UNK_IDX)] * len(words) for word in context),
                [predicate_dict[predicate]] * len(words),
                [int(place in around) for place in range(len(words))],
                [label_dict[label] for label in labels],
            )

    return reader


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the ids of words, of verbs and of labels."""
    return (
        load_dict(common.download(WORDDICT_URL, "conll05st", WORDDICT_MD5)),
        load_dict(common.download(VERBDICT_URL, "conll05st", VERBDICT_MD5)),
        load_dict(common.download(TRGDICT_URL, "conll05st", TRGDICT_MD5)),
    )


def get_embedding() -> str:
    """Return the path of trained word vectors: a header of 16 bytes, then 44068 x 32 float32."""
    return common.download(EMB_URL, "conll05st", EMB_MD5)


def test() -> common.Reader:
    """Return the reader of the test samples; programs train with them, too."""
    archive = common.download(DATA_URL, "conll05st", DATA_MD5)
    corpus = corpus_reader(archive, f"{_FOLDER}/words/test.wsj.words.gz", f"{_FOLDER}/props/test.wsj.props.gz")
    return reader_creator(corpus, *get_dict())


def fetch() -> None:
    """Fetch the files."""
    get_dict()
    get_embedding()
    common.download(DATA_URL, "conll05st", DATA_MD5)


def convert(path: str) -> None:
    """Write the samples as RecordIO files."""
    common.convert(path, test(), 1000, "conl105_train")  # v0.11's names
    common.convert(path, test(), 1000, "conl105_test")

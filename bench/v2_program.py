"""Train a network of bench/v2.py as a program of `paddle.v2`; print the seconds and the mean cost of each pass.

usage: bench/v2_program.py NAME DIRECTORY [--passes N] [--reader file|shuffle|batches]

The networks are those of the examples' configs. DIRECTORY is what `workloads.prepare` made. The readers:
    file     every pass reads the text file, shuffles 4096 samples at a time, and makes batches
    shuffle  the samples are in memory; every pass shuffles them and makes batches
    batches  the batches are in memory
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import paddle.v2 as paddle

Reader = Callable[[], Iterator[Any]]
WIDTH = 256  # of the network of recommendation


class Text:
    """A network of quick_start: how it reads a text, and the text's type."""

    batch_size = 128

    def __init__(self, name: str, directory: Path) -> None:
        self.directory = directory
        lines = (directory / "data/dict.txt").read_text(encoding="utf-8").splitlines()
        self.words = {line.split()[0]: number for number, line in enumerate(lines)}
        kind = paddle.data_type.sparse_binary_vector if name == "lr" else paddle.data_type.integer_value_sequence
        word = paddle.layer.data(name="word", type=kind(len(self.words)))
        read = {"lr": lambda one: one, "cnn": self.read_by_convolution, "lstm": self.read_by_lstm}[name](word)
        label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(2))
        predicted = paddle.layer.fc(input=read, size=2, act=paddle.activation.Softmax())
        self.cost = paddle.layer.classification_cost(input=predicted, label=label)
        self.optimizer = paddle.optimizer.Adam(
            learning_rate=2e-3,
            regularization=paddle.optimizer.L2Regularization(rate=8e-4),
            gradient_clipping_threshold=25,
        )
        self.feeding = {"word": 0, "label": 1}

    @staticmethod
    def read_by_convolution(word: Any) -> Any:
        words = paddle.layer.embedding(input=word, size=128)
        return paddle.networks.sequence_conv_pool(input=words, context_len=3, hidden_size=512)

    @staticmethod
    def read_by_lstm(word: Any) -> Any:
        words = paddle.layer.embedding(input=word, size=128)
        drop = paddle.attr.ExtraAttr(drop_rate=0.25)
        read = paddle.networks.simple_lstm(input=words, size=128, lstm_cell_attr=drop)
        return paddle.layer.pooling(input=read, pooling_type=paddle.pooling.Max())

    def read(self) -> Iterator[Any]:
        with (self.directory / "data/train.txt").open(encoding="utf-8") as lines:
            for line in lines:
                label, text = line.split("\t", 1)
                yield [self.words.get(word, 0) for word in text.split()], int(label)


class Recommendation:
    """The network of the example recommendation."""

    batch_size = 1600

    def __init__(self, _: str, directory: Path) -> None:
        self.directory = directory
        self.meta = json.loads((directory / "data/meta.json").read_text(encoding="utf-8"))
        film, user = map(self.describe, ("movie", "user"))
        rating = paddle.layer.data(name="rating", type=paddle.data_type.dense_vector(1))
        self.cost = paddle.layer.square_error_cost(input=paddle.layer.cos_sim(a=film, b=user), label=rating)
        self.optimizer = paddle.optimizer.RMSProp(learning_rate=1e-3)
        names = [one.get("name", f"{side}_id") for side in ("movie", "user") for one in self.fields(side)]
        self.feeding = {name: column for column, name in enumerate([*names, "rating"])}

    def fields(self, side: str) -> list[dict[str, Any]]:
        return self.meta[side]["__meta__"]["raw_meta"]

    def describe(self, side: str) -> Any:
        features = [self.describe_field(side, field) for field in self.fields(side)]
        return paddle.layer.fc(input=features, size=WIDTH, name=f"{side}_fusion")

    def describe_field(self, side: str, field: dict[str, Any]) -> Any:
        fc, types = paddle.layer.fc, paddle.data_type
        if field["type"] == "id":
            key = paddle.layer.data(name=f"{side}_id", type=types.integer_value(field["max"]))
            return fc(input=paddle.layer.embedding(input=key, size=WIDTH), size=WIDTH)
        size, is_sequence = len(field["dict"]), field.get("seq") == "sequence"
        if field["type"] == "one_hot_dense":
            value = paddle.layer.data(name=field["name"], type=types.dense_vector(size))
            return fc(input=fc(input=value, size=WIDTH), size=WIDTH)
        kind = types.integer_value_sequence if is_sequence else types.integer_value
        vectors = paddle.layer.embedding(input=paddle.layer.data(name=field["name"], type=kind(size)), size=WIDTH)
        if is_sequence:
            return paddle.networks.text_conv_pool(input=vectors, context_len=5, hidden_size=WIDTH)
        return fc(input=vectors, size=WIDTH)

    def read(self) -> Iterator[Any]:
        with (self.directory / "data/ratings.train").open(encoding="utf-8") as lines:
            for line in lines:
                user, film, score, *_ = line.split("::")
                films, users = self.meta["movie"][film], self.meta["user"][user]
                yield int(film) - 1, *films, int(user) - 1, *users, [2 * float(score) - 5]


NETWORKS = {"recommendation": Recommendation, "lr": Text, "cnn": Text, "lstm": Text}


def make_batches(kind: str, read: Reader, size: int) -> Reader:
    """Returns the reader of batches; the samples are read once before the first pass, but for `file`."""
    if kind == "file":
        return paddle.batch(paddle.reader.shuffle(read, 4096), size)
    samples = list(read())
    if kind == "shuffle":
        return paddle.batch(paddle.reader.shuffle(lambda: iter(samples), len(samples)), size)
    random.shuffle(samples)
    batches = list(paddle.batch(lambda: iter(samples), size)())
    return lambda: iter(batches)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NETWORKS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--reader", choices=("file", "shuffle", "batches"), default="shuffle")
    options = parser.parse_args(arguments)
    paddle.init(trainer_count=1)
    network = NETWORKS[options.name](options.name, options.directory)
    parameters = paddle.parameters.create(network.cost)
    trainer = paddle.trainer.SGD(network.cost, parameters, network.optimizer)
    print(f"parameters {sum(parameters.get(name).size for name in parameters.names())}")
    costs, began = [], time.perf_counter()

    def handler(event: Any) -> None:
        nonlocal began
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)
        elif isinstance(event, paddle.event.EndPass):
            print(f"{time.perf_counter() - began:.6f} {sum(costs) / len(costs):.6g}", flush=True)
            costs.clear()
            began = time.perf_counter()

    batches = make_batches(options.reader, network.read, network.batch_size)
    began = time.perf_counter()
    trainer.train(batches, num_passes=options.passes, event_handler=handler, feeding=network.feeding)


if __name__ == "__main__":
    main(sys.argv[1:])

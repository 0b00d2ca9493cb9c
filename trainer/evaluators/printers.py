"""Evaluators that print data of the network in the log, or as words in a file. Their text is `name=0`.

Source: spec/trainer.md 6.10.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError, VolumeError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.text import spell_fields, spell_rows
from trainer.evaluators.base import Evaluator, Share, evaluates
from trainer.layers.recurrent.generator import SCORES
from trainer.layers.ties import find_best, sort_largest

MOST_DICTIONARY_BYTES = 1 << 28  # maximum bytes of a dict_file
ANY_NUMBER = 1 << 30  # maximum number of inputs of an evaluator whose number of inputs is not limited


def log_record(text: str) -> None:
    """Log several lines as one record with one prefix."""
    glog.info(text.removesuffix("\n"))


class Printer(Evaluator):
    """Log a record about each input of the evaluator, batch by batch."""

    most_inputs = ANY_NUMBER
    has_metrics = False

    def measure(self, outputs: Mapping[str, Argument]) -> Share:
        """Log one record for each layer, and return an empty measure."""
        for name in self.config.input_layers:
            record = self.spell(name, outputs[name])
            if record:
                log_record(record)
        return Share()

    def spell(self, name: str, output: Argument) -> str:
        """Return the log text for a layer, or ""."""
        raise NotImplementedError


@evaluates("value_printer")
class ValuePrinter(Printer):
    """Log the values of layers, and the positions at which their sequences begin."""

    def spell(self, name: str, output: Argument) -> str:
        """Return the values and the positions as text. As in v0.10, ids are not shown."""
        fields = spell_fields(output)
        return "".join(f"layer={name} {field}:\n{text}" for field, text in fields)


@evaluates("gradient_printer")
class GradientPrinter(Printer):
    """Log the gradients of layers. `gradients` has the gradients of the last backward pass; in tests it is empty."""

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__(config)
        self.gradients: Mapping[str, Array] = {}

    def spell(self, name: str, output: Argument) -> str:
        """Return the rows of the gradient."""
        gradient = self.gradients.get(name)
        return "" if gradient is None else f"layer={name} grad matrix:\n{spell_rows(gradient)}"


@evaluates("max_id_printer")
class MaxIdPrinter(Printer):
    """Log the `num_results` largest columns of each row."""

    def spell(self, name: str, output: Argument) -> str:
        """Return pairs of column and value as text; the largest value comes first."""
        values = self.numbers(output, "input")
        best = find_best(values, self.config.num_results)
        rows = zip(best.tolist(), np.take_along_axis(values, best, axis=1).tolist(), strict=True)
        return f"layer={name} row max id vector:\n" + "".join(f"{_spell_pairs(*row)}\n" for row in rows)


@evaluates("max_frame_printer")
class MaxFramePrinter(Printer):
    """Log the `num_results` largest frames of each sequence. A frame is a single number."""

    def spell(self, name: str, output: Argument) -> str:
        """Return a line for each sequence, with its largest frames as pairs (frame, value), and with its length."""
        values = self.numbers(output, "input")
        if values.shape[1] != 1:
            raise ConfigError(f"{self}: layer {name} has width {values.shape[1]}; it must be 1")
        lines = []
        for start, stop in itertools.pairwise(self.starts(output, "input").tolist()):
            frames = values[start:stop, 0]
            best = np.array(sort_largest(frames.tolist(), self.config.num_results)[: self.config.num_results], np.int64)
            pairs = _spell_pairs(best.tolist(), frames[best].tolist())
            lines.append(f"{pairs}total {stop - start} frames\n")
        return f"layer={name} sequence max frames:\n{''.join(lines)}"


def _spell_pairs(ids: list[int], values: list[float]) -> str:
    return "".join(f"{one} : {value:g}, " for one, value in zip(ids, values, strict=True))


@evaluates("seq_text_printer")
class SequenceTextPrinter(Evaluator):
    """Write sequences of ids to `result_file`, as words of `dict_file` if there is one.

    Inputs: the ids of the samples, and then any number of sequences of ids; a single input is the sequences.

    The first batch empties the file of an earlier run. A sample has one line with a field for each input. A
    sub-sequence has its own line. If a sample has several generated sequences, each has a line that begins with its
    rank and its score.

    Raises: MissingInputError: the dictionary cannot be read.  VolumeError: the file cannot be written.
    """

    most_inputs = ANY_NUMBER
    has_metrics = False

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__(config)
        if not config.result_file:
            raise ConfigError(f"{self} has no result_file to write to")
        self._path = Path(config.result_file)
        self._words: list[str] | None = None
        if config.dict_file:
            try:
                self._words = _read_words(Path(config.dict_file))
            except OSError as error:
                raise MissingInputError(f"{self}: cannot read {config.dict_file}: {error.strerror}") from error
        self._is_old = True
        self._write("a", "")  # a file that cannot be written is known before the first batch

    def measure(self, outputs: Mapping[str, Argument]) -> Share:
        """Append the sequences of the batch to the file, and return an empty measure."""
        inputs = self.inputs(outputs)
        named, count = inputs[1:] or inputs, inputs[-1].sequences
        names = inputs[0].ids if len(inputs) > 1 else np.arange(count)
        if names is None or len(names) != count:
            raise ConfigError(f"{self}: its sample ids must be one id for each of the {count} sequences")
        if any(one.sequences != count for one in named):
            numbers = ", ".join(str(one.sequences) for one in named)
            raise ConfigError(f"{self}: its inputs have {numbers} sequences; they must have equal numbers of sequences")
        fields = [self._spell_samples(one) for one in named]
        lines = [f"{name}{''.join(texts)}\n" for name, *texts in zip(names.tolist(), *fields, strict=True)]
        self._write("w" if self._is_old else "a", "".join(lines))
        self._is_old = False
        return Share()

    def _spell_samples(self, sequences: Argument) -> list[str]:
        """Return the text of an input for each sample."""
        ids = self.labels(sequences, "input")
        starts = sequences.starts if sequences.starts is not None else np.arange(len(ids) + 1)
        parts = starts if sequences.sub_starts is None else sequences.sub_starts
        scores = sequences.extras.get(SCORES)
        texts: list[str] = []
        for start, stop in itertools.pairwise(starts.tolist()):
            if scores is not None:
                texts.append(f"\n{self._spell_results(ids[start:stop], scores[len(texts)].tolist())}")
                continue
            bounds = _inside(parts, start, stop)
            texts.append("\n".join(f"\t{self._spell(ids[first:end])}" for first, end in itertools.pairwise(bounds)))
        return texts

    def _spell_results(self, ids: Ids, scores: list[float]) -> str:
        """Return a line for each generated sequence of a sample. In `ids`, a sequence is its length, its ids and -1."""
        lines: list[str] = []
        begin = 0
        while begin < len(ids):
            end = begin + 1 + int(ids[begin])
            lines.append(f"{len(lines)}\t{scores[len(lines)]:g}\t{self._spell(ids[begin + 1 : end])}\n")
            begin = end + 1
        return "".join(lines)

    def _spell(self, ids: Ids) -> str:
        words = [self._word(one) for one in ids.tolist()]
        return "".join(f" {word}" for word in words) if self.config.delimited else "".join(words)

    def _word(self, one: int) -> str:
        if self._words is None:
            return str(one)
        if not 0 <= one < len(self._words):
            raise DataError(f"{self}: id {one} is not in {self.config.dict_file}, which has {len(self._words)} words")
        return self._words[one]

    def _write(self, mode: str, text: str) -> None:
        try:
            with self._path.open(mode, encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
        except OSError as error:
            raise VolumeError(f"{self}: cannot write {self._path}: {error.strerror}") from error


def _read_words(path: Path) -> list[str]:
    """Return the words of a dictionary with one word on each line; a word may have any bytes, as in v0.10.

    Only a line feed ends a line. `str.splitlines` also divides at characters that occur in words, e.g. U+0085, and then
    each later word would have the id of another word.
    """
    lines = read_text_file(path, MOST_DICTIONARY_BYTES).decode("utf-8", "surrogateescape").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _inside(positions: Ids, start: int, stop: int) -> list[int]:
    """Return `start`, the positions between `start` and `stop`, and `stop`."""
    inner = positions[(positions > start) & (positions < stop)].tolist()
    return [start, *inner, stop]

"""Evaluators that print: the text in the log and in the file, down to the blanks."""

import os

import numpy as np
import pytest
from each import each

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError, VolumeError
from trainer.arrays.arguments import Argument
from trainer.evaluators import make_evaluators

VALUES = np.array([[0.25, 0.5], [1e-7, 3], [2, 1]], np.float32)
FRAMES = Argument(value=VALUES, starts=np.array([0, 2, 3]))
COLUMN = Argument(value=VALUES[:, 1:], starts=np.array([0, 2, 3]))


def make(kind, *names, **fields):
    return make_evaluators([EvaluatorConfig(name="NAME", type=kind, input_layers=names, **fields)])[0]


def log_of(capsys, evaluator, **outputs):
    total = evaluator.nothing()
    total += evaluator.measure(outputs)
    assert evaluator.text(total) == "NAME=0"
    return [record.partition("] ")[2] for record in capsys.readouterr().err.split("\nI") if record]


@each(
    ("kind", "fields", "outputs", "expected"),
    [
        ("value_printer", {}, {"a": Argument(value=VALUES)}, ["layer=a value:\n0.25 0.5 \n1e-07 3 \n2 1 \n"]),
        (
            "value_printer",
            {},
            {"a": Argument(value=VALUES[:1], starts=np.array([0, 1]), sub_starts=np.array([0, 1, 1]))},
            ["layer=a value:\n0.25 0.5 \nlayer=a sequence pos:\n[0 1 ]\nlayer=a sub-sequence pos:\n[0 1 1 ]\n"],
        ),
        (
            "value_printer",
            {},
            {"a": Argument(ids=np.array([4, 5, 6]), starts=np.array([0, 3]))},
            ["layer=a sequence pos:\n[0 3 ]\n"],
        ),
        ("value_printer", {}, {"a": Argument(ids=np.array([4]))}, []),
        (
            "value_printer",
            {},
            {"a": Argument(value=VALUES[:1]), "b": Argument(value=VALUES[2:])},
            ["layer=a value:\n0.25 0.5 ", "layer=b value:\n2 1 \n"],
        ),
        (
            "max_id_printer",
            {},
            {"a": FRAMES},
            ["layer=a row max id vector:\n1 : 0.5, \n1 : 3, \n0 : 2, \n"],
        ),
        (
            "max_id_printer",
            {"num_results": 2},
            {"a": Argument(value=VALUES[:1])},
            ["layer=a row max id vector:\n1 : 0.5, 0 : 0.25, \n"],
        ),
        (
            "max_frame_printer",
            {"num_results": 2},
            {"a": COLUMN},
            ["layer=a sequence max frames:\n1 : 3, 0 : 0.5, total 2 frames\n0 : 1, total 1 frames\n"],
        ),
        (
            "classification_error_printer",
            {},
            {"a": FRAMES, "b": Argument(ids=np.array([1, 0, 0]))},
            ["Printer=NAME Classification Error:\n0 \n1 \n0 \nPrinter=NAME sequence pos vector:\n[0 2 3 ]\n"],
        ),
        (
            "classification_error_printer",
            {},
            {"a": Argument(value=VALUES), "b": Argument(ids=np.array([1, 0, 0]))},
            ["Printer=NAME Classification Error:\n0 \n1 \n0 \n"],
        ),
        (
            "classification_error_printer",
            {},
            {
                "a": Argument(value=VALUES),
                "b": Argument(ids=np.array([1, 0, 0])),
                "w": Argument(value=np.array([[2], [0.5], [3]])),
            },
            ["Printer=NAME Classification Error:\n0 \n0.5 \n0 \n"],
        ),
        ("gradient_printer", {}, {"a": FRAMES}, []),
    ],
)
def test_what_is_logged_of_a_batch(capsys, kind, fields, outputs, expected):
    assert log_of(capsys, make(kind, *outputs, **fields), **outputs) == expected


def test_gradients_are_logged_where_there_are_some(capsys):
    printer = make("gradient_printer", "a", "b")
    printer.gradients = {"b": VALUES[:1]}
    assert log_of(capsys, printer, a=FRAMES, b=FRAMES) == ["layer=b grad matrix:\n0.25 0.5 \n"]


def test_frames_wider_than_one_are_refused():
    with pytest.raises(ConfigError, match="layer a has width 2; it must be 1"):
        make("max_frame_printer", "a").measure({"a": FRAMES})


# ----- text -----

SEQUENCES = Argument(ids=np.array([2, 0, 1]), starts=np.array([0, 2, 2, 3]))
GENERATED = Argument(
    ids=np.array([2, 2, 0, -1, 1, 1, -1, 1, 0, -1, 0, -1]),
    starts=np.array([0, 7, 12]),
    extras={"scores": np.array([[-0.5, -2], [-1.25, -3]])},
)
NESTED = Argument(ids=np.array([2, 0, 1, 1]), starts=np.array([0, 3, 4]), sub_starts=np.array([0, 1, 3, 4]))


@pytest.mark.parametrize(
    ("fields", "outputs", "expected"),
    [
        ({}, {"a": SEQUENCES}, "0\t c a\n1\t\n2\t b\n"),
        ({"delimited": False}, {"a": SEQUENCES}, "0\tca\n1\t\n2\tb\n"),
        ({"dict_file": ""}, {"a": SEQUENCES}, "0\t 2 0\n1\t\n2\t 1\n"),
        ({}, {"id": Argument(ids=np.array([9, 8, 7])), "a": SEQUENCES}, "9\t c a\n8\t\n7\t b\n"),
        ({}, {"a": NESTED}, "0\t c\n\t a b\n1\t b\n"),
        (
            {},
            {"id": Argument(ids=np.array([9, 8, 7])), "a": SEQUENCES, "b": Argument(ids=np.array([0, 1, 2]))},
            "9\t c a\t a\n8\t\t b\n7\t b\t c\n",
        ),
        ({}, {"a": Argument(ids=np.array([1, 2]))}, "0\t b\n1\t c\n"),
        ({}, {"a": GENERATED}, "0\n0\t-0.5\t c a\n1\t-2\t b\n\n1\n0\t-1.25\t a\n1\t-3\t\n\n"),
    ],
)
def test_sequences_are_written_as_words(tmp_path, fields, outputs, expected):
    (tmp_path / "words").write_text("a\nb\nc\n")
    (tmp_path / "result").write_text("of an earlier run")
    files = {"dict_file": str(tmp_path / "words"), "result_file": str(tmp_path / "result")}
    printer = make("seq_text_printer", *outputs, **{**files, **fields})
    assert (tmp_path / "result").read_text() == "of an earlier run"  # until there is a batch: the job may have a fault
    for _ in range(2):
        assert printer.text(printer.measure(outputs)) == "NAME=0"
    assert (tmp_path / "result").read_text() == expected * 2


def test_a_word_may_have_any_bytes_but_a_line_feed(tmp_path):
    """A dictionary in another encoding than UTF-8 was a traceback; U+0085 in a word moved all later words."""
    (tmp_path / "words").write_bytes(b"caf\xe9\r\n\xc2\x85b\n\xe2\x80\xa8\n")
    files = {"dict_file": str(tmp_path / "words"), "result_file": str(tmp_path / "result")}
    printer = make("seq_text_printer", "a", **files)
    printer.measure({"a": Argument(ids=np.array([0, 1, 2]))})
    assert (tmp_path / "result").read_bytes() == b"0\t caf\xe9\n1\t \xc2\x85b\n2\t \xe2\x80\xa8\n"


def test_a_pipe_or_device_as_dictionary_is_refused_at_once(tmp_path):
    """The trainer waited for ever for a writer of the pipe, or used up the memory."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(MissingInputError, match=f"cannot read {path}: Is no regular file"):
            make("seq_text_printer", "a", result_file=str(tmp_path / "result"), dict_file=str(path))


def test_what_a_text_printer_cannot_do_is_said(tmp_path):
    result = str(tmp_path / "result")
    (tmp_path / "words").write_text("a\n")
    with pytest.raises(ConfigError, match="has no result_file"):
        make("seq_text_printer", "a")
    with pytest.raises(MissingInputError, match="nowhere: No such file"):
        make("seq_text_printer", "a", result_file=result, dict_file="nowhere")
    with pytest.raises(VolumeError, match="cannot write"):
        make("seq_text_printer", "a", result_file=str(tmp_path / "no" / "result"))
    printer = make("seq_text_printer", "a", result_file=result, dict_file=str(tmp_path / "words"))
    with pytest.raises(DataError, match=r"id 2 is not in .*words, which has 1 words"):
        printer.measure({"a": SEQUENCES})
    with pytest.raises(ConfigError, match="its inputs have 2, 3 sequences; they must have equal numbers"):
        make("seq_text_printer", "id", "a", "b", result_file=result).measure(
            {"id": Argument(ids=np.array([1, 2, 3])), "a": Argument(ids=np.array([1, 2])), "b": SEQUENCES}
        )
    with pytest.raises(ConfigError, match="one id for each of the 3 sequences"):
        make("seq_text_printer", "id", "a", result_file=result).measure(
            {"id": Argument(ids=np.array([1])), "a": SEQUENCES}
        )

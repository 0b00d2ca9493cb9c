"""The names of measures in records, from which status, report, metrics, TensorBoard and plotcurve take them."""

import time

import numpy as np

from paddle.utils.plotcurve import list_keys, spell
from paddle.utils.tensorboard import list_scalars
from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_cluster.launcher.status import describe_progress
from trainer.arrays.arguments import Argument
from trainer.evaluators import Accumulator, make_evaluators
from trainer.records.records import numbers_of


def measure(*configs):
    """The numbers of a record after one batch of three samples."""
    evaluators = make_evaluators([EvaluatorConfig(**config) for config in configs])
    score = Argument(value=np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], np.float32), starts=np.array([0, 3]))
    outputs = {"score": score, "label": Argument(ids=np.array([0, 1, 1]), starts=np.array([0, 3]))}
    sums = Accumulator(evaluators)
    sums.add(3.0, 3, [one.measure(outputs) for one in evaluators])
    return numbers_of(sums)["evaluators"]


def of(kind, name, **fields):
    return {"type": kind, "name": name, "input_layers": ["score", "label"], **fields}


TWO = [of("precision_recall", "spam", positive_label=0), of("precision_recall", "ham", positive_label=1)]


def test_measures_of_one_evaluator_have_the_words_of_the_log():
    found = measure(of("classification_error", "error"), TWO[1])
    assert found == {"error": 0.333333, "precision": 1, "recall": 0.5, "F1-score": 0.666667}


def test_several_evaluators_of_a_kind_are_told_apart_by_their_names():
    """Before, the last of several precision_recall_evaluators replaced the numbers of all others."""
    found = measure(*TWO)
    assert (found["spam.precision"], found["spam.recall"]) == (0.5, 1)
    assert (found["ham.precision"], found["ham.recall"]) == (1, 0.5)
    assert "precision" not in found


def test_measures_of_one_evaluator_with_the_same_last_word_are_told_apart():
    """Before, only the last of four kinds of errors was kept, under the name `error`."""
    names = measure(of("ctc_edit_distance", "ctc"))
    kinds = ("deletions", "insertions", "substitutions", "sequences")
    assert list(names) == ["ctc", *(f"ctc.{kind}_error" for kind in kinds)]


def test_several_top_k_errors_are_told_apart():
    found = measure(of("classification_error", "a", top_k=2), of("classification_error", "b", top_k=2))
    assert found == {"a.top_2_error": 0, "b.top_2_error": 0}


def test_an_evaluator_keeps_its_own_name_beside_a_measure_of_this_name():
    found = measure(of("classification_error", "precision"), TWO[0])
    assert found["precision"] == 0.333333
    assert found["spam.precision"] == 0.5


def test_status_tensorboard_and_plotcurve_show_the_values_of_all_evaluators():
    found = measure(*TWO)
    said = describe_progress({"status": "training", "cost": 1.0, "evaluators": found, "time": time.time()})
    assert "spam.precision 0.5" in said
    assert "ham.precision 1" in said
    record = {"kind": "pass", "pass": 0, "batch": 1, "time": 1.0, "cost": 1.0, "evaluators": found}
    assert {"spam.recall", "ham.recall"} <= {one.tag for one in list_scalars([record])}
    assert {"spam.recall", "ham.recall"} <= set(list_keys([spell(record)]))

"""Evaluators, accumulators and log lines, down to the blanks."""

import numpy as np
import pytest

from proto.ModelConfig_pb2 import EvaluatorConfig
from proto.ParameterConfig_pb2 import ParameterConfig
from pserver.errors import ConfigError, DataError
from trainer import logs
from trainer.arguments import Argument, Sparse
from trainer.evaluators import Accumulator, make_evaluators
from trainer.parameters import ParameterTable

PREDICTIONS = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]], np.float32)


def evaluator(*inputs, **fields):
    return make_evaluators(
        [EvaluatorConfig(name="error", type="classification_error", input_layers=["p", "y", *inputs], **fields)]
    )[0]


def measure(label, weight=None, **fields):
    outputs = {"p": Argument(value=PREDICTIONS), "y": label}
    if weight is not None:
        outputs["w"] = Argument(value=np.array(weight, np.float32).reshape(-1, 1))
    return evaluator(*(["w"] if weight is not None else []), **fields).measure(outputs)


def ids(*values):
    return Argument(ids=np.array(values))


def test_wrong_rows_are_counted_and_the_first_maximum_decides():
    assert measure(ids(1, 1, 2, 0)) == (1.0, 4.0)
    assert measure(ids(1, 1, 2, 1)) == (2.0, 4.0)


def test_weights_count_rows_so_often():
    assert measure(ids(0, 0, 0, 0), weight=[2, 1, 0, 1]) == (2.0, 4.0)


def test_top_k_accepts_a_label_among_the_best():
    assert measure(ids(2, 2, 0, 2), top_k=2) == (2.0, 4.0)
    assert evaluator(top_k=2).text(2.0, 4.0) == " top_2_error=0.5"


def test_several_classes_are_compared_with_the_threshold():
    sparse = Argument(sparse=Sparse(3, np.array([0, 1, 1, 3, 4]), np.array([1, 0, 2, 0])))
    assert measure(sparse, classification_threshold=0.45)[0] == pytest.approx((0 + 1 + 1 + 1) / 3)
    dense = Argument(value=np.array([[0, 1, 0], [0, 0, 0], [1, 0, 1], [1, 0, 0]], np.float32))
    assert measure(dense, classification_threshold=0.45) == (3.0, 4.0)


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_beyond_the_prediction_is_a_data_error(label):
    with pytest.raises(DataError, match=r"evaluator error: label -?\d+ is not in \[0, 3\)"):
        measure(ids(label, 0, 0, 0))


def test_an_evaluator_that_is_not_supported_is_named():
    with pytest.raises(
        ConfigError,
        match="evaluator area: type 'last-column-auc' is not supported yet; supported are classification_error",
    ):
        make_evaluators([EvaluatorConfig(name="area", type="last-column-auc")])


def test_nothing_measured_prints_zero():
    result = Accumulator([evaluator()])
    assert result.text() == "error=0 "
    assert result.average_cost() == 0.0


def two_accumulators():
    since_start, window = Accumulator([evaluator()]), Accumulator([evaluator()])
    since_start.add(90.950272, 128, [(69.0, 128.0)])
    for accumulator in (since_start, window):
        accumulator.add(88.003840, 128, [(63.0, 128.0)])
    return since_start, window


def test_the_batch_line_is_the_legacys():
    assert logs.batch_line(2, *two_accumulators()) == (
        " Batch=2 samples=256 AvgCost=0.699039 CurrentCost=0.68753 Eval: error=0.515625  CurrentEval: error=0.492188 "
    )


def test_without_evaluators_the_blanks_stay():
    plain = Accumulator([])
    plain.add(1.0, 2, [])
    assert logs.batch_line(1, plain, plain) == " Batch=1 samples=2 AvgCost=0.5 CurrentCost=0.5 Eval:  CurrentEval: "
    assert logs.pass_line(3, 1, plain) == " Pass=3 Batch=1 samples=2 AvgCost=0.5 Eval: "


def test_the_other_lines_are_the_legacys():
    since_start, window = two_accumulators()
    assert logs.pass_line(0, 2, since_start) == " Pass=0 Batch=2 samples=256 AvgCost=0.699039 Eval: error=0.515625 "
    assert logs.test_line(window) == " Test samples=128 cost=0.68753 Eval: error=0.492188 "
    assert logs.test_pass_line(1, window) == " Pass=1 samples=128 AvgCost=0.68753 Eval: error=0.492188 "
    assert logs.test_batch_line(100, window) == " Batch=100 samples=128 AvgCost=0.68753"


def test_costs_are_added_in_float32():
    accumulator = Accumulator([])
    for _ in range(3):
        accumulator.add(16777216.0, 1, [])
        accumulator.add(1.0, 1, [])
    assert accumulator.average_cost() * 6 == pytest.approx(3 * 16777216, rel=1e-7)


def table_of(*names, **fields):
    return ParameterTable([ParameterConfig(name=name, size=2, dims=[1, 2], **fields) for name in names])


def test_statistics_are_padded_as_they_were():
    parameter = table_of("___fc_layer_0__.wbias")["___fc_layer_0__.wbias"]
    parameter.value[:] = [0.00390071, -0.00390071]
    parameter.gradient[:] = [-15.3184, 15.3184]
    assert logs.statistics_line(parameter) == (
        "___fc_layer_0__.wbias avg_abs_val=0.00390071  max_val=0.00390071  "
        "avg_abs_grad=15.3184     max_grad=15.3184    "
    )
    short = table_of("w")["w"]
    assert logs.statistics_line(short).startswith("w                    avg_abs_val=0           max_val=")


def test_a_static_parameters_gradient_is_zero():
    parameter = table_of("w", is_static=True)["w"]
    assert logs.statistics_line(parameter).endswith("avg_abs_grad=0           max_grad=0          ")

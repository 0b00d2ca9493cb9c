"""Accumulators and log lines, down to the blanks."""

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.parameters import ParameterTable
from trainer.evaluators import Accumulator, make_evaluators
from trainer.evaluators.base import Share
from trainer.telemetry import log_lines


def evaluator():
    return make_evaluators([EvaluatorConfig(name="error", type="classification_error", input_layers=["p", "y"])])[0]


def test_an_evaluator_that_is_not_supported_is_named():
    with pytest.raises(
        ConfigError,
        match="evaluator area: type 'nothing' is not supported yet; supported are chunk, classification_error, ",
    ):
        make_evaluators([EvaluatorConfig(name="area", type="nothing")])


def test_nothing_measured_prints_zero():
    result = Accumulator([evaluator()])
    assert result.text() == "error=0 "
    assert result.average_cost() == 0.0


def two_accumulators():
    since_start, window = Accumulator([evaluator()]), Accumulator([evaluator()])
    since_start.add(90.950272, 128, [Share(69.0, 128.0)])
    for accumulator in (since_start, window):
        accumulator.add(88.003840, 128, [Share(63.0, 128.0)])
    return since_start, window


def test_the_batch_line_is_the_legacys():
    assert log_lines.batch_line(2, *two_accumulators()) == (
        " Batch=2 samples=256 AvgCost=0.699039 CurrentCost=0.68753 Eval: error=0.515625  CurrentEval: error=0.492188 "
    )


def test_without_evaluators_the_blanks_stay():
    plain = Accumulator([])
    plain.add(1.0, 2, [])
    assert (
        log_lines.batch_line(1, plain, plain) == " Batch=1 samples=2 AvgCost=0.5 CurrentCost=0.5 Eval:  CurrentEval: "
    )
    assert log_lines.pass_line(3, 1, plain) == " Pass=3 Batch=1 samples=2 AvgCost=0.5 Eval: "


def test_the_other_lines_are_the_legacys():
    since_start, window = two_accumulators()
    assert (
        log_lines.pass_line(0, 2, since_start) == " Pass=0 Batch=2 samples=256 AvgCost=0.699039 Eval: error=0.515625 "
    )
    assert log_lines.test_line(window) == " Test samples=128 cost=0.68753 Eval: error=0.492188 "
    assert log_lines.test_pass_line(1, window) == " Pass=1 samples=128 AvgCost=0.68753 Eval: error=0.492188 "
    assert log_lines.test_batch_line(100, window) == " Batch=100 samples=128 AvgCost=0.68753"


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
    assert log_lines.statistics_line(parameter) == (
        "___fc_layer_0__.wbias avg_abs_val=0.00390071  max_val=0.00390071  "
        "avg_abs_grad=15.3184     max_grad=15.3184    "
    )
    short = table_of("w")["w"]
    assert log_lines.statistics_line(short).startswith("w                    avg_abs_val=0           max_val=")


def test_a_static_parameters_gradient_is_zero():
    parameter = table_of("w", is_static=True)["w"]
    assert log_lines.statistics_line(parameter).endswith("avg_abs_grad=0           max_grad=0          ")


def test_a_layers_statistics_call_the_variance_std():
    assert log_lines.layer_line("fc", np.array([[1, -2], [3, 0]], np.float32)) == (
        "The output state of fc: mean=0.5, std=3.25, min=-2, max=3"
    )
    assert log_lines.layer_line("fc", np.zeros((0, 2), np.float32)) == (
        "The number of output of fc is 0, skip to show the statistics"
    )

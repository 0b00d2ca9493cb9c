"""The text of messages (specification 21)."""

import math

from each import each

from paddle_base.proto import DataConfig_pb2, ModelConfig_pb2, ParameterConfig_pb2
from trainer.config import to_text
from trainer.config.text import escape, format_float


@each(
    "value, text",
    [
        (1 / math.sqrt(2001), "0.0223550917005"),
        (0.0, "0.0"),
        (25, "25.0"),
        (1e-6, "1e-06"),
        (0.0001, "0.0001"),
        (1e12, "1e+12"),
        (123456789012.0, "123456789012.0"),
        (1e11, "100000000000.0"),
        (-0.5, "-0.5"),
        (1 / 3, "0.333333333333"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_floats_are_written_as_python_2_did(value, text):
    assert format_float(value) == text


def test_texts_are_escaped_as_python_2_did():
    assert escape("S'a'\n\t\r\"\\") == r"S\'a\'\n\t\r\"\\"
    assert escape("é\x00\x7f") == r"\303\251\000\177"


def test_fields_come_in_ascending_number_and_repeated_ones_on_a_line_each():
    parameter = ParameterConfig_pb2.ParameterConfig(name="w", size=6, dims=[2, 3], initial_std=0.5, is_static=True)
    assert to_text(parameter) == 'name: "w"\nsize: 6\ninitial_std: 0.5\ndims: 2\ndims: 3\nis_static: true\n'


def test_messages_are_indented_and_defaults_that_were_set_are_shown():
    model = ModelConfig_pb2.ModelConfig(type="nn")
    model.layers.add(name="x", type="data").inputs.add(input_layer_name="y")
    model.sub_models.add(name="root", is_recurrent_layer_group=False)
    assert to_text(model).splitlines()[1:7] == [
        "layers {",
        '  name: "x"',
        '  type: "data"',
        "  inputs {",
        '    input_layer_name: "y"',
        "  }",
    ]
    assert "  is_recurrent_layer_group: false\n" in to_text(model)
    assert to_text(DataConfig_pb2.DataConfig()) == ""


def test_single_precision_is_written_as_it_was_given():
    message = ModelConfig_pb2.PriorBoxConfig(variance=[0.1, 0.45, 1 / 3, 2.0, 1e-8, 16777217.0])
    values = [line.split()[1] for line in to_text(message).splitlines()]
    assert values == ["0.1", "0.45", "0.33333334", "2.0", "1e-08", "16777216.0"]

"""The recurrent units of raw configs against each other and against the layers of whole sequences."""

import numpy as np
import pytest

from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.network.network import Network

SIZE = 3
PARTS = {"Lstm": 4, "Gated": 3}
ACTIVATIONS = {"Lstm": "'tanh', 'tanh', 'sigmoid'", "Gated": "'tanh', 'sigmoid'"}
# a parameter of the units, and the parameters of the naive units that have its rows or columns
SPLIT = {
    "u_check.b": ["u_input_check.w", "u_forget_check.w", "u_output_check.w"],
    "u_gate.b": ["u_update_gate.b", "u_reset_gate.b", "u_output_candidate.b"],
}


def parse(tmp_path, body):
    text = (
        "from paddle.trainer.recurrent_units import *\nSettings(batch_size=1)\nmodel_type('recurrent_nn')\n"
        f"DataLayer('x', size=5)\n{body}\nInputs('x')\nOutputs('u')\n"
    )
    (tmp_path / "config.py").write_text(text)
    return parse_config(tmp_path / "config.py").model_config


def group(kind, unit):
    """A group of a unit, whose projections are computed inside."""
    return (
        f"Layer('in', 'mixed', size={SIZE * PARTS[kind]}, bias=False, "
        "inputs=[FullMatrixProjection('x', parameter_name='in.w')])\n"
        "RecurrentLayerGroupBegin('g', in_links=['in'], out_links=['u'], seq_reversed=True)\n"
        f"{unit}('u', {SIZE}, {ACTIVATIONS[kind]}, [IdentityProjection('in')])\nRecurrentLayerGroupEnd('g')"
    )


def outputs_of(model, values):
    table = ParameterTable(model.parameters, np.float64)
    for parameter in table:
        parameter.value[:] = values[parameter.name].reshape(parameter.value.shape)
    rows = np.random.default_rng(1).normal(size=(5, 5))
    batch = {"x": Argument(value=rows, starts=np.array([0, 3, 5]))}
    return Network(model, table).forward(batch)["u"].value


def drawn(model):
    rng = np.random.default_rng(2)
    return {one.name: rng.normal(size=one.size) for one in model.parameters}


def split(values):
    """The parameters of a unit, as those of its naive form."""
    found = dict(values)
    for name, parts in SPLIT.items():
        if name in values:
            found.update(zip(parts, np.split(values[name], 3), strict=True))
    if "u_gate.w" in values:  # the columns of both gates, then those of the candidate
        gates = values["u_gate.w"][: 2 * SIZE * SIZE].reshape(SIZE, 2 * SIZE)
        found["u_update_gate.w"], found["u_reset_gate.w"] = gates[:, :SIZE], gates[:, SIZE:]
        found["u_output_candidate.w"] = values["u_gate.w"][2 * SIZE * SIZE :]
    return found


@pytest.mark.parametrize("kind", PARTS)
def test_the_naive_unit_computes_what_the_unit_computes(tmp_path, kind):
    model = parse(tmp_path, group(kind, f"{kind}RecurrentUnit"))
    values = drawn(model)
    naive = parse(tmp_path, group(kind, f"{kind}RecurrentUnitNaive"))
    np.testing.assert_allclose(outputs_of(model, values), outputs_of(naive, split(values)), rtol=1e-10)


@pytest.mark.parametrize("kind", PARTS)
def test_a_layer_group_is_the_unit_in_a_group(tmp_path, kind):
    inputs = "[FullMatrixProjection('x', parameter_name='w')]"
    model = parse(tmp_path, f"{kind}RecurrentLayerGroup('u', {SIZE}, {ACTIVATIONS[kind]}, {inputs}, 'p')")
    expected = {"Lstm": {"w", "p_input_recurrent.w", "p_input_recurrent.b", "p_check.b"}}
    expected["Gated"] = {"w", "p_input_proj.b", "p_gate.w", "p_gate.b"}
    assert {one.name for one in model.parameters} == expected[kind]
    assert outputs_of(model, drawn(model)).shape == (5, SIZE)
    assert [one.name for one in model.sub_models] == ["root", "u_layer_group"]


def test_units_with_one_prefix_share_their_parameters(tmp_path):
    body = group("Lstm", "LstmRecurrentUnit").replace("[IdentityProjection('in')]", "[IdentityProjection('in')], 'p'")
    twice = body + "\n" + body.replace("'u'", "'v'").replace("'g'", "'h'").replace("Layer('in'", "#")
    names = [one.name for one in parse(tmp_path, twice).parameters]
    assert sorted(names) == sorted(set(names))
    assert {one for one in names if one != "in.w"} == {"p_input_recurrent.w", "p_input_recurrent.b", "p_check.b"}

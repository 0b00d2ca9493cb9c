"""The arguments of every function of the language, by position and by name, against v0.10's (signatures.txt)."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import paddle.trainer_config_helpers as helpers
from paddle_base.runtime.errors import ConfigError

TABLE = [
    line for line in (Path(__file__).parent / "signatures.txt").read_text().splitlines() if not line.startswith("#")
]
# arguments of v0.10 that later versions renamed; both names work (test_config_versions)
_PROJECTION = {"mixed_bias_attr": "input_proj_bias_attr", "mixed_layer_attr": "input_proj_layer_attr"}
RENAMED = {
    "lstmemory_group": _PROJECTION,
    "lstmemory_unit": _PROJECTION,
    "pnpair_evaluator": {"info": "query_id"},
}
LAYERS = "x = data_layer('x', 4, 2, 2)\nt, l, w = data_layer('t', 4), data_layer('l', 3), data_layer('w', 1)\n"


def older(line: str) -> tuple[str, dict[str, Any]]:
    """Return a function's name and its arguments with their defaults, `empty` for an argument without a default."""
    definition = ast.parse(f"def {line}: pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    renamed = RENAMED.get(definition.name, {})
    names = [renamed.get(argument.arg, argument.arg) for argument in definition.args.args]
    known = {name: getattr(helpers, name) for name in ("AggregateLevel", "ExpandLevel")}
    known["classification_error_evaluator"] = helpers.classification_error_evaluator
    defaults = [eval(ast.unparse(node), known) for node in definition.args.defaults]
    required = [inspect.Parameter.empty] * (len(names) - len(defaults))
    return definition.name, dict(zip(names, [*required, *defaults], strict=True))


def differences(line: str) -> str:
    """Return how our signature differs from a line of the table, or ""."""
    name, arguments = older(line)
    ours = inspect.signature(getattr(helpers, name)).parameters
    if list(ours)[: len(arguments)] != list(arguments):
        return f"{name}: {', '.join(ours)}"
    for argument, default in arguments.items():
        mine = ours[argument].default
        default = () if default == [] else default  # a list would be shared by all calls
        if default is not inspect.Parameter.empty and mine != default:
            return f"{name}: {argument}={mine!r}"
    return ""


def test_every_function_has_the_arguments_of_v0_10_in_its_order():
    assert len(TABLE) > 150
    assert [fault for fault in map(differences, TABLE) if fault] == []


# a call by position in the order of a version: the same call by name
CALLS = {
    "print_layer(x, 'show')": "print_layer(input=x, name='show')",
    "repeat_layer(x, 3, 'rep')": "repeat_layer(input=x, num_repeats=3, name='rep')",
    "data_layer('y', 6, 2, 3)": "data_layer(name='y', size=6, height=2, width=3)",
    "lstmemory(x, 'm', True)": "lstmemory(input=x, name='m', reverse=True)",
    "batch_norm_layer(x, None, 'b', 1)": "batch_norm_layer(input=x, name='b', num_channels=1)",
    "img_conv_layer(x, 1, 2, 'c', 1, None, 1, 1, 0, False)": (
        "img_conv_layer(x, filter_size=1, num_filters=2, name='c', num_channels=1, bias_attr=False)"
    ),
    "classification_cost(p, l, w, 'c', 2)": "classification_cost(p, l, weight=w, name='c', top_k=2)",
    # v0.9 and v0.11 had no top_k
    "classification_cost(p, l, w, 'c', auc_evaluator)": (
        "classification_cost(p, l, weight=w, name='c', evaluator=auc_evaluator)"
    ),
    "mse_cost(x, t, None, 'c', ExtraAttr(device=1))": "mse_cost(x, t, name='c', layer_attr=ExtraAttr(device=1))",
    "mse_cost(x, t, None, 'c', 0.5, ExtraAttr(device=1))": (  # v0.11
        "mse_cost(x, t, name='c', layer_attr=ExtraAttr(device=1), coeff=0.5)"
    ),
    "crf_layer(p, l, 3, None, None, 'c', 0.5)": "crf_layer(p, l, size=3, name='c', coeff=0.5)",  # v0.11
    # v0.9 had no gradient_clipping_threshold
    "fc_layer(x, 1, None, 'f', ParamAttr(None, False, 1, 0, None, None, None, None, 2, None, True))": (
        "fc_layer(x, 1, name='f', param_attr=ParamAttr(initial_std=1, initial_mean=0, learning_rate=2, "
        "sparse_update=True))"
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_by_position_is_the_call_by_name(parse_text, call):
    start = LAYERS + "p = fc_layer(x, 3, act=SoftmaxActivation(), name='p')\n"
    assert parse_text(start + call) == parse_text(start + CALLS[call])


@pytest.mark.parametrize("kind, size", [("lstmemory", 4), ("grumemory", 3)])
def test_a_size_in_the_place_of_reverse_is_refused(parse_text, kind, size):
    """In v0.11 the third argument of lstmemory was the size: it must not turn the direction round."""
    with pytest.raises(ConfigError, match="reverse is 128; it must be True or False"):
        parse_text(f"{kind}(data_layer('x', {size}), 'm', 128)")

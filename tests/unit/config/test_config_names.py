"""Every public name of the legacy exists; what is not built yet says so when it is used."""

import re
from pathlib import Path

import pytest

import paddle.trainer_config_helpers as helpers
from pserver.errors import ConfigError
from trainer.config.language import HELPERS
from trainer.config.names import RAW_NAMES, Unsupported, built

SPEC = Path(__file__).parents[4] / "shared" / "spec" / "config.md"


def test_what_is_built_is_in_the_table():
    for module in HELPERS:
        assert set(built(module)) <= set(HELPERS[module])
    assert set(built("raw")) <= set(RAW_NAMES)


def test_the_language_that_logistic_regression_needs_is_built():
    for name in ("data_layer", "fc_layer", "classification_cost", "settings", "outputs", "AdamOptimizer", "ParamAttr"):
        assert not isinstance(getattr(helpers, name), Unsupported)
    for module in ("activations", "attrs", "evaluators", "optimizers", "data_sources"):
        assert [name for name in HELPERS[module] if name not in built(module)] == []


@pytest.mark.parametrize("module", HELPERS)
def test_a_sub_module_exports_its_names(module):
    assert set(getattr(helpers, module).__all__) == set(HELPERS[module])
    for name in HELPERS[module]:
        assert getattr(getattr(helpers, module), name) is getattr(helpers, name) or name not in built(module)


MISSING = [name for module, names in HELPERS.items() for name in names if name not in built(module)]


@pytest.mark.parametrize("name", MISSING)
def test_a_name_that_is_not_built_says_so(name):
    with pytest.raises(ConfigError, match=rf"^{name}\(\) is not supported yet"):
        getattr(helpers, name)(1, x=2)
    with pytest.raises(ConfigError, match=rf"^{name} is not supported yet"):
        getattr(helpers, name).ANYTHING  # noqa: B018


def test_no_name_of_the_specification_is_missing():
    if not SPEC.is_file():
        pytest.skip("../shared is not there")
    text = SPEC.read_text()
    functions = (
        text[text.index("## 6. Layer functions") : text.index("## 8. Act")]
        + text[text.index("## 9. Networks") : text.index("## 10.")]
        + text[text.index("## 11. ") : text.index("## 12.")]
    )
    names = set(re.findall(r"^\| (?:operator )?`(\w+)\(", functions, re.MULTILINE))
    assert len(names) > 130
    assert names <= set(helpers.__all__)


def test_a_provider_finds_what_the_old_module_gave():
    names: dict[str, object] = {}
    exec("from paddle.trainer.PyDataProvider2 import *", names)
    wanted = """provider CacheType integer_value integer_value_sequence dense_vector sparse_binary_vector
        sparse_float_vector cPickle logging collections functools itertools"""
    assert set(wanted.split()) <= set(names)

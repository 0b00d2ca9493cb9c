"""Every public name of the legacy exists."""

import re
from pathlib import Path

import pytest
from each import each

import paddle.trainer_config_helpers as helpers
from trainer.config.building.names import HELPERS, built
from trainer.data import provider2

SPEC = Path(__file__).parents[6] / "shared" / "spec" / "config.md"


@each("module", HELPERS)
def test_a_sub_module_exports_its_names(module):
    assert set(getattr(helpers, module).__all__) == set(built(module)) != set()
    for name in built(module):
        assert getattr(getattr(helpers, module), name) is getattr(helpers, name)


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
    assert {*provider2.__all__} <= {*names}

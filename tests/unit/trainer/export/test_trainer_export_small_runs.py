"""The networks of the recorded runs of the legacy program give this project's numbers in onnxruntime."""

import pytest
from export_golden import GoldenNetwork, list_configs
from exporting import TOLERANCE
from small_runs import lay_out, read_cases

from trainer.config.scripts.python2 import use_directories


def choose_cases():
    """Return the cases: one of each family of names, and of each type of a layer; make golden has all."""
    cases, families, types, found = read_cases(), set(), set(), []
    for name in list_configs():
        family, own = name.partition("_")[0], set(cases.get(name, {}).get("types", []))
        is_new = family not in families or not own <= types
        families.add(family)
        types |= own
        found.append(name if is_new else pytest.param(name, marks=pytest.mark.golden))
    return found


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The directory of all configs, which is the present one."""
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    yield
    use_directories(forget=True)


@pytest.mark.parametrize("name", choose_cases())
def test_a_recorded_network_gives_the_same_numbers_in_onnxruntime(name, here):
    found = GoldenNetwork(name).compare()
    assert max(found.values()) < TOLERANCE, found

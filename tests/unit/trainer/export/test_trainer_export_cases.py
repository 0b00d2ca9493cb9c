"""What onnxruntime computes from exported networks is what this project computes, layer type by layer type."""

import pytest
from export_cases import CASES
from exporting import TOLERANCE, compare


@pytest.mark.parametrize("name", CASES)
def test_layers_give_the_same_numbers_in_onnxruntime(name, tmp_path):
    case = CASES[name]
    model = case.parse(tmp_path)
    table = case.fill(model)
    for samples in case.samples:
        found = compare(model, table, case.batch(samples), case.slots, longer=samples % 2)
        assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize("opset", [18, 19, 20, 21])
def test_newer_opsets_give_the_same_numbers(opset, tmp_path):
    """From opset 18 on, reductions have their axes as an input."""
    for name in ("activations", "norms", "places"):
        case = CASES[name]
        model = case.parse(tmp_path)
        found = compare(model, case.fill(model), case.batch(3), case.slots, opset=opset)
        assert max(found.values()) < TOLERANCE, found

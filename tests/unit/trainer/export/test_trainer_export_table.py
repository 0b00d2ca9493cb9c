"""The table of docs/export.md: what is exported has been measured. `make docs` writes it, tests/lint compares it."""

import json

import export_table
from exporting import TOLERANCE

from trainer.config.v1.layer_types import LAYER_TYPES

# agents under names that older programs wrote
UNMEASURED = {"sequence_agent", "sequence_gather_agent", "sequence_scatter_agent"}


def test_every_exported_type_was_measured_and_is_exact():
    measured = json.loads(export_table.KEPT.read_text())
    exported = {kind for kind in LAYER_TYPES if export_table.describe(kind).startswith("yes")}
    assert exported - set(measured) == UNMEASURED, "run .venv/bin/python tests/export_table.py"
    assert {kind: row for kind, row in measured.items() if row["difference"] >= TOLERANCE} == {}


def test_nine_of_ten_layer_types_of_inference_are_exported():
    wanted, exported = export_table.count()
    assert exported >= 0.9 * wanted

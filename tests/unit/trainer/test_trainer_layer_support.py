"""The support table of docs/layers.md says what the code, its tests and the golden files say."""

import layer_support

from trainer.layers import LAYERS


def test_the_table_is_up_to_date():
    assert layer_support.page_table() == layer_support.make_table(), "run .venv/bin/python tests/layer_support.py"


def test_what_the_table_is_made_from_is_found():
    kinds = layer_support.language_types()
    assert {"data", "fc", "exconv", "lstmemory", "crf", "priorbox", "seqconcat"} <= kinds
    assert not [kind for kind in kinds if " " in kind or kind.startswith("_")]
    assert {"fc", "pool", "square_error"} <= layer_support.checked_words() & set(LAYERS)
    assert "no such layer" not in layer_support.checked_words()
    assert layer_support.golden_types("trace_lr_") == {"data", "fc", "multi-class-cross-entropy"}


def test_every_layer_that_gradients_flow_through_is_checked():
    rows = [line.strip("| ").split(" | ") for line in layer_support.make_table().splitlines()]
    assert len(rows) > 100
    assert not [
        row[0] for row in rows if row[2:4] == ["yes", "no"] or row[1:] in (["projection", "no"], ["operator", "no"])
    ]

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

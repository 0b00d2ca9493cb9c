"""Notes: JSON objects within the limits of messages, whose fields have shapes."""

import tracemalloc

import pytest

from paddle_base.runtime.errors import BugError
from paddle_base.runtime.schema import Integer
from pserver.wire import notes
from pserver.wire.notes import MAX_DEPTH, MAX_VALUES, NoteError


def nested(depth):
    return b'{"a":' + b"[" * (depth - 1) + b"0" + b"]" * (depth - 1) + b"}"


def test_depth_has_a_limit():
    note = notes.parse(nested(MAX_DEPTH))
    assert notes.parse(notes.dump(note)) == note and notes.parse(notes.dump({})) == {}
    with pytest.raises(NoteError, match="32 levels"):
        notes.parse(nested(MAX_DEPTH + 1))
    with pytest.raises(NoteError, match="levels"):
        notes.dump({"a": note})


def test_the_number_of_values_has_a_limit():
    """16 MiB of empty lists would take 350 MB."""
    tracemalloc.start()
    try:
        with pytest.raises(NoteError, match="values"):
            notes.parse(b'{"a":[' + b"[]," * (5 << 20) + b"0]}")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    many = {"a": [0] * (MAX_VALUES - 10)}
    assert notes.parse(notes.dump(many)) == many
    commas = {"a": "," * (2 * MAX_VALUES)}
    assert notes.parse(notes.dump(commas)) == commas


def test_a_field_of_another_shape_is_named():
    for note in ({}, {"n": 11}, {"n": "1"}):
        with pytest.raises(BugError, match=r"its n is .*, not a whole number from 0 to 10"):
            notes.get(note, "n", Integer(0, 10))
    assert notes.get({"n": 10}, "n", Integer(0, 10)) == 10
    assert notes.get({"o": {"a": 1}}, "o", notes.OBJECT) == {"a": 1}

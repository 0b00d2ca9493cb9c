"""Notes: what JSON allows and no program of ours writes is refused before it is parsed, or by its name."""

import json
import tracemalloc

import pytest
from each import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import BugError
from paddle_base.runtime.schema import Integer
from pserver.wire import notes
from pserver.wire.notes import MAX_DEPTH, MAX_VALUES, NoteError

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is slow, too
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), plain))
def test_a_note_comes_back_as_it_was(note):
    assert notes.parse(notes.dump(note)) == note


def nested(opening, closing, depth):
    return b'{"a":' + opening * (depth - 1) + b"0" + closing * (depth - 1) + b"}"


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_has_a_limit(opening, closing):
    assert notes.parse(nested(opening, closing, MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 100, 981, 5_000, 1_000_000):
        with pytest.raises(NoteError, match="32 levels"):
            notes.parse(nested(opening, closing, depth))


def test_brackets_in_a_text_are_no_levels():
    for text in ("[" * 5000, '"[' * 5000, '\\"[{' * 5000, "\\" * 5001 + "[" * 99):
        assert notes.parse(notes.dump({"a": text, "b": [text]})) == {"a": text, "b": [text]}


@pytest.mark.parametrize(
    "text",
    [b'{"a":"' + b'\\"' * 300_000, b'{"a":"' + b'\\"' * 300_000 + b"\\", b'"' * 300_001, b"[" * 99 + b'"' * 300_001],
    ids=["open", "cut in an escape", "quotes", "brackets"],
)
def test_texts_without_an_end_are_looked_at_once(text):
    """A search that began anew at every quote would take hours."""
    with pytest.raises(NoteError):
        notes.parse(text + b"[" * 40)


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


@each(
    "text, part",
    [
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e999}', "not finite"),
        (b'{"a":[-1e400]}', "not finite"),
        (b'{"a":1,"a":1}', "a key twice"),
        (b'{"b":[{"a":1,"\\u0061":2}]}', "a key twice"),
        (b'{"a":18446744073709551616}', "64 bits"),
        (b'{"a":-99999999999999999999}', "64 bits"),
        (b'{"a":' + b"9" * 5000 + b"}", "64 bits"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"\\udfff":[]}', "surrogate"),
        (b'{"a":["\xed\xa0\x80"]}', "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ('{"a":1}'.encode("utf-16"), "not JSON"),
        (b"[]", "a list instead"),
        (b"null", "a NoneType instead"),
        (b"{}{}", "not JSON"),
        (b'{"a":1', "not JSON"),
    ],
)
def test_what_no_program_of_ours_writes_is_refused(text, part):
    with pytest.raises(NoteError, match=part):
        notes.parse(text)


def test_a_pair_of_surrogates_is_a_character():
    assert notes.parse(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, nested])
def test_what_would_be_refused_is_not_sent(value):
    with pytest.raises(NoteError):
        notes.dump({"a": value})
    with pytest.raises(NoteError, match="levels"):
        notes.dump({"a": json.loads("[" * 40 + "]" * 40)})


def test_a_field_of_another_shape_is_named():
    for note in ({}, {"n": 11}, {"n": "1"}):
        with pytest.raises(BugError, match=r"its n is .*, not a whole number from 0 to 10"):
            notes.get(note, "n", Integer(0, 10))
    assert notes.get({"n": 10}, "n", Integer(0, 10)) == 10
    assert notes.get({"o": {"a": 1}}, "o", notes.OBJECT) == {"a": 1}

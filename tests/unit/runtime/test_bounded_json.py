"""JSON of other programs is refused before it costs anything."""

import pytest
from each import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_base.runtime.bounded_json import BoundedJsonError, dump_bounded, is_integer, parse_bounded, show_value

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)  # machines of CI are slow
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=4))
def test_what_is_written_is_read(value: dict[str, object]) -> None:
    assert parse_bounded(dump_bounded(value, depth=32, values=1000), depth=32, values=1000) == value


@each(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "a list instead of an object"),
        (b'{"a":' * 5 + b"1" + b"}" * 5, "more than 4 levels"),
        (b"[" * 100_000, "more than 4 levels|values"),
        (b'{"a":[' + b"1," * 60 + b"1]}", "about 62 values; at most 50"),
        (b'{"a":1,"a":2}', "a key twice"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":1e999}', "not finite"),
        (b'{"a":18446744073709551616}', "more than 64 bits"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":"\x1b', "not JSON"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":[-1e400]}', "not finite"),
        (b'{"b":[{"a":1,"\\u0061":2}]}', "a key twice"),
        (b'{"a":-99999999999999999999}', "64 bits"),
        (b'{"a":' + b"9" * 5000 + b"}", "64 bits"),
        (b'{"\\udfff":[]}', "surrogate"),
        (b'{"a":["\xed\xa0\x80"]}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ('{"a":1}'.encode("utf-16"), "not JSON"),
        (b"null", "a NoneType instead"),
        (b"{}{}", "not JSON"),
        (b'{"a":1', "not JSON"),
    ],
)
def test_bad_texts_are_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(BoundedJsonError, match=reason):
        parse_bounded(data, depth=4, values=50)


def test_brackets_in_texts_are_no_levels() -> None:
    for text in ("[" * 5000, '"[' * 5000, '\\"[{' * 5000, "\\" * 5001 + "[" * 99):
        assert parse_bounded(dump_bounded({"a": text}, depth=2, values=5), depth=2, values=5) == {"a": text}
    assert parse_bounded(b'{"a":"\\ud83d\\ude00"}', depth=2, values=5) == {"a": "\U0001f600"}


@pytest.mark.parametrize(
    "text",
    [b'{"a":"' + b'\\"' * 300_000, b'{"a":"' + b'\\"' * 300_000 + b"\\", b'"' * 300_001, b"[" * 99 + b'"' * 300_001],
    ids=["open", "cut in an escape", "quotes", "brackets"],
)
def test_texts_without_an_end_are_looked_at_once(text):
    """A search that began anew at every quote would take hours."""
    with pytest.raises(BoundedJsonError):
        parse_bounded(text + b"[" * 40, depth=32, values=1 << 20)


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": {1, 2}}, {"a": [[[[[[1]]]]]]}])
def test_what_would_be_refused_is_not_written(value: dict[str, object]) -> None:
    with pytest.raises(BoundedJsonError):
        dump_bounded(value, depth=4, values=50)


def test_true_is_no_integer() -> None:
    assert [is_integer(one) for one in (0, 7, True, 1.0, -1, "1", 1 << 64)] == [True, True] + [False] * 5


def test_a_shown_value_is_short_and_printable() -> None:
    assert show_value("\x1b[31m" + "x" * 500) == "'\\x1b[31m" + "x" * 91 + "... (410 characters more)"

"""Tables of fields: what fits, and how what does not is named."""

import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st

from paddle_base.runtime.schema import (
    Fields,
    Integer,
    Items,
    Maybe,
    Named,
    Number,
    Protocol,
    Record,
    Row,
    SchemaError,
    Shape,
    Such,
    Text,
    Truth,
    Word,
    parse_object,
)

FIELDS = Fields(
    count=Integer(1, 9),
    share=Number(0.0, 1.0),
    name=Text(4, least=1),
    is_on=Truth(),
    state=Word(("up", "down")),
    last=Maybe(Integer()),
    lines=Items(Text(3), 2),
    inner=Fields(a=Integer()),
)
GOOD = {
    "count": 1,
    "share": 0.5,
    "name": "n",
    "is_on": False,
    "state": "up",
    "last": None,
    "lines": ["a", ""],
    "inner": {"a": 0},
}


def test_a_body_that_fits_is_taken() -> None:
    FIELDS.check(GOOD, "report")
    FIELDS.check({**GOOD, "last": 3, "share": 1}, "report")


@each(
    ("change", "reason"),
    [
        ({"count": 0}, "report.count is 0, not a whole number from 1 to 9"),
        ({"count": True}, "report.count is True"),
        ({"count": 1.0}, "report.count is 1.0"),
        ({"share": 1.5}, "report.share is 1.5, not a number from 0 to 1"),
        ({"share": True}, "report.share is True"),
        ({"share": "0"}, "report.share is '0'"),
        ({"name": ""}, "report.name is '', not a text of 1 to 4 characters"),
        ({"name": "abcde"}, "report.name is 'abcde'"),
        ({"is_on": 0}, "report.is_on is 0, not true or false"),
        ({"state": "odd"}, "report.state is 'odd', not one of up, down"),
        ({"state": []}, r"report.state is \[\]"),
        ({"last": "x"}, "report.last is 'x'"),
        ({"lines": ["a", "b", "c"]}, "not a list of at most 2 values"),
        ({"lines": "ab"}, "not a list"),
        ({"lines": [1]}, r"report.lines\[0\] is 1"),
        ({"inner": {}}, "report.inner has no a"),
        ({"inner": []}, r"report.inner is \[\], not an object"),
        ({"other": 1}, "report has 'other', which is not in the protocol"),
    ],
)
def test_a_field_that_does_not_fit_is_named(change: dict[str, object], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as caught:
        FIELDS.check({**GOOD, **change}, "report")
    assert caught.value.code == "schema"


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(SchemaError, match="report has no count"):
        FIELDS.check({key: value for key, value in GOOD.items() if key != "count"}, "report")


@each("shape", [Integer(), Number(), Text(5), Truth(), Word(("a",)), Items(Truth(), 1), Fields()])
def test_null_is_taken_only_where_the_table_says_so(shape: Shape) -> None:
    with pytest.raises(SchemaError):
        shape.check(None, "x")
    Maybe(shape).check(None, "x")


FILE = Record(
    "sums",
    files=Named(Such(Text(9), str.islower, "a name in small letters"), Integer(), 2),
    parameter=Row((Text(9), Integer(), Truth()), optional=1),
    sums=Items(Integer(), 1),
)
WRITTEN = {"files": {"w": 4}, "parameter": ["w", 4, True]}


def test_a_file_may_lack_optional_values_and_have_those_of_a_later_release() -> None:
    for change in ({}, {"sums": [1]}, {"later": None}, {"parameter": ["w", 4]}, {"files": {}}):
        FILE.check({**WRITTEN, **change}, "file")
        assert FILE.fits({**WRITTEN, **change})


@each(
    ("change", "reason"),
    [
        ({"sums": None}, "file.sums is None, not a list"),
        ({"sums": [1, 2]}, "file.sums is .*, not a list of at most 1 values"),
        ({"files": []}, "file.files is .*, not an object of at most 2 values"),
        ({"files": {"a": 1, "b": 1, "c": 1}}, "not an object of at most 2 values"),
        ({"files": {"A": 1}}, "a name in file.files is 'A', not a name in small letters"),
        ({"files": {"a" * 10: 1}}, "a name in file.files is 'aaaaaaaaaa', not a text of 0 to 9 characters"),
        ({"files": {"w": "4"}}, r"file.files\['w'\] is '4', not a whole number"),
        ({"parameter": ["w"]}, r"file.parameter is \['w'\], not a list of 3 values"),
        ({"parameter": ["w", 4, True, 0]}, "not a list of 3 values"),
        ({"parameter": "w4"}, "not a list of 3 values"),
        ({"parameter": ["w", True]}, r"file.parameter\[1\] is True"),
    ],
)
def test_a_value_of_a_file_that_does_not_fit_is_named(change: dict[str, object], reason: str) -> None:
    assert not FILE.fits({**WRITTEN, **change})
    with pytest.raises(SchemaError, match=reason):
        FILE.check({**WRITTEN, **change}, "file")


@each("text", ["", "[]", "[" * 99, '{"files":1', '{"files":1,"files":1}', "\ud800", b"\xff", '{"files":{}}'])
def test_a_text_that_is_no_such_object_is_refused_by_its_name(text: str | bytes) -> None:
    with pytest.raises(SchemaError, match=r"^the file "):
        parse_object(text, FILE, "the file", depth=3, values=20)


def test_an_error_never_shows_a_value_that_may_be_a_password() -> None:
    shape = Such(Text(9), str.isalpha, "a word", is_secret=True)
    for value in ("pass1234", "password-1234", 1234, None):
        with pytest.raises(SchemaError, match=r"^environ.PASSWORD is not a word$"):
            shape.check(value, "environ.PASSWORD")
    shape.check("word", "x")


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
_ANYTHING = st.recursive(
    _SCALARS,
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.sampled_from([*GOOD, *WRITTEN, "sums", "a"]), one),
)


@given(st.sampled_from([(FIELDS, GOOD), (FILE, WRITTEN)]), st.data())
def test_whatever_a_field_holds_it_fits_or_is_refused(
    table: tuple[Shape, dict[str, object]], data: st.DataObject
) -> None:
    """`fits` and `check` agree, and `check` raises no other error."""
    shape, good = table
    value = data.draw(_ANYTHING | st.fixed_dictionaries({name: st.just(one) | _ANYTHING for name, one in good.items()}))
    try:
        shape.check(value, "x")
    except SchemaError as exc:
        assert not shape.fits(value)
        assert str(exc).isprintable()
    else:
        assert shape.fits(value)


def test_a_protocol_is_named_with_its_version() -> None:
    assert Protocol("rendezvous", 3).title == "rendezvous/3"

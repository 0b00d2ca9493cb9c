"""Tables of fields: what fits, and how what does not is named."""

import pytest
from each import each

from paddle_base.runtime.schema import (
    Fields,
    Integer,
    Items,
    Maybe,
    Number,
    Protocol,
    SchemaError,
    Shape,
    Text,
    Truth,
    Word,
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


def test_a_protocol_is_named_with_its_version() -> None:
    assert Protocol("rendezvous", 3).title == "rendezvous/3"

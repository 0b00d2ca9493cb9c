"""What driver and agent say to each other, and what is no word of theirs."""

from __future__ import annotations

import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.schema import SchemaError
from paddle_cluster.elastic.agent.protocol import (
    AgentState,
    OutputAnswer,
    StreamMark,
    StreamPart,
    WorkerLaunch,
    is_name,
    read_launch,
    read_mark,
    read_output_answer,
    read_state,
    write_mark,
)

NEWS = OutputAnswer({"stdout": StreamPart(3, b"a\nb", 10), "stderr": StreamPart(0, b"", 0)}, 7)


def test_what_is_written_is_read() -> None:
    launch = WorkerLaunch(("python", "a b", ""), {"HOROVOD_RANK": "1"}, 1)
    assert read_launch(launch.encode()) == launch
    state = AgentState("a1", 2, True)
    assert read_state(state.encode()) == state
    assert read_output_answer(NEWS.encode()) == NEWS
    for mark in (StreamMark(), StreamMark(5, 9)):
        assert read_mark(write_mark(mark)) == mark


@each(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"argv":[],"environ":{},"rank":0}',
        b'{"argv":[""],"environ":{},"rank":0}',
        b'{"argv":["a",1],"environ":{},"rank":0}',
        b'{"argv":["a\\u0000"],"environ":{},"rank":0}',
        b'{"argv":["a"],"environ":{"A=B":"c"},"rank":0}',
        b'{"argv":["a"],"environ":{"A":1},"rank":0}',
        b'{"argv":["a"],"environ":{},"rank":-1}',
        b'{"argv":["a"],"environ":{},"rank":true}',
        b'{"argv":["a"],"environ":{"B":"\\u0000"},"rank":0}',
    ],
)
def test_a_launch_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(SchemaError):
        read_launch(body)


def test_the_value_of_a_variable_is_not_in_an_error() -> None:
    body = WorkerLaunch(("python",), {"PASSWORD": "sesame\0"}, 0).encode()
    with pytest.raises(SchemaError, match=r"environ\['PASSWORD'\] is not a text without null characters$"):
        read_launch(body)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"agent":"a b","workers":0}', b'{"agent":"a","workers":-1}'])
def test_a_state_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(SchemaError):
        read_state(body)


@each(
    "body",
    [
        b"{}",
        b"{}\n",
        b'{"stdout":[0,0,0],"stderr":[0,0,0],"exit":256}\n',
        b'{"stdout":[0,2,1],"stderr":[0,0,0],"exit":null}\nab',
        b'{"stdout":[0,2,2],"stderr":[0,0,0],"exit":null}\na',
        b'{"stdout":[0,0,0],"stderr":[0,0,0],"exit":null}\na',
        b'{"stdout":[0,0],"stderr":[0,0,0],"exit":null}\n',
    ],
)
def test_news_that_are_none_are_refused(body: bytes) -> None:
    with pytest.raises(SchemaError):
        read_output_answer(body)


@settings(deadline=None)  # no limit of time: the machine may be busy
@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused_by_either_side(body: bytes) -> None:
    for read in (read_launch, read_state, read_output_answer):
        with pytest.raises(SchemaError):
            read(body)


@each("text", ["", "1", "1.", "-2.0", "1.2.3", "1.-1", "9" * 30 + ".0"])
def test_a_mark_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        read_mark(text)


def test_names_have_no_characters_of_paths() -> None:
    assert is_name("0a-b_c.d")
    assert not any(map(is_name, ["", "a/b", "a b", "a?b", "a" * 65]))

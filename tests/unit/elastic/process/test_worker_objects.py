"""Objects come back as they were, without pickle, and hostile bytes run nothing."""

from __future__ import annotations

import contextlib
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.collectives.dtypes import BFLOAT16
from paddle_cluster.elastic.process.objects import dump_object, load_object

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
OBJECTS = st.recursive(
    SCALARS | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.booleans(), inner)
    ),
    max_leaves=20,
)


@settings(deadline=None)  # no limit of time: the machine may be busy
@given(OBJECTS)
def test_data_comes_back_as_it_was(value: object) -> None:
    assert repr(load_object(dump_object(value))) == repr(value)


def test_an_array_of_bfloat16_has_this_name_on_the_way() -> None:
    """It had numpy's name of any two bytes, "void16"."""
    value = np.array([0x3F80, 0xFFC0], np.uint16).view(BFLOAT16)
    data = dump_object(value)
    assert b'"bfloat16"' in data
    found = load_object(data)
    assert (found.dtype, found.tobytes()) == (BFLOAT16, value.tobytes())


def test_arrays_come_back_as_they_were() -> None:
    value = {"w": np.arange(6.0).reshape(2, 3), "n": np.int64(7), "empty": np.empty((0, 2), np.float16), ("a", 1): b"x"}
    result = load_object(dump_object(value))
    assert result.keys() == value.keys()
    for name in ("w", "n", "empty"):
        assert result[name].dtype == value[name].dtype
        np.testing.assert_array_equal(result[name], value[name])
    assert result["w"].flags.writeable
    assert isinstance(result["n"], np.int64)


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array(["a"]), np.array([None]), 1j])
def test_other_objects_are_refused_with_their_place(value: object) -> None:
    with pytest.raises(TypeError, match=r"the object\['model'\]\[1\] is .*unsafe_pickle=True"):
        dump_object({"model": [0, value]})


def test_an_integer_that_no_reader_accepts_is_refused_where_it_is_written() -> None:
    """10**4100 was sent, and the other ranks could not read it; 10**5000 was a ValueError that names no place."""
    assert load_object(dump_object(-(1 << 13_199))) == -(1 << 13_199)
    for value in (1 << 13_200, -(10**4100), 10**5000):
        with pytest.raises(TypeError, match=r"the object\['n'\] is an integer of \d+ bits"):
            dump_object({"n": value})


def test_an_object_that_holds_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(TypeError, match="deep"):
        dump_object(value)


def test_pickle_is_used_only_where_it_is_asked_for() -> None:
    assert load_object(dump_object({1, 2}, unsafe_pickle=True), unsafe_pickle=True) == {1, 2}
    with pytest.raises(DataError):
        load_object(pickle.dumps({"a": 1}))


@pytest.mark.parametrize("text", ["0x1p99999", f"0x{'f' * 5000}p0"])
def test_a_number_beyond_every_float_is_refused(text: str) -> None:
    head = json.dumps({"value": {"float": text}}).encode()
    with pytest.raises(DataError, match="OverflowError"):
        load_object(len(head).to_bytes(4, "little") + head)


@settings(deadline=None)  # no limit of time: the machine may be busy
@given(st.data())
def test_damaged_bytes_are_refused_or_other_data(data: st.DataObject) -> None:
    content = bytearray(dump_object({"a": [1, 2.5, "x", b"yz", (None, True)], "w": np.arange(3)}))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        load_object(bytes(content[: data.draw(st.integers(0, len(content)))]))

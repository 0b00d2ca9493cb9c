"""Pickles of plain values: read as `pickle` reads them, without its power to run code, and within limits."""

import collections
import contextlib
import os
import pickle
import pickletools
import struct
import tracemalloc

import numpy as np
import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st

from trainer.data import plain_pickle
from trainer.data.plain_pickle import PlainPickleError, load_plain, load_sample

KEYS = st.text() | st.binary() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.booleans() | st.none()
SIMPLE = KEYS | st.integers(-(2**200), 2**200)
PLAIN = st.recursive(
    SIMPLE, lambda part: st.lists(part) | st.lists(part).map(tuple) | st.dictionaries(KEYS, part), max_leaves=20
)


@given(PLAIN, st.integers(1, 5))
def test_plain_values_are_read_as_pickle_reads_them(value, protocol):
    data = pickle.dumps(value, protocol)
    if any(code.name == "GLOBAL" for code, _, _ in pickletools.genops(data)):  # of bytes before protocol 3
        with pytest.raises(PlainPickleError, match="it names a class or function"):
            load_plain(data)
    else:
        assert load_plain(data) == value


def test_what_v0_10_wrote_is_read():
    text = (
        "(dp1\nS'slots'\np2\n(lp3\nS'x dense 6'\np4\naS'label \\xc3\\xa4'\np5\naI01\naL12L\naF0.5\naVz\\u00e4\np6\nas."
    )
    assert load_plain(text.encode("latin-1")) == {"slots": ["x dense 6", "label ä", True, 12, 0.5, "zä"]}


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was-here",)


class Point:
    def __init__(self):
        self.x = 1


@each(
    "value",
    [Evil(), {"a": [Evil()]}, Point(), os.getpid, collections.OrderedDict(a=1), {1, 2}, 1 + 2j, bytearray(b"a"), range],
    ids=["call", "inside", "object", "function", "class", "set", "complex", "bytearray", "type"],
)
@each("protocol", range(6))
def test_nothing_else_is_read_and_no_code_runs(value, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlainPickleError, match="not consist of plain values only"):
        load_plain(pickle.dumps(value, protocol))
    assert list(tmp_path.iterdir()) == []


def test_no_instruction_that_could_run_code_is_kept():
    kept = plain_pickle._PlainUnpickler.dispatch
    names = {one.name for one in pickletools.opcodes if ord(one.code) in kept}
    assert {one.name for one in pickletools.opcodes} - names == {
        *("REDUCE", "BUILD", "OBJ", "NEWOBJ", "NEWOBJ_EX"),  # they call what GLOBAL, INST or STACK_GLOBAL has found
        *("EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"),  # they name objects outside of the pickle
        *("EMPTY_SET", "ADDITEMS", "FROZENSET", "BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER"),
    }


def doubled(times):
    return b"]" + b"".join(b"q\x000]h\x00ah\x00a" for _ in range(times)) + b"."


@each(
    ("data", "message"),
    [
        (b"", "cut off"),
        (b"N" * (plain_pickle.MOST_BYTES + 1), "bytes, but the limit is .* bytes"),
        (b"]q\x00h\x00a.", "more than 64 levels"),
        (b"]" * 100 + b"a" * 99 + b".", "more than 64 levels"),
        (
            b"\x8b" + struct.pack("<i", 1 << 20) + b"x" * (1 << 20) + b".",
            "a number has .* bits, but the limit is 4096 bits",
        ),
        (b"\x8b" + struct.pack("<i", -5) + b".", "it is no pickle"),
        (b"I" + b"9" * 100_000 + b"\n.", "it is no pickle"),
        (b"X" + struct.pack("<I", 0xFFFFFFFF) + b"x.", "cut off"),
        (b"\x8d" + struct.pack("<Q", 1 << 62) + b"x.", "cut off"),
        (b"\x8e" + struct.pack("<Q", 1 << 62) + b"x.", "cut off"),
        (b"h\x05.", "it is no pickle"),
        (b"N0.", "it is no pickle"),
        (b"(.", "it is no pickle"),
        (b"a.", "it is no pickle"),
        (b"NNa.", "it is no pickle"),
        (b"(NNNd.", "a key has no value"),
        (b"]NNs.", "a key has no value, or no dict"),
        (b"()Nd.", "a key of a dict"),
        (b"(" + pickle.dumps(1 << 70, 2)[2:-1] + b"Nd.", "a key of a dict"),
        (b"e.", "it is no pickle"),
        (b"\xff.", "no instruction"),
        (b"P1\n.", "plain values only: instruction PERSID"),
        (b"\x82\x01.", "plain values only: instruction EXT1"),
        (b"S(\n.", "must be quoted"),
        (b"S'\\x\n.", "must be quoted"),
        (b"S'\\xz'\n.", "it is no pickle"),
    ],
)
def test_bombs_and_rubbish_are_refused(data, message):
    with pytest.raises(PlainPickleError, match=message):
        load_plain(data)


def test_a_large_number_of_a_value_takes_no_memory():
    """`pickle.Unpickler` in C allocates a table of 64 GB for these seven bytes."""
    tracemalloc.start()
    try:
        assert load_plain(b"Nr\xff\xff\xff\xff.") is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("most", [1 << 14, pytest.param(plain_pickle.MOST_VALUES, marks=pytest.mark.nightly)])
def test_a_bomb_of_lists_in_lists_ends_at_the_limit_of_values(monkeypatch, most):
    assert plain_pickle.MOST_VALUES <= 1 << 22  # counted in 3 s
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", most)
    with pytest.raises(PlainPickleError, match=f"more than {most} values"):
        load_plain(doubled(60))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_one_error(data):
    with contextlib.suppress(PlainPickleError):
        load_plain(data)


@given(PLAIN, st.integers(0, 10_000), st.binary(min_size=1, max_size=1))
def test_a_changed_byte_gives_a_value_or_one_error(value, place, byte):
    data = pickle.dumps(value, 2)
    place %= len(data)
    with contextlib.suppress(PlainPickleError):
        load_plain(data[:place] + byte + data[place + 1 :])


@pytest.mark.parametrize("protocol", range(6))
def test_samples_with_arrays_and_numbers_of_numpy_are_read(protocol):
    matrix = np.arange(6, dtype="f4").reshape(2, 3)
    arrays = [matrix, np.asfortranarray(np.eye(2, 3)), np.array([1, 2], ">i2"), np.array(True)]
    sample = (arrays, np.float32(2.5), np.int64(-3), b"\xff\x00", {"a": [arrays[0]]})
    found = load_sample(pickle.dumps(sample, protocol))
    assert found[1:4] == (2.5, -3, b"\xff\x00")
    assert type(found[1]) is np.float32
    for one, wanted in zip([*found[0], found[4]["a"][0]], [*arrays, arrays[0]], strict=True):
        assert one.dtype == wanted.dtype
        assert np.array_equal(one, wanted)
    found[0][0][0] = 7  # a program may change a sample


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", r"names a class or function \(os.system\)"),
        (b"cnumpy\nload\n(S'x'\ntR.", r"names a class or function \(numpy.load\)"),
        (b"cnumpy\nndarray\n.", "is a type or function of numpy"),
        (b"cnumpy\ndtype\n(S'O'\ntR.", "elements of the type 'O'"),
        (b"cnumpy\ndtype\n(S'V99999999999'\ntR.", "elements of the type 'V99999999999'"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.", "of a subclass"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR.", "an array has no content"),
        (b"(dS'x'\nI1\nsS'y'\nb.", "fills what is no array"),
        (b"cnumpy\ndtype\n}b.", "fills what is no array"),
        (b"(lI1\ntR.", "it is no pickle"),
    ],
)
def test_samples_name_no_code(data, said):
    with pytest.raises(PlainPickleError, match=said):
        load_sample(data)


def test_bytes_that_many_arrays_of_a_pickle_copy_are_counted():
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    one = made + b"(I1\n(I1000\ntcnumpy\ndtype\n(S'u1'\ntRI00\n%stb"
    data = b"(l" + one % (b"T\xe8\x03\x00\x00" + b"x" * 1000 + b"p9\n") + b"a" + (one % b"g9\n" + b"a") * 20 + b"."
    with pytest.raises(PlainPickleError, match="its arrays have more bytes than the pickle"):
        load_sample(data)

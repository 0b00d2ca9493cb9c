"""Readers of paddle.v2: the rules that upstream's own tests pin, and exceptions that reach the program."""

import itertools
import random
import sys
import threading
import traceback
import zlib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from waiting import until

from paddle.v2.dataset import common
from paddle.v2.minibatch import batch
from paddle.v2.reader import (
    ComposeNotAligned,
    buffered,
    chain,
    compose,
    creator,
    firstn,
    map_readers,
    pipe_reader,
    shuffle,
    xmap_readers,
)
from paddle_base.recordio.writing import RecordIOWriter
from paddle_base.runtime.errors import DataError, MissingInputError


def numbers(n):
    return lambda: iter(range(n))


def failing_at(n):
    def reader():
        yield from range(n)
        raise KeyError("the reader's own")

    return reader


def test_map_readers_ends_with_the_shortest():
    assert list(map_readers(lambda a, b: a * b, numbers(4), numbers(3))()) == [0, 1, 4]


@pytest.mark.parametrize("size", [0, 1, 10, 100])
def test_shuffle_keeps_all_samples_and_with_small_buffers_the_order(size):
    random.seed(0)
    found = list(shuffle(numbers(10), size)())
    assert sorted(found) == list(range(10))
    assert (found == list(range(10))) == (size < 2)


def test_chain_calls_all_readers_before_the_first_sample():
    called = []

    def reader(name):
        return lambda: called.append(name) or iter([name])

    samples = chain(reader("a"), reader("b"))()
    assert next(samples) == "a"
    assert called == ["a", "b"]


def test_compose_joins_samples_and_refuses_readers_of_unequal_length():
    pairs = lambda: iter([(1, 2), (3, 4)])  # noqa: E731
    assert list(compose(pairs, numbers(2))()) == [(1, 2, 0), (3, 4, 1)]
    found = compose(numbers(3), numbers(2))()
    assert [next(found), next(found)] == [(0, 0), (1, 1)]
    with pytest.raises(ComposeNotAligned, match="reader 1 of compose ends"):
        next(found)
    assert len(list(compose(numbers(3), numbers(2), check_alignment=False)())) == 2
    assert list(compose(lambda: iter([None]), numbers(1))()) == [(None, 0)]  # v0.11 took None for the end


@pytest.mark.parametrize("size", range(4))
def test_buffered_keeps_all_samples(size):
    assert list(buffered(numbers(20), size)()) == list(range(20))


def test_firstn_gives_the_first_samples():
    assert list(firstn(itertools.count, 3)()) == [0, 1, 2]


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [1, 10])
def test_xmap_readers_maps_all_samples_in_each_pass(order, threads, size):
    reader = xmap_readers(lambda n: n + 1, numbers(20), threads, size, order)
    for _ in range(3):
        assert list(reader()) == list(range(1, 21))


def test_xmap_readers_reads_ahead_no_further_than_its_buffer():
    go, taken = threading.Event(), []

    def reader():
        for number in range(100):
            taken.append(number)
            yield number

    def slow(number):
        assert number or go.wait(60)
        return number

    found = xmap_readers(slow, reader, 2, 4)()
    threading.Timer(0.3, go.set).start()
    assert next(found) == 0
    assert len(taken) < 20


@pytest.mark.parametrize(
    "reader",
    [
        buffered(failing_at(3), 2),
        xmap_readers(lambda n: n, failing_at(3), 2, 2),
        xmap_readers(lambda n: {0: 0, 1: 1, 2: 2}[n], numbers(4), 2, 2, order=True),
    ],
    ids=["buffered", "reader of xmap", "mapper of xmap"],
)
def test_an_exception_in_a_thread_reaches_the_program_after_the_samples_before_it(reader):
    found = reader()
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(found)


def test_samples_that_are_still_computed_come_before_the_exception_of_their_reader():
    """They were lost when the reader failed before the mapper was done."""
    program = threading.get_ident()

    def waits_for_a_result():
        stack = traceback.walk_stack(sys._current_frames()[program])
        return any(frame.f_code.co_name == "result" for frame, _ in stack)

    def slow(number):
        until(waits_for_a_result, "the program has read all samples", seconds=10)
        return number

    found = xmap_readers(slow, failing_at(3), 2, 8)()
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(found)


def test_the_thread_ends_when_the_program_leaves_the_loop():
    ended = threading.Event()

    def reader():
        try:
            yield from itertools.count()
        finally:
            ended.set()

    samples = buffered(reader, 2)()
    next(samples)
    samples.close()
    assert ended.wait(60)


@pytest.mark.parametrize("file_type", ["plain", "gzip"])
def test_pipe_reader_gives_the_lines_of_a_command_in_each_pass(tmp_path, file_type):
    text = b"first\nsecond\nlast"
    file = tmp_path / "lines"
    pack = zlib.compressobj(wbits=31)
    file.write_bytes(pack.compress(text) + pack.flush() if file_type == "gzip" else text)
    reader = pipe_reader(f"cat {file}", list, bufsize=4, file_type=file_type)
    assert list(reader()) == ["first", "second", "last"]
    assert list(reader()) == ["first", "second", "last"]
    pieces = pipe_reader(f"cat {file}", lambda piece: [piece], 5, file_type, cut_lines=False)
    assert b"".join(pieces()) == text


def test_pipe_reader_says_what_is_wrong():
    with pytest.raises(TypeError, match="left_cmd must be a string"):
        pipe_reader(["cat"], list)
    with pytest.raises(TypeError, match="parser must be a callable"):
        pipe_reader("cat", 1)
    with pytest.raises(TypeError, match="file_type zip is not allowed"):
        pipe_reader("cat", list, file_type="zip")
    with pytest.raises(ChildProcessError, match="status 1: false"):
        list(pipe_reader("false", list)())


def test_batch_keeps_the_smaller_last_batch():
    assert list(batch(numbers(5), 2)()) == [[0, 1], [2, 3], [4]]


def test_creators_of_arrays_and_lines(tmp_path):
    assert [row.tolist() for row in creator.np_array(np.eye(2))()] == [[1, 0], [0, 1]]
    assert list(creator.np_array(np.float32(2))()) == [2]
    file = tmp_path / "lines.txt"
    file.write_text("a\n b \n", encoding="utf-8")
    assert list(creator.text_file(file)()) == ["a", " b "]


def test_rows_come_from_columns_of_parquet_files(tmp_path):
    for part in range(2):
        table = pa.table({"x": [[part, 1], [2, 3]], "text": ["a b", "c"], "y": [part, None if part else 7]})
        parquet.write_table(table, tmp_path / f"{part}.parquet")
    rows = creator.parquet(f"{tmp_path}/*.parquet", ["text", "x"])
    assert list(rows()) == [("a b", [0, 1]), ("c", [2, 3]), ("a b", [1, 1]), ("c", [2, 3])]
    assert list(creator.parquet([f"{tmp_path}/0.parquet"], "y")()) == [(0,), (7,)]
    with pytest.raises(DataError, match=r"1.parquet row group 0 row 1: column 'y' is null; fill the nulls"):
        list(creator.parquet(f"{tmp_path}/*.parquet", ["y"])())
    with pytest.raises(DataError, match=r"0.parquet has no column 'no'; its columns are x, text, y"):
        list(creator.parquet(f"{tmp_path}/*.parquet", ["no"])())
    with pytest.raises(MissingInputError, match="there is no table"):
        list(creator.parquet("no*.parquet", ["x"])())


def test_converted_samples_come_back_from_recordio_files(tmp_path):
    samples = [(np.array([n, 0.5], np.float32), n) for n in range(5)]
    common.convert(str(tmp_path), lambda: iter(samples), 2, "part")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-00000", "part-00001"]  # three and two
    for paths in (f"{tmp_path}/part-*", [f"{tmp_path}/part-00001", f"{tmp_path}/part-00000"]):
        found = sorted(creator.recordio(paths)(), key=lambda sample: sample[1])
        assert [number for _, number in found] == list(range(5))
        assert all(vector.dtype == np.float32 and vector.tolist() == [n, 0.5] for vector, n in found)
    with pytest.raises(MissingInputError, match="there is no RecordIO file"):
        list(creator.recordio(f"{tmp_path}/absent-*")())


def test_files_of_samples_that_name_code_are_refused_by_their_names(tmp_path):
    hostile = b"cos\nsystem\n(S'true'\ntR."
    with RecordIOWriter(tmp_path / "records") as writer:
        writer.write(b"I1\n.")
        writer.write(hostile)
    with pytest.raises(DataError, match=r"record 1 of .*/records is no pickled sample: .*\(os.system\)"):
        list(creator.recordio(str(tmp_path / "records"))())
    (tmp_path / "split").write_bytes(hostile)
    with pytest.raises(DataError, match=r"/split is no pickled list of samples: .*\(os.system\)"):
        list(common.cluster_files_reader(str(tmp_path / "split"), 1, 0)())


def test_each_trainer_reads_its_files_of_split(tmp_path):
    common.split(numbers(10), 4, suffix=f"{tmp_path}/part-%05d.pickle")
    assert len(list(tmp_path.iterdir())) == 3
    shares = [list(common.cluster_files_reader(f"{tmp_path}/part-*", 2, number)()) for number in (0, 1)]
    assert shares == [[0, 1, 2, 3, 4, 9], [5, 6, 7, 8]]
    with pytest.raises(MissingInputError, match="no file matches"):
        list(common.cluster_files_reader(f"{tmp_path}/absent-*", 2, 0)())
    with pytest.raises(TypeError, match="dumper should be callable"):
        common.split(numbers(1), 1, dumper=None)

"""Samples from Parquet and Arrow files: the order of a provider of rows, positions, and columns that do not fit."""

import json
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pytest
from each import each
from pyarrow import feather, parquet

from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.arrays.rng import Stream
from trainer.config.scripts.parse import parse_config
from trainer.data.input_types import index_slot
from trainer.data.loading import open_source
from trainer.data.provider2 import (
    CacheType,
    dense_vector,
    dense_vector_sequence,
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    provider,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_float_vector,
)
from trainer.data.source import DataSource, DataStreams
from trainer.data.tables import mixing
from trainer.data.tables.provider import make_provider

KINDS = {
    "dense": dense_vector(3),
    "frames": dense_vector_sequence(2),
    "id": integer_value(1000),
    "ids": integer_value_sequence(1000),
    "lists": dense_vector(2),
    "parts": integer_value_sub_sequence(1000),
    "set": sparse_binary_vector(1000),
    "sets": sparse_binary_vector_sequence(1000),
    "weights": sparse_float_vector(1000),
    "mapped": sparse_float_vector(1000),
}
COLUMNS = {"dense": ["a", "b", "c"], "set": ["ids"], "weights": ["ids", "numbers"]}


def make_rows(first, count):
    for number in range(first, first + count):
        ids = [number + step for step in range(number * 7 % 5)]
        yield {
            "a": number, "b": number % 2 == 0, "c": number / 3,
            "frames": [[one, number] for one in ids],
            "id": float(number),
            "ids": ids,
            "lists": [number, 2],
            "parts": [ids, [], [number]],
            "sets": [[number], []],
            "numbers": [one / 2 for one in ids],
            "mapped": [(one, one / 4) for one in ids],
        }  # fmt: skip


SCHEMA = pa.schema({
    "a": pa.int64(), "b": pa.bool_(), "c": pa.float64(),
    "frames": pa.list_(pa.list_(pa.float32(), 2)),
    "id": pa.float32(),
    "ids": pa.list_(pa.int32()),
    "lists": pa.list_(pa.float32()),
    "parts": pa.large_list(pa.list_(pa.int64())),
    "sets": pa.list_(pa.list_(pa.uint16())),
    "numbers": pa.list_(pa.float64()),
    "mapped": pa.map_(pa.int32(), pa.float32()),
})  # fmt: skip


def to_sample(row):
    return {
        **row,
        "dense": [row["a"], row["b"], row["c"]],
        "id": int(row["id"]),
        "set": row["ids"],
        "weights": list(zip(row["ids"], row["numbers"], strict=True)),
    }


def write_files(folder, sizes, rows=make_rows):
    """Write tables of these numbers of rows in turn as Parquet, Feather and an Arrow stream; return their names."""
    names = []
    for number, size in enumerate(sizes):
        table = pa.Table.from_pylist(list(rows(100 * number, size)), SCHEMA)
        names.append(str(folder / f"{number}.table"))
        if number % 3 == 0:
            parquet.write_table(table, names[-1], row_group_size=17)
        elif number % 3 == 1:
            feather.write_feather(table, names[-1], chunksize=11)
        else:
            with pa.ipc.new_stream(names[-1], SCHEMA) as output:
                output.write_table(table, max_chunksize=13)
    return names


def open_tables(files, kinds, columns=None, *, shuffled=True, state=1, **options):
    columns = columns or {}
    slots = [(name, kind.dim, kind.seq_type, kind.type, columns.get(name, [name])) for name, kind in kinds.items()]
    settings = make_provider({"slots": slots, **options})(files, is_train=True, input_order=sorted(kinds))
    return DataSource(settings, files, shuffled=shuffled, streams=DataStreams(Stream(state), mixing=Stream(1)))


def open_rows(files, *, shuffled=True, **options):
    def process(settings, name):
        number = int(name.rpartition("/")[2].partition(".")[0])
        yield from map(to_sample, make_rows(100 * number, settings.sizes[number]))

    def hook(settings, sizes, **_):
        settings.sizes = sizes

    made = provider(input_types=KINDS, init_hook=hook, **options)(process)
    settings = made(files, is_train=True, input_order=sorted(KINDS), sizes=SIZES)
    return DataSource(settings, files, shuffled=shuffled, streams=DataStreams(Stream(1), mixing=Stream(1)))


SIZES = [40, 23, 0, 31, 5]


def describe(argument):
    sparse = argument.sparse
    arrays = [argument.value, argument.ids, argument.starts, argument.sub_starts]
    arrays += [] if sparse is None else [sparse.offsets, sparse.ids, sparse.values]
    return [None if one is None else (one.dtype.str, one.tolist()) for one in arrays]


def read_pass(source, size=7, begun=False):
    if not begun:
        source.start_pass()
    found = []
    while (batch := source.next_batch(size)) is not None:
        found.append(({name: describe(one) for name, one in sorted(batch[0].items())}, batch[1]))
    return found


@each(
    "options",
    [
        {},
        {"shuffled": False},
        {"pool_size": 30, "min_pool_size": 20},
        {"cache": CacheType.CACHE_PASS_IN_MEM},
        {"small": True},
    ],
    ids=["shuffled", "in order", "small pool", "cached", "small blocks"],
)
def test_samples_come_as_from_a_provider_that_yields_each_row(tmp_path, monkeypatch, options):
    options = dict(options)
    if options.pop("small", False):
        monkeypatch.setattr("trainer.data.tables.blocks.FIRST_ROWS", 2)
        monkeypatch.setattr("trainer.data.tables.blocks.CHUNK_BYTES", 300)
        monkeypatch.setattr(mixing, "DRAWS", 9)
    files = write_files(tmp_path, SIZES)
    of_rows, of_tables = open_rows(files, **options), open_tables(files, KINDS, COLUMNS, **options)
    for _ in range(2):
        wanted, found = read_pass(of_rows), read_pass(of_tables)
        assert sum(units for _, units in found) == sum(SIZES)
        assert found == wanted


def test_a_single_file_comes_as_from_a_provider_that_yields_each_row(tmp_path):
    files = write_files(tmp_path, SIZES[:1])
    assert read_pass(open_tables(files, KINDS, COLUMNS)) == read_pass(open_rows(files))


@each(
    "options",
    [{}, {"shuffled": False}, {"pool_size": 30, "min_pool_size": 20}, {"cache": CacheType.CACHE_PASS_IN_MEM}],
    ids=["shuffled", "in order", "small pool", "cached"],
)
def test_another_source_goes_on_from_every_batch(tmp_path, options):
    files = write_files(tmp_path, SIZES)
    kinds = {"id": KINDS["id"], "ids": KINDS["ids"]}
    source = open_tables(files, kinds, **options)
    source.track()
    read_pass(source)
    source.start_pass()
    batches, positions = [], []
    while (batch := source.next_batch(7)) is not None:
        batches.append(describe(batch[0]["id"]))
        positions.append((json.loads(json.dumps(source.position(len(batches)))), source._stream.state))
    for count, (position, state) in enumerate(positions, 1):
        other = open_tables(files, kinds, state=77, **options)
        other.resume(position, 7)
        other._stream.state = state
        assert [batch["id"] for batch, _ in read_pass(other, begun=True)] == batches[count:]


def test_more_files_than_are_open_at_a_time_are_all_read(tmp_path, monkeypatch):
    monkeypatch.setattr(mixing, "MOST_OPEN", 3)
    files = write_files(tmp_path, [7, 1, 0, 5, 9, 2, 2, 8])
    source = open_tables(files, {"id": KINDS["id"]})
    ids = [one for batch, _ in read_pass(source) for one in batch["id"][1][1]]
    assert sorted(ids) == [row["id"] for number, size in enumerate([7, 1, 0, 5, 9, 2, 2, 8])
                           for row in make_rows(100 * number, size)]  # fmt: skip


def write(folder, *columns, names="x", rows_in_group=2):
    table = pa.table(dict(zip(names, columns, strict=True)))
    parquet.write_table(table, folder / "t.parquet", row_group_size=rows_in_group)
    return ["t.parquet"]


TEXT = pa.array(["a", "b", "c"])
WRONG = {
    "missing": (index_slot(5), {"x": ["y"]}, pa.array([1, 2, 3]),
        "t.parquet has no column 'y'; its columns are x"),
    "text": (index_slot(5), {}, TEXT,
        "t.parquet: column 'x' of slot x (integer_value(5)) is of type string, and whole numbers are needed"),
    "structure": (dense_vector(2), {}, pa.array([{"a": 1, "b": 2}] * 3),
        "column 'x' of slot x (dense_vector(2)) is of type struct<a: int64, b: int64>, and lists are needed"),
    "nested label": (index_slot(5), {}, pa.array([[1], [2], [3]]),
        "is of type list<element: int64>, which is nested, and whole numbers are needed"),
    "null": (index_slot(5), {}, pa.array([1, 2, 3, None]),
        "t.parquet row group 1 row 1: column 'x' of slot x (integer_value(5)) is null; fill the nulls, or leave such "
        "rows out"),
    "null inside": (integer_value_sequence(5), {}, pa.array([[1], [], [2], [3, None]]),
        "t.parquet row group 1 row 1: column 'x' of slot x (integer_value_sequence(5)) is null"),
    "null number": (dense_vector(2), {}, pa.array([[1.0, 2.0], [3.0, None]], pa.list_(pa.float32(), 2)),
        "t.parquet row group 0 row 1: column 'x' of slot x (dense_vector(2)) is null"),
    "fraction": (index_slot(5), {}, pa.array([1.0, 2.0, 4.5]),
        "t.parquet row group 1 row 0: column 'x' of slot x (integer_value(5)) has 4.5, which is no whole number"),
    "nan label": (index_slot(5), {}, pa.array([1.0, float("nan")]), "has nan, which is no whole number"),
    "range": (index_slot(5), {}, pa.array([1, 2, 3, 5]),
        "t.parquet row group 1 row 1: column 'x': slot x (integer_value(5)): id 5 is not in [0, 5); it must be an id "
        "below 5"),
    "nan": (dense_vector(1), {}, pa.array([1.0, 2.0, float("nan")]),
        "t.parquet row group 1 row 0: column 'x': slot x (dense_vector(1)): number 1 is nan"),
    "too large": (dense_vector(1), {}, pa.array([1.0, 1e39]), "row group 0 row 1: column 'x': slot x"),
    "length": (dense_vector(2), {}, pa.array([[1.0, 2.0], [1.0, 2.0], [3.0]]),
        "t.parquet row group 1 row 0: column 'x' of slot x (dense_vector(2)) has a list of 1 numbers instead of 2"),
    "id in a list": (integer_value_sequence(5), {}, pa.array([[1], [4], [2, 9]]),
        "t.parquet row group 1 row 0: column 'x': slot x (integer_value_sequence(5)): item 1: id 9 is not in [0, 5)"),
    "two columns": (index_slot(5), {"x": ["x", "x"]}, pa.array([1]), "has one column, not 2"),
}  # fmt: skip


@each("kind, columns, values, text", WRONG.values(), ids=WRONG)
def test_a_column_that_does_not_fit_is_named(tmp_path, monkeypatch, kind, columns, values, text):
    monkeypatch.chdir(tmp_path)
    source = open_tables(write(tmp_path, values), {"x": kind}, columns, shuffled=False)
    with pytest.raises(DataError) as error:
        read_pass(source)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_pairs_of_different_lengths_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = write(tmp_path, pa.array([[1], [2], [3]]), pa.array([[0.5], [1.0], [1.0, 2.0]]), names="xy")
    with pytest.raises(DataError, match=r"row group 1 row 0: column 'y' .* has 2 values for 1 ids"):
        read_pass(open_tables(files, {"x": sparse_float_vector(9)}, {"x": ["x", "y"]}))


def test_a_file_that_is_absent_or_of_another_format_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = write(tmp_path, pa.array([1]))
    with pytest.raises(MissingInputError, match=r"the table 'no.parquet' of the list cannot be read: No such file"):
        read_pass(open_tables([*files, "no.parquet"], {"x": index_slot(5)}))
    (tmp_path / "rows.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match=r"rows.csv begins with b'x\\n1\\n', which is no Parquet or Arrow file"):
        read_pass(open_tables([*files, "rows.csv"], {"x": index_slot(5)}, shuffled=False))


def test_a_look_reads_a_row_of_each_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = write(tmp_path, pa.array([1, 9]))
    open_tables(files, {"x": index_slot(5)}).look()  # the second row is not looked at
    parquet.write_table(pa.table({"x": ["a"]}), "late.parquet")
    with pytest.raises(DataError, match=r"late.parquet: column 'x' of slot x .* is of type string"):
        open_tables([*files, "late.parquet"], {"x": index_slot(5)}).look()


CONFIG = """
    from paddle.trainer_config_helpers import *
    from paddle.trainer.PyDataProvider2 import *
    define_parquet_data_sources("train.list", None, {"x": dense_vector(4 / 2), "y": integer_value(3)},
                                columns={"x": ["a", "b"]}, should_shuffle=False)
    settings(batch_size=2)
    outputs(classification_cost(fc_layer(data_layer("x", 2), 3, act=SoftmaxActivation()), data_layer("y", 3)))
"""


@pytest.mark.parametrize("is_own", [True, False], ids=["a config", "a model file"])
def test_a_config_names_files_and_columns(tmp_path, monkeypatch, is_own):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.py").write_text(dedent(CONFIG))
    config = parse_config(str(tmp_path / "config.py"), "").data_config
    assert (config.type, config.files) == ("parquet", "train.list")
    (tmp_path / "train.list").write_text("0.parquet\n")
    parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0], "b": [4, 5, 6], "y": [0, 1, 2]}), "0.parquet")
    source = open_source(
        config,
        [{"x": 2, "y": 3}],
        is_train=True,
        streams=DataStreams(Stream(1), mixing=Stream(1)),
        check=lambda: None,
        is_own=is_own,
    )
    source.start_pass()
    batch, units = source.next_batch(3)
    assert units == 3
    assert np.array_equal(batch["x"].value, [[1, 4], [2, 5], [3, 6]])
    assert batch["y"].ids.tolist() == [0, 1, 2]


@each(
    "arguments",
    [{}, {"slots": 3}, {"slots": [("x", 3, 0, 9, ["x"])]}, {"slots": [("x", 3, 0, 0, [3])]}, {"slots": [("x", 3)]}],
)
def test_arguments_of_another_form_are_refused(arguments):
    with pytest.raises(ConfigError, match="define_parquet_data_sources"):
        make_provider(arguments)

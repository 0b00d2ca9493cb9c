"""Parquet and Arrow tables as inputs of the data job: the same shards as of CSV, and what is refused."""

import datetime
import decimal
import json

import pyarrow as pa
import pytest
from each import each
from pyarrow import csv as arrow_csv
from pyarrow import feather, parquet

from paddle_base.runtime.errors import DataError, MissingInputError, UsageError
from paddle_cluster.prepare.program import main, prepare
from paddle_cluster.prepare.settings import read_settings
from paddle_cluster.prepare.sources import columnar

ROWS = 300
WEATHER = pa.table({
    "wind": [None if row % 50 == 7 else row * 0.25 for row in range(ROWS)],
    "rooms": pa.array([row % 7 for row in range(ROWS)], pa.int8()),
    "city": pa.array(["Oslo, N", "Rome", 'a "b"'] * 100).dictionary_encode(),
    "price": [row * 1.5 + 100 for row in range(ROWS)],
})  # fmt: skip


def run(tmp_path, *flags):
    prepare(read_settings([*flags, str(tmp_path / "job")], {}))
    return tmp_path / "job"


def files_of(job):
    return {str(path.relative_to(job)): path.read_bytes() for path in sorted(job.glob("[0-9]/data/*"))}


def write_parquet(table, path):
    parquet.write_table(table, path, row_group_size=64)


def write_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as output:
        output.write_table(table, max_chunksize=50)


FORMATS = {
    "t.parquet": write_parquet,
    "t.feather": lambda table, path: feather.write_feather(table, path, chunksize=64),
    "t.arrows": write_stream,
}


@each("name", FORMATS)
def test_a_table_gives_the_shards_of_the_same_table_in_csv(tmp_path, name):
    (tmp_path / "csv").mkdir()
    arrow_csv.write_csv(WEATHER, tmp_path / "csv" / "t.csv", arrow_csv.WriteOptions(quoting_style="needed"))
    (tmp_path / "in").mkdir()
    FORMATS[name](WEATHER, tmp_path / "in" / name)
    flags = ["--label=price", "--shards=2", "--shard_files=2"]
    wanted = files_of(run(tmp_path / "csv", f"--input={tmp_path}/csv/t.csv", *flags))
    assert set(wanted) >= {"0/data/train-00000.csv", "1/data/train-00001.csv", "0/data/columns.json"}
    for number, path in enumerate((tmp_path / "in", tmp_path / "in" / name)):
        assert files_of(run(tmp_path / f"out{number}", f"--input={path}", *flags)) == wanted


def test_columns_of_text_and_label_become_the_form_of_quick_start(tmp_path):
    (tmp_path / "reviews").mkdir()
    for part in range(3):
        texts = [f"review {row} of\tpart {part}\n" for row in range(20)]
        table = pa.table({
            "id": range(20), "stars": [float(1 + row % 5) for row in range(20)], "text": texts,
            "words": [["nested"]] * 20,
        })  # fmt: skip
        write_parquet(table, tmp_path / "reviews" / f"{part}.parquet")
    (tmp_path / "reviews" / "_SUCCESS").touch()
    (tmp_path / "reviews" / "old.csv").write_text("not read")
    pattern = f"{tmp_path}/reviews/*.parquet"
    job = run(tmp_path, "--input", pattern, "--text", "text", "--label", "stars", "--shards", "3")
    data = job / "0" / "data"
    lines = [line for shard in "012" for line in (job / shard / "data/train.txt").read_text().splitlines()]
    lines += (data / "test.txt").read_text().splitlines()
    assert sorted(lines) == sorted(
        f"{1 + row % 5}\treview {row} of part {part}" for row in range(20) for part in range(3)
    )
    assert (data / "labels.list").read_text() == "1\t1\n2\t2\n3\t3\n4\t4\n5\t5\n"
    assert json.loads((job / "prepared.json").read_text())["source"] == "quick_start"


def test_rows_without_a_label_are_left_out_and_files_named_test_are_the_test_set(tmp_path, capfd):
    (tmp_path / "in").mkdir()
    write_parquet(pa.table({"y": ["a", None, "b", "a", "b"], "t": ["u", "v", "w", None, "x"]}), tmp_path / "in/0.pq")
    write_parquet(pa.table({"t": ["k"], "y": ["b"]}), tmp_path / "in/test.pq")
    data = run(tmp_path, f"--input={tmp_path}/in", "--text=t", "--label=y", "--shards=1") / "0/data"
    assert sorted((data / "train.txt").read_text().splitlines()) == ["0\t", "0\tu", "1\tw", "1\tx"]
    assert (data / "test.txt").read_text() == "1\tk\n"
    assert "1 rows without a label in 'y' are left out, the first is 0.pq row group 0 row 1" in capfd.readouterr().err


def test_values_of_all_types_become_text(tmp_path):
    utc = datetime.timezone(datetime.timedelta(hours=2))
    table = pa.table({
        "flag": [True, None],
        "day": [datetime.date(2020, 1, 2), None],
        "time": pa.array([datetime.datetime(2020, 1, 2, 3, tzinfo=utc), None], pa.timestamp("s", "Europe/Oslo")),
        "price": [decimal.Decimal("1.50"), None],
        "half": pa.array([0.5, float("nan")], pa.float16()),
        "view": pa.array(["long enough for a buffer of its own", None], pa.string_view()),
        "code": pa.array([3, None]).dictionary_encode(),
        "none": pa.nulls(2),
    })  # fmt: skip
    feather.write_feather(table, tmp_path / "t.feather")
    flags = ["--data_source=csv", "--shards=1", "--csv_header=keep", "--test_fraction=0"]
    data = run(tmp_path, f"--input={tmp_path}/t.feather", *flags) / "0/data"
    header, *rows = (data / "train.csv").read_text().splitlines()
    assert header == ",".join(table.column_names)
    text = "1,2020-01-02,2020-01-02 01:00:00,1.50,0.5,long enough for a buffer of its own,3,"
    assert sorted(rows) == [",,,,nan,,,", text]


def test_texts_that_stand_once_in_a_file_are_taken_in_pieces(tmp_path, monkeypatch):
    """A dictionary of one long text needs little memory for any number of rows; the rows as texts would need much."""
    monkeypatch.setattr(columnar, "PIECE_BYTES", 100)
    table = pa.table({"x": pa.array(["a" * 30, "b", None] * 5).dictionary_encode()})
    write_parquet(table, tmp_path / "t.parquet")
    data = run(tmp_path, f"--input={tmp_path}/t.parquet", "--data_source=csv", "--shards=1") / "0/data"
    rows = [line for name in ("train.csv", "test.csv") for line in (data / name).read_text().splitlines()]
    assert sorted(rows) == sorted(["a" * 30, "b", '""'] * 5)


def refuse(tmp_path, said, *flags, kind=DataError):
    with pytest.raises(kind) as error:
        run(tmp_path, f"--input={tmp_path}/in", "--shards=1", *flags)
    assert said in str(error.value)
    assert not (tmp_path / "job").exists()


OF_CSV = ["--data_source=csv"]
BAD = {
    "missing": ({"a": {"x": [1]}}, ["--label=y"],
        "CSV_LABEL is 'y', which is no column; the columns of a.parquet are x; give one of them, or 1"),
    "missing text": ({"a": {"x": [1], "text": ["a"]}}, ["--label=x", "--text=texd"],
        "CSV_TEXT is 'texd', which is no column (did you mean 'text'?)"),
    "missing later": ({"a": {"x": [1]}, "b": {"y": [1]}}, OF_CSV, "b.parquet has no column 'x'; its columns are y"),
    "more later": ({"a": {"x": [1]}, "b": {"x": [1], "y": [1]}}, OF_CSV,
        "b.parquet has a column 'y', and a.parquet has none; give all files the same columns"),
    "nested": ({"a": {"x": [[1, 2]], "y": [1]}}, ["--label=y"],
        "a.parquet: column 'x' is nested (its type is list<element: int64>); leave it out by CSV_SKIP=x"),
    "bytes": ({"a": {"x": [b"1"], "y": [1]}}, ["--label=y"], "column 'x' is no text or number (its type is binary)"),
    "nothing": ({"a": {"x": pa.array([], pa.int64())}}, OF_CSV, "the table has no training rows"),
    "no label": ({"a": {"x": ["a"]}}, ["--data_source=quick_start"],
        "a.parquet is a table; set CSV_LABEL to the column of labels, and CSV_TEXT to that of the texts"),
    "only nulls": ({"a": {"x": pa.nulls(3), "t": ["a"] * 3}}, ["--label=x", "--text=t"], "the text has no samples"),
    "label as text": ({"a": {"x": ["a"]}}, ["--label=x", "--text=x"], "CSV_TEXT has x, the column of CSV_LABEL"),
    "number wanted": ({"a": {"x": ["1", "b"]}}, ["--label=x", "--csv_task=number"],
        "a.parquet row group 0 row 1: the label 'x' has 'b', which is not a number"),
    "zero byte": ({"a": {"x": ["a\0b"]}}, OF_CSV, "a.parquet row group 0 row 0: column 'x' has a zero byte"),
    "long": ({"a": {"x": ["a" * (4 << 20), "b"], "y": ["b", "c"]}}, OF_CSV,
        "a.parquet row group 0 row 0 has more than 4194304 characters"),
    "twice": ({"a": (["x", "x"], [[1], [2]])}, OF_CSV,
        "a.parquet has 2 columns 'x'; give each column a name of its own"),
    "large": ({"a": {"x": ["a" * 3000] * 50}}, [*OF_CSV, "--data_max_bytes=100Ki"],
        "a.parquet: the input has more than 102400 bytes when it is unpacked"),
}  # fmt: skip


@each("tables, flags, said", BAD.values(), ids=BAD)
def test_a_table_that_does_not_fit_is_named(tmp_path, tables, flags, said):
    (tmp_path / "in").mkdir()
    for name, columns in tables.items():
        table = pa.table(columns) if isinstance(columns, dict) else pa.table(columns[1], names=columns[0])
        write_parquet(table, tmp_path / "in" / f"{name}.parquet")
    refuse(tmp_path, said, *flags)


@each(
    "content, said",
    [
        (b"", "b.parquet is empty, which is no Parquet or Arrow file"),
        (b"x,y\n1,2\n", r"b.parquet begins with b'x,y\n1,2\n', which is no Parquet or Arrow file"),
        (b"PARE" + bytes(20), "b.parquet is encrypted"),
        (b"FEA1" + bytes(20), "b.parquet is a Feather file of version 1"),
        (b"PAR1" + bytes(100), "b.parquet does not end with PAR1, so it is cut off; copy or write it again"),
    ],
)
def test_an_object_of_another_format_in_the_middle_is_named(tmp_path, content, said):
    (tmp_path / "in").mkdir()
    for name in "ac":
        write_parquet(pa.table({"x": [1, 2]}), tmp_path / "in" / f"{name}.parquet")
    (tmp_path / "in" / "b.parquet").write_bytes(content)
    refuse(tmp_path, said, *OF_CSV)


def test_tables_of_both_kinds_are_refused_and_a_pattern_chooses_one(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n1\n2\n")
    write_parquet(pa.table({"x": [7, 7, 8, 8]}), tmp_path / "in/b.parquet")
    refuse(tmp_path, "has tables in text and Parquet or Arrow tables, such as a.csv and b.parquet", *OF_CSV)
    flags = [*OF_CSV, "--shards=1", "--test_fraction=0"]
    data = run(tmp_path, f"--input={tmp_path}/in/*.parquet", *flags) / "0/data"
    assert sorted((data / "train.csv").read_text().split()) == ["7", "7", "8", "8"]


def test_a_nested_column_that_is_left_out_has_empty_fields(tmp_path, capfd):
    write_parquet(pa.table({"x": [1.5, 2.5], "v": [[1], [2]], "y": ["a", "b"]}), tmp_path / "in")
    data = run(tmp_path, f"--input={tmp_path}/in", "--shards=1", "--label=y", "--csv_skip=v", "--test_fraction=0")
    assert sorted((data / "0/data/train.csv").read_text().split()) == ["1.5,,a", "2.5,,b"]
    assert "column 'v' of CSV_SKIP is of type list<element: int64>: its fields" in capfd.readouterr().err


@each(
    "pattern, said",
    [("in/*.pq", "no file in in matches"), ("no/*.parquet", "there is no directory no;"), ("no/a", "does not exist")],
)
def test_a_pattern_without_files_is_named(tmp_path, monkeypatch, pattern, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir(exist_ok=True)
    write_parquet(pa.table({"x": [1]}), tmp_path / "in/a.parquet")
    with pytest.raises(MissingInputError, match=f"DATA_PATH {pattern.replace('*', '.')}:? {said}"):
        run(tmp_path, f"--input={pattern}", *OF_CSV, "--shards=1")


def test_a_pattern_that_the_shell_has_replaced_is_explained(tmp_path):
    with pytest.raises(UsageError, match=r"several output directories: b.parquet, out; .* quote a pattern of --input"):
        read_settings(["--input", "a.parquet", "b.parquet", "--label", "x", "--shards", "3", "out"], {})


def test_a_job_without_pyarrow_names_the_extra(tmp_path, monkeypatch, capfd):
    write_parquet(pa.table({"x": [1]}), tmp_path / "in.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    assert main([f"--input={tmp_path}/in.parquet", "--data_source=csv", "--shards=1", str(tmp_path / "job")]) == 78
    assert "pip install 'paddle-on-kubernetes[parquet]'" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]

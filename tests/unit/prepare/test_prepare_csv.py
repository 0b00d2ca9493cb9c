"""The source `csv`: what is a table, how it is split, and what is said of its columns."""

import bz2
import csv
import gzip
import io
import json
import lzma
import statistics
import tarfile
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.limits import memory_meter
from paddle_cluster.prepare.program import main
from paddle_cluster.prepare.sources import columns as columns_module
from paddle_cluster.prepare.sources import spool as spool_module
from paddle_cluster.prepare.sources.columns import ColumnSummary
from paddle_cluster.prepare.sources.spool import LabelledRow, Spool
from paddle_cluster.prepare.sources.table import find_delimiter
from paddle_cluster.prepare.split import LabelledLine, deal, hold_out, shuffle

WEATHER = [
    [f"{draw.random():.3f}", f"{draw.random():.3f}", str(int(draw.random() < 0.3))]
    for draw in [Random(7)]
    for _ in range(500)
]
HEADER = ["humidity", "pressure", "rain"]


def text_of(rows, delimiter=",", newline="\n", header=True):
    return newline.join(delimiter.join(row) for row in ([HEADER] if header else []) + list(rows)) + newline


def run(tmp_path, *flags, data="", shards=3):
    where = [f"--data_path={data or tmp_path / 'in'}", f"--out_dir={tmp_path / 'job'}", f"--split_count={shards}"]
    return main(["--data_source=csv", *where, *flags])


def write(tmp_path, **files):
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def lines(tmp_path, shard, name="train.csv"):
    return (tmp_path / "job" / str(shard) / "data" / name).read_text(encoding="utf-8").splitlines()


def about(tmp_path):
    return json.loads((tmp_path / "job/0/data/columns.json").read_text(encoding="utf-8"))


def as_others_split(rows, shards, label=None, fraction="1/10", seed=1):
    """What split.py makes of the same rows in memory."""
    samples = [LabelledLine(",".join(row), "" if label is None else row[label]) for row in rows]
    training, test = hold_out(shuffle(samples, seed), Fraction(fraction))
    return [[s.line for s in shard] for shard in deal(training, shards)], [s.line for s in test]


# ----- how it is split -----


PIECES = [spool_module.PIECE, 2000, 40]  # in one piece, in pieces, in pieces of pieces


@pytest.mark.parametrize(
    ("piece", "flags", "label"),
    [
        *((piece, [], None) for piece in PIECES),
        *((piece, ["--csv_label=rain"], 2) for piece in PIECES),
        (PIECES[0], ["--csv_label=3"], 2),
    ],
)
def test_the_split_is_that_of_the_other_sources_however_much_is_held(tmp_path, monkeypatch, piece, flags, label):
    monkeypatch.setattr(spool_module, "PIECE", piece)
    monkeypatch.setattr(spool_module, "BUFFER", piece // 2)
    write(tmp_path, weather__csv=text_of(WEATHER))
    assert run(tmp_path, *flags) == 0
    shards, test = as_others_split(WEATHER, 3, label)
    assert [lines(tmp_path, shard) for shard in range(3)] == shards
    assert [lines(tmp_path, shard, "test.csv") for shard in range(3)] == [test] * 3
    assert {path.name for path in (tmp_path / "job/2/data").iterdir()} == {
        "columns.json", "test.csv", "test.list", "train.csv", "train.list"
    }  # fmt: skip
    assert (tmp_path / "job/1/data/train.list").read_text() == "data/train.csv\n"
    assert (tmp_path / "job/1/data/test.csv").stat().st_nlink == 3


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=30)), max_size=60), st.integers(1, 200))
def test_a_spool_gives_the_rows_in_the_order_of_their_keys(tmp_path_factory, rows, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "PIECE", piece)
        spool = Spool(tmp_path_factory.mktemp("spool"))
        for number, (key, text) in enumerate(rows):
            spool.add(key, LabelledRow(text, number))
        expected = sorted(range(len(rows)), key=lambda number: rows[number][0])
        for _ in range(2):
            assert [(row.label, row.text) for row in spool.in_order()] == [(n, rows[n][1]) for n in expected]


def test_the_test_set_is_split_where_it_is_to_be(tmp_path):
    write(tmp_path, weather__csv=text_of(WEATHER))
    assert run(tmp_path, "--test_data=split", "--csv_header=keep") == 0
    parts = [lines(tmp_path, shard, "test.csv") for shard in range(3)]
    assert {part.pop(0) for part in parts} == {"humidity,pressure,rain"}
    assert sorted(line for part in parts for line in part) == sorted(as_others_split(WEATHER, 3)[1])
    assert [len(part) for part in parts] == [17, 17, 16]


def test_a_shard_may_lie_in_many_files(tmp_path):
    write(tmp_path, a__csv=text_of(WEATHER))
    assert run(tmp_path, "--csv_label=rain", "--shard_files=4") == 0
    names = [name.removeprefix("data/") for name in lines(tmp_path, 0, "train.list")]
    assert names == [f"train-{number:05d}.csv" for number in range(4)]
    parts = [lines(tmp_path, shard, name) for shard in range(3) for name in names]
    assert len({len(part) for part in parts}) <= 2
    assert run(tmp_path, "--csv_label=rain") == 0
    for shard in range(3):
        found = sorted(line for part in parts[4 * shard : 4 * shard + 4] for line in part)
        assert found == sorted(lines(tmp_path, shard)), "a shard has the same samples in one file and in many"


def test_files_called_test_are_the_test_set_in_their_order(tmp_path):
    write(tmp_path, a__csv=text_of(WEATHER[:300]), b__csv=text_of(WEATHER[300:400]), test__csv=text_of(WEATHER[400:]))
    assert run(tmp_path) == 0
    shards, _ = as_others_split(WEATHER[:400], 3, fraction="0")
    assert [lines(tmp_path, shard) for shard in range(3)] == shards
    assert lines(tmp_path, 1, "test.csv") == [",".join(row) for row in WEATHER[400:]]
    assert about(tmp_path)["rows"] == 500


def test_without_a_test_set_there_is_neither_file_nor_list(tmp_path):
    write(tmp_path, weather__csv=text_of(WEATHER))
    assert run(tmp_path, "--test_fraction=0") == 0
    assert sorted(path.name for path in (tmp_path / "job/0/data").iterdir()) == [
        "columns.json", "train.csv", "train.list"
    ]  # fmt: skip


@pytest.mark.parametrize("flags", [(), ("--csv_header=keep",), ("--test_data=split",)])
def test_the_same_table_gives_the_same_bytes(tmp_path, flags):
    write(tmp_path, weather__csv=text_of(WEATHER))
    found = []
    for _ in range(2):
        assert run(tmp_path, *flags) == 0
        files = [path for path in sorted((tmp_path / "job").rglob("*")) if path.is_file()]
        found.append({path: path.read_bytes() for path in files})
    assert found[0] == found[1]


# ----- header -----


@pytest.mark.parametrize(
    ("header", "given", "first", "said"),
    [
        ("auto", True, None, "is taken for a header and dropped: 'humidity, pressure, rain'"),
        ("auto", False, None, "is taken for a row"),
        ("drop", True, None, ""),
        ("keep", True, "humidity,pressure,rain", ""),
        ("none", False, None, ""),
    ],
)
def test_a_header_is_kept_in_every_shard_or_dropped(tmp_path, capsys, header, given, first, said):
    """With awk one shard got the header, and its trainer ended with "could not convert string to float"."""
    write(tmp_path, weather__csv=text_of(WEATHER, header=given))
    assert run(tmp_path, f"--csv_header={header}") == 0
    shards, test = as_others_split(WEATHER, 3)
    for shard in range(3):
        before = [first] if first else []
        assert lines(tmp_path, shard) == before + shards[shard]
        assert lines(tmp_path, shard, "test.csv") == before + test
    assert said in capsys.readouterr().err
    names = HEADER if given else ["column_1", "column_2", "column_3"]
    assert [column["name"] for column in about(tmp_path)["columns"]] == names
    assert about(tmp_path)["header"] == ("kept" if first else "dropped" if given else "none")


def test_a_header_that_only_the_first_of_several_files_has_is_found_in_none(tmp_path):
    write(tmp_path, p0__csv=text_of(WEATHER[:200]), p1__csv=text_of(WEATHER[200:], header=False))
    assert run(tmp_path) == 0
    assert [lines(tmp_path, shard) for shard in range(3)] == as_others_split(WEATHER, 3)[0]


@pytest.mark.parametrize("second", ["humidity,pressure,wind\n", "pressure,humidity,rain\n"])
def test_a_header_that_differs_is_bad_data(tmp_path, capsys, second):
    write(tmp_path, p0__csv=text_of(WEATHER[:200]), p1__csv=second + text_of(WEATHER[200:], header=False))
    assert run(tmp_path) == 65
    assert "p1.csv line 1 looks like a header, but p0.csv has another header" in capsys.readouterr().err


def test_a_header_of_a_later_file_only_is_bad_data(tmp_path, capsys):
    write(tmp_path, p0__csv=text_of(WEATHER[:200], header=False), p1__csv=text_of(WEATHER[200:]))
    assert run(tmp_path) == 65
    assert "give all files the same header, or none" in capsys.readouterr().err


# ----- what is a table -----


@each(
    ("text", "delimiter"),
    [
        ("a,b,c\n1,2,3\n", ","),
        ("a\tb\n1,5\t2\n1,5\t2\n", "\t"),
        ("1,5;2,7;3,1\n2,5;1,7;3,3\n", ";"),
        ("a|b\n1|2\n", "|"),
        ('"a;b","c;d"\n"a","b"\n', ","),
        ("one\ntwo\n", ","),
        ("a,b,c\n1,2\n1,2,3\n", ","),
    ],
)
def test_the_delimiter_is_found(text, delimiter):
    assert find_delimiter(text.splitlines(keepends=True)) == delimiter


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("delimiter", "flags"), [("\t", []), (";", []), ("|", []), ("\t", ["--csv_delimiter=tab"])])
def test_other_delimiters_and_ends_of_lines_are_kept_and_mended(tmp_path, newline, delimiter, flags):
    write(tmp_path, weather__tsv=text_of(WEATHER, delimiter, newline))
    assert run(tmp_path, *flags, "--test_fraction=0", shards=1) == 0
    name = "train.tsv" if delimiter == "\t" else "train.csv"
    assert sorted(lines(tmp_path, 0, name)) == sorted(delimiter.join(row) for row in WEATHER)
    assert about(tmp_path)["delimiter"] == delimiter


def test_quoted_fields_may_have_delimiters_quotes_and_lines(tmp_path):
    rows = [["1", 'he said "no", twice'], ["2", "two\nlines"], ["3", "plain"], ["4", ""], ["5", "ümläut"]]
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows([["id", "text"], *rows])
    write(tmp_path, texts__csv="\ufeff" + buffer.getvalue())
    assert run(tmp_path, "--test_fraction=0", shards=1) == 0
    with (tmp_path / "job/0/data/train.csv").open(encoding="utf-8", newline="") as file:
        assert sorted(csv.reader(file)) == rows
    assert about(tmp_path)["columns"][0]["name"] == "id"
    assert "3,plain" in lines(tmp_path, 0)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
def test_packed_tables_are_read(tmp_path, pack):
    folder = write(tmp_path, weather__csv__gz=pack(text_of(WEATHER).encode()))
    expected = as_others_split(WEATHER, 3)[0]
    for data in (folder, folder / "weather.csv.gz"):
        assert run(tmp_path, data=data) == 0
        assert [lines(tmp_path, shard) for shard in range(3)] == expected


def test_a_table_in_an_archive_is_read(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("set/weather.csv")
        info.size = len(text_of(WEATHER))
        archive.addfile(info, io.BytesIO(text_of(WEATHER).encode()))
    assert run(tmp_path, data=tmp_path / "a.tar.gz") == 0
    assert lines(tmp_path, 0) == as_others_split(WEATHER, 3)[0][0]


GOOD = "a,b\n1,2\n3,4\n5,6\n"
WRONG = {
    "too few columns": ({"t__csv": GOOD + "7\n"}, (), 65, "t.csv line 5: 1 columns instead of 2 as in t.csv line 1"),
    "too many columns": ({"t__csv": GOOD + "7,8,9\n"}, (), 65, "t.csv line 5: 3 columns instead of 2"),
    "columns of another file": ({"t__csv": GOOD, "u__csv": "1,2,3\n"}, (), 65, "u.csv line 1: 3 columns instead of 2"),
    "in a packed file": (
        {"t__csv": GOOD, "u__csv__gz": gzip.compress(b"1,2\n\n3\n")},
        (),
        65,
        "u.csv.gz line 3: 1 columns instead of 2",
    ),
    "behind a field of two lines": ({"t__csv": GOOD + '"x\ny",8\n9\n'}, (), 65, "t.csv line 7: 1 columns"),
    "another delimiter": ({"t__csv": GOOD}, ("--csv_delimiter=;",), 0, ""),
    "a quote that is not closed": ({"t__csv": GOOD + '7,"8\n'}, (), 65, "t.csv line 5: unexpected end of data"),
    "a quote in a quoted field": ({"t__csv": GOOD + '7,"8"9"\n'}, (), 65, "double the quotes in them"),
    "a row without an end": (
        {"t__csv": GOOD + '7,"' + (99 * "8" + "\n") * 43_000},
        (),
        65,
        "t.csv line 5: the row is longer than 4194304 bytes; look for a quote",
    ),
    "a zero byte": ({"t__csv": GOOD.encode("utf-16-le")}, (), 65, "t.csv line 1: it has a zero byte"),
    "no UTF-8": ({"t__csv": b"a,b\n\xe9,1\n"}, ("--data_encoding=utf-8",), 65, "t.csv line 2: the text is not utf-8"),
    "columns without end": ({"t__csv": "1," * 20_000 + "\n"}, (), 65, "t.csv line 1: it has more than 16384 columns"),
    "no rows": ({"t__csv": "\n\n"}, (), 65, "t.csv has no rows"),
    "a header alone": ({"t__csv": "a,b\n"}, ("--csv_header=drop",), 65, "the table has no training rows"),
    "fewer rows than shards": ({"t__csv": "1,2\n"}, ("--test_fraction=0",), 65, "1 training samples cannot be split"),
    "fewer test rows than shards": ({"t__csv": GOOD * 4}, ("--test_data=split",), 65, "1 test samples cannot be split"),
    "no table": ({"t__jpg": "x"}, (), 66, "has no table; it needs files *.csv"),
    "a header alone, found": ({"t__csv": "a,b,c\n"}, ("--csv_label=c",), 65, "t.csv has a header line and no rows"),
    "a header alone, no label": ({"t__csv": "a,b,c\n"}, (), 65, "set CSV_HEADER=none if that line is a row"),
    "a label that is no column": ({"t__csv": GOOD}, ("--csv_label=c",), 65, "CSV_LABEL is 'c', which is no column"),
    "column 0": ({"t__csv": GOOD}, ("--csv_label=0",), 65, "are a, b; give one of them, or a number from 1 to 2"),
    "more than the limit": ({"t__csv": GOOD * 99}, ("--data_max_bytes=99",), 65, "t.csv: the input has more than 99"),
    "different values": (
        {"t__csv": "".join(f"word{n},x\n" for n in range(900))},
        ("--data_max_memory=100Ki",),
        65,
        "the different values of column 'column_1': the input has more than 102400 bytes",
    ),
}


@pytest.mark.parametrize(("files", "flags", "status", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_table_is_named_by_file_and_line(tmp_path, capsys, files, flags, status, message):
    write(tmp_path, **files)
    assert run(tmp_path, *flags, shards=2 + (status == 0)) == status
    assert message in capsys.readouterr().err
    assert status == 0 or not list((tmp_path / "job").glob("*"))


# ----- what is said of the columns -----


def test_numbers_have_mean_deviation_and_range_of_the_whole_set(tmp_path):
    write(tmp_path, a__csv=text_of(WEATHER[:111]), b__csv=text_of(WEATHER[111:]))
    assert run(tmp_path) == 0
    assert {(tmp_path / f"job/{shard}/data/columns.json").read_bytes() for shard in range(3)} == {
        (tmp_path / "job/0/data/columns.json").read_bytes()
    }
    found = about(tmp_path)
    assert {key: found[key] for key in ("format", "rows", "training", "test")} == {
        "format": 1, "rows": 500, "training": 450, "test": 50
    }  # fmt: skip
    for place, column in enumerate(found["columns"]):
        values = [float(row[place]) for row in WEATHER]
        assert column["kind"] == "number"
        assert (column["count"], column["missing"]) == (500, 0)
        assert column["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert column["std"] == pytest.approx(statistics.pstdev(values), rel=1e-12)
        assert (column["min"], column["max"]) == (min(values), max(values))
    rain = [row[2] for row in WEATHER]
    assert [column.get("values") for column in found["columns"]] == [
        None, None, {value: rain.count(value) for value in sorted(set(rain), key=rain.count, reverse=True)}
    ]  # fmt: skip


@pytest.mark.parametrize("offset", [0.0, 1e9, -3e15])
def test_the_deviation_does_not_cancel_far_from_zero(offset):
    """The difference of two sums of squares would be noise here."""
    column, draw = ColumnSummary("x", memory_meter(1 << 30)), Random(3)
    values = [offset + draw.randrange(8) for _ in range(2000)]
    for value in values:
        column.add(repr(value), "file", 1)
    assert column.describe()["std"] == pytest.approx(statistics.pstdev(values), rel=1e-9)


def test_words_have_their_values_and_counts_the_most_frequent_first(tmp_path):
    write(tmp_path, t__csv="id,city,note\n" + "".join(f"{n},{'BA'[n % 3 > 0]}, \n" for n in range(9)))
    assert run(tmp_path) == 0
    number, city, note = about(tmp_path)["columns"]
    assert (city["kind"], city["values"]) == ("text", {"A": 6, "B": 3})
    assert (note["count"], note["missing"], note["values"]) == (0, 9, {})
    assert number["values"] == {str(n): 1 for n in range(9)}


def test_the_values_of_a_column_are_bounded_and_given_back(monkeypatch):
    monkeypatch.setattr(columns_module, "VALUES", 10)
    memory = memory_meter(1 << 20)
    words, numbers = ColumnSummary("w", memory), ColumnSummary("n", memory)
    for number in range(100_000):
        words.add(f"w{number}", "file", 1)
        numbers.add(str(number), "file", 1)
    assert words.describe() == {"name": "w", "kind": "text", "count": 100_000, "missing": 0, "values": None}
    assert "values" not in numbers.describe()
    assert memory.taken == 0


@pytest.mark.parametrize("other", ["no", "-nan", "inf", "1e999", "1_000", "٣", "0x10"])
def test_a_field_that_is_no_number_for_a_trainer_makes_its_column_text_with_a_warning(tmp_path, capsys, other):
    write(tmp_path, t__csv=f"a,b\n1,2\n3,{other}\n5,6\n,8\n")
    assert run(tmp_path, "--test_fraction=0") == 0
    first, second = about(tmp_path)["columns"]
    assert (first["kind"], first["missing"], first["mean"]) == ("number", 1, 3.0)
    assert second["kind"] == "text"
    assert (
        f"column 'b' has 3 numbers and 1 other values, the first {other!r} in t.csv line 3" in capsys.readouterr().err
    )


# ----- settings -----


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--csv_delimiter=ab"], "CSV_DELIMITER is 'ab'; it must be one character, or the word tab"),
        (['--csv_delimiter="'], "CSV_DELIMITER is"),
        (["--csv_header=yes"], "CSV_HEADER is 'yes'; it must be one of auto, keep, drop, none"),
        (["--data_max_bytes=-1"], "DATA_MAX_BYTES is '-1'; it must be a number of bytes, e.g. 100Gi"),
        (["--data_max_memory=1GB"], "DATA_MAX_MEMORY is '1GB'"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, capsys, flags, message):
    assert run(tmp_path, *flags) == 78
    assert message in capsys.readouterr().err


def test_a_config_directory_of_a_job_of_its_own_stays_where_it_is(tmp_path):
    """The source has no example: TRAIN_CONFIG_DIR may name the user's directory, before or after the data."""
    write(tmp_path, weather__csv=text_of(WEATHER))
    (tmp_path / "job/weather").mkdir(parents=True)
    (tmp_path / "job/weather/trainer_config.py").write_text("mine")
    for flags in ([], ["--train_config_dir=weather"]):
        assert run(tmp_path, *flags) == 0
        assert (tmp_path / "job/weather/trainer_config.py").read_text() == "mine"
    made = sorted(path.name for path in (tmp_path / "job").glob("*"))
    assert made == ["0", "1", "2", "output", "prepared.json", "weather"]
    facts = json.loads(Path(tmp_path / "job/prepared.json").read_text())
    assert (facts["source"], facts["columns"], facts["split_count"]) == ("csv", 3, 3)


def test_rows_do_not_stay_in_memory(tmp_path):
    """A limit on memory that is far below the table does not matter to it."""
    write(tmp_path, t__csv="".join(f"{n}.5,{'x' * 100}\n" for n in range(50_000)))
    assert run(tmp_path, "--data_max_memory=1Mi") == 0
    with pytest.raises(DataError, match="DATA_MAX_MEMORY"):
        memory_meter(1 << 20).take(5_000_000, "the table")

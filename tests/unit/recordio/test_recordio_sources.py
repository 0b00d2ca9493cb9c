"""Records of lines, rows and files, and the shards that they are written to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.recordio import sources
from paddle_base.recordio.errors import OversizedRecordError
from paddle_base.recordio.layout import Compression
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.recordio.shards import ShardPlan, write_shards
from paddle_base.recordio.sources import read_sources
from paddle_base.runtime.errors import DataError, MissingInputError, UsageError, VolumeError


def read(form: str, *paths: Path, skip: int = 0) -> list[bytes]:
    return list(read_sources(paths, form, skip))


def names(directory: Path) -> list[str]:
    return sorted(one.name for one in directory.iterdir())


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), min_size=1))
def test_lines_are_records_without_their_ends(lines: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert read("lines", path) == lines
    path.write_bytes(b"\n".join(lines))
    assert read("lines", path) == (lines if lines[-1] else lines[:-1])


def test_rows_stand_as_they_are_and_may_have_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b'x,y\r\n1,"a\nb"\n\n2,"say ""hi"""\n3,5" pipe\n4,\xff')
    assert read("csv", path) == [b"x,y", b'1,"a\nb"', b'2,"say ""hi"""', b'3,5" pipe', b"4,\xff"]
    assert read("csv", path, path, skip=1) == read("csv", path)[1:] * 2


def test_a_recordio_file_is_no_text(tmp_path: Path) -> None:
    paths, _ = write_shards([b"a\nb"], ShardPlan(tmp_path, "train", 1, Compression.NONE))
    for form in ("lines", "csv"):
        with pytest.raises(DataError, match=r"train-00000 is a RecordIO file, and no text; .* with --to=lines"):
            read(form, *paths)
    assert read("files", *paths) == [paths[0].read_bytes()]


def test_files_are_records_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    assert read("files", tmp_path) == [b"aaa", b"bbb"]
    assert read("files", tmp_path / "b", tmp_path / "a") == [b"bbb", b"aaa"]


def test_what_is_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_LINE_BYTES", 10)
    monkeypatch.setattr(sources, "MOST_FILE_BYTES", 10)
    path = tmp_path / "long"
    path.write_bytes(b"short\n12345678901\n")
    with pytest.raises(OversizedRecordError, match="long line 2 has more than 10 bytes"):
        read("lines", path)
    with pytest.raises(OversizedRecordError, match="long has 18 bytes: a record has at most 10"):
        read("files", path)
    path.write_bytes(b'"' + b"a\n" * 9)
    with pytest.raises(OversizedRecordError, match="long: a row has more than 10 bytes"):
        read("csv", path)


def test_a_damaged_table_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"a,b\nc,d\re\n")
    with pytest.raises(DataError, match=r"table.csv line 2: new-line character .*--form=lines"):
        read("csv", tmp_path / "table.csv")


def test_what_is_no_file_is_missing_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for form, name in (("lines", "absent"), ("csv", "."), ("files", "pipe"), ("files", ".")):
        with pytest.raises(MissingInputError, match="cannot be read"):
            read(form, tmp_path / name)


def test_shards_are_named_as_the_originals_and_the_list_names_them(tmp_path: Path) -> None:
    plan = ShardPlan(tmp_path / "new" / "data", "train", 4, Compression.NONE)
    records = [b"%d" % i for i in range(10)]
    paths, count = write_shards(records, plan)
    assert names(tmp_path / "new" / "data") == ["train-00000", "train-00001", "train-00002", "train.list"]
    assert (plan.list_file.read_text().splitlines(), count) == ([str(path) for path in paths], 10)
    assert [list(RecordIOReader(path)) for path in paths] == [records[:4], records[4:8], records[8:]]


def test_shards_are_replaced_all_or_none(tmp_path: Path) -> None:
    write_shards([b"a"] * 3, ShardPlan(tmp_path, "train", 1))
    (tmp_path / "train-more").touch()
    with pytest.raises(UsageError, match=r"/train-00000 exists already; give another --name_prefix"):
        write_shards([b"b"], ShardPlan(tmp_path, "train", 1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def failing() -> Iterator[bytes]:
        yield from [b"b"] * 5
        raise DataError("the input ends")

    with pytest.raises(DataError, match="the input ends"):
        write_shards(failing(), ShardPlan(tmp_path, "train", 1, overwrite=True))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    write_shards([b"b"] * 2, ShardPlan(tmp_path, "train", 1, overwrite=True))
    assert names(tmp_path) == ["train-00000", "train-00001", "train-more", "train.list"]
    assert list(RecordIOReader(tmp_path / "train-00001")) == [b"b"]


def test_a_directory_with_the_name_of_a_shard_stays(tmp_path: Path) -> None:
    (tmp_path / "train-00007").mkdir()
    (tmp_path / "train-00007" / "mine").touch()
    with pytest.raises(UsageError, match="train-00007 is no regular file and is not replaced; give another"):
        write_shards([b"a"], ShardPlan(tmp_path, "train", 1, overwrite=True))
    assert names(tmp_path) == ["train-00007"] and names(tmp_path / "train-00007") == ["mine"]


def test_no_list_names_shards_of_two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is removed before the first shard is replaced, and written when the last one is in its place."""
    write_shards([b"a"] * 3, ShardPlan(tmp_path, "train", 1))
    replace, replaced = Path.replace, []

    def fail_at_second(path: Path, target: Path) -> Path:
        if path.parent.name == ".train.writing" and not path.name.startswith("."):
            replaced.append(path.name)
            if len(replaced) == 2:
                raise OSError(28, "No space left on device", str(path))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail_at_second)
    with pytest.raises(VolumeError, match="No space left"):
        write_shards([b"b"] * 3, ShardPlan(tmp_path, "train", 1, overwrite=True))
    assert replaced == ["train-00000", "train-00001"]
    assert names(tmp_path) == ["train-00000", "train-00001", "train-00002"]


@pytest.mark.parametrize("prefix", ["", "a/b", ".hidden", "..", "a\0b"])
def test_a_prefix_is_a_name(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give a prefix without '/' and without a first dot"):
        write_shards([b"a"], ShardPlan(tmp_path, prefix, 1))


def test_nothing_to_convert_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no record to convert"):
        write_shards([], ShardPlan(tmp_path, "train", 1))
    assert names(tmp_path) == []

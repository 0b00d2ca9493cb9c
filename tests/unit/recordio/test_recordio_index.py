"""The index is made of headers alone; ranges name records by it, and are read without what is before them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from recordio_records import FILES, golden, make_records

from paddle_base.recordio.errors import DamagedChunkError
from paddle_base.recordio.index import FileIndex, RecordRange, name_chunks, read_index
from paddle_base.recordio.layout import HEADER, Compression
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.recordio.writing import RecordIOWriter
from paddle_base.runtime.errors import MissingInputError, VolumeError

RECORDS = make_records(50, 30)


@pytest.fixture(params=list(Compression), ids=lambda one: one.name)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with RecordIOWriter(tmp_path / "some", request.param, 100) as writer:
        for record in RECORDS:
            writer.write(record)
    return tmp_path / "some"


def damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def test_the_index_reads_no_payload(path: Path) -> None:
    before = read_index(path)
    for chunk in before.chunks:
        damage(path, chunk.start + 5)
    assert read_index(path) == before
    with pytest.raises(DamagedChunkError, match="chunk 0 at byte 0: the CRC-32 of the chunk's"):
        list(RecordIOReader(path))


def test_any_range_of_records_is_read(path: Path) -> None:
    index = read_index(path)
    for first in range(len(RECORDS)):
        for count in (1, 7, len(RECORDS) - first):
            if first + count <= len(RECORDS):
                assert list(RecordIOReader(index.range(first, count))) == RECORDS[first : first + count]


def test_a_range_is_read_without_the_chunks_before_and_behind_it(path: Path) -> None:
    index = read_index(path)
    chunk = index.chunks[2]
    damage(path, index.chunks[1].start)
    damage(path, index.chunks[3].start)
    found = list(RecordIOReader(index.range(chunk.first, chunk.records)))
    assert found == RECORDS[chunk.first : chunk.first + chunk.records]
    from_the_beginning = RecordRange(str(path), 0, 0, chunk.first, chunk.records)
    assert list(RecordIOReader(from_the_beginning)) == found


@pytest.mark.parametrize("chunks", [1, 3, 1000])
def test_the_parts_of_a_file_are_all_its_records_in_their_order(path: Path, chunks: int) -> None:
    parts = list(read_index(path).split(chunks))
    assert [record for part in parts for record in RecordIOReader(part)] == RECORDS
    assert len(parts) == -(-len(read_index(path).chunks) // chunks)


def test_a_range_is_a_text_that_stands_for_a_file_name(path: Path) -> None:
    wanted = read_index(path).range(20, 9)
    assert RecordRange.parse(str(wanted)) == wanted
    assert list(RecordIOReader(str(wanted))) == RECORDS[20:29]
    assert RecordRange.parse(str(path)) is None
    assert RecordRange.parse(f"{path}#chunk=-1&offset=0&skip=0&count=1") is None


@pytest.mark.parametrize(("first", "count"), [(-1, 2), (0, 0), (0, 51), (50, 1)])
def test_a_range_that_the_file_has_not_is_refused(path: Path, first: int, count: int) -> None:
    with pytest.raises(ValueError, match="has 50 records"):
        read_index(path).range(first, count)


def test_a_range_of_a_file_that_has_become_shorter_says_so(path: Path) -> None:
    index = read_index(path)
    wanted = index.range(40, 10)
    os.truncate(path, index.chunks[-1].offset)
    with pytest.raises(DamagedChunkError, match=r"of the 10 records of the range are not in the file .*the file again"):
        list(RecordIOReader(wanted))
    with pytest.raises(DamagedChunkError, match="1 of the 1 records"):
        list(RecordIOReader(RecordRange(str(path), 5, 10**18, 0, 1)))


def test_a_range_at_no_chunk_is_refused(path: Path) -> None:
    with pytest.raises(DamagedChunkError, match="chunk 1 at byte 7: the chunk begins with the wrong number"):
        list(RecordIOReader(RecordRange(str(path), 1, 7, 0, 1)))


def test_a_file_without_a_byte_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_index(tmp_path / "empty") == FileIndex(str(tmp_path / "empty"), 0, ())
    assert read_index(tmp_path / "empty").records == 0
    assert list(read_index(tmp_path / "empty").split(1)) == []


def test_what_is_no_file_is_missing_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("absent", "pipe", "."):
        with pytest.raises(MissingInputError, match=r"the RecordIO file .* cannot be read"):
            read_index(tmp_path / name)


def test_a_sick_volume_is_not_blamed_on_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    reader = RecordIOReader(path)
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(VolumeError, match="check the volume"):
        reader.read()


def test_a_million_chunks_are_the_most(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_base.recordio.index.MOST_CHUNKS", 3)
    with pytest.raises(DamagedChunkError, match="a file may have at most 3 chunks"):
        read_index(path)


def test_a_reader_gives_records_one_by_one_and_ends_when_it_is_closed(path: Path) -> None:
    reader = RecordIOReader(path)
    assert [reader.read(), reader.read()] == RECORDS[:2]
    assert next(iter(reader)) == RECORDS[2]
    reader.close()
    assert reader.read() is None
    with RecordIOReader(path) as whole:
        assert len(list(whole)) == 50
        assert whole.read() is None


def test_chunks_without_records_do_not_disturb_a_range(tmp_path: Path) -> None:
    empty = HEADER.pack(0x01020304, 0, 0, 0, 0)
    with RecordIOWriter(tmp_path / "some", Compression.NONE, 10) as writer:
        for record in RECORDS:
            writer.write(record)
    (tmp_path / "mixed").write_bytes(empty * 2 + (tmp_path / "some").read_bytes() + empty)
    index = read_index(tmp_path / "mixed")
    assert index.records == 50
    assert list(RecordIOReader(index.range(0, 50))) == RECORDS == list(RecordIOReader(tmp_path / "mixed"))
    assert [record for part in index.split(1) for record in RecordIOReader(part)] == RECORDS


def test_the_chunks_of_a_list_are_named_in_the_place_of_their_files(path: Path) -> None:
    text = path.with_name("text")
    text.write_text("1,2\n")
    (path.parent / "empty").write_bytes(b"")
    others = [str(text), str(path.parent / "empty"), str(path.parent / "absent"), str(path.parent)]
    names = list(name_chunks([others[0], str(path), *others[1:], str(path)]))
    chunks = [str(one) for one in read_index(path).split(1)]
    assert len(chunks) > 3
    assert names == [others[0], *chunks, *others[1:], *chunks]
    assert [record for name in chunks for record in RecordIOReader(name)] == RECORDS


def test_a_damaged_chunk_fails_its_own_task_and_is_named_there(path: Path) -> None:
    bad = read_index(path).chunks[2]
    damage(path, bad.start + 5)
    names = list(name_chunks([str(path)]))
    damaged = []
    for number, name in enumerate(names):
        try:
            list(RecordIOReader(name))
        except DamagedChunkError as error:
            damaged.append(number)
            assert f"{path}: chunk 2 at byte {bad.offset}: the CRC-32" in str(error)
    assert damaged == [2]


def test_what_follows_a_damaged_header_fails_as_a_task_that_names_it(path: Path) -> None:
    bad = read_index(path).chunks[2]
    damage(path, bad.offset)
    names = list(name_chunks([str(path), "next"]))
    assert len(names) == 4 and names[3] == "next"
    assert [record for name in names[:2] for record in RecordIOReader(name)] == RECORDS[: bad.first]
    with pytest.raises(DamagedChunkError, match=f"chunk 2 at byte {bad.offset}"):
        list(RecordIOReader(names[2]))


def test_the_chunks_of_files_of_the_originals_library_are_tasks(tmp_path: Path) -> None:
    for name in FILES:
        chunks = list(name_chunks([str(golden(name))]))
        found = [record for one in chunks for record in RecordIOReader(one)]
        assert found == list(RecordIOReader(golden(name)))

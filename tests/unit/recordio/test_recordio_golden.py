"""Files of the original's Go library are read, and what it writes uncompressed is written byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from each import each
from recordio_records import FILES, golden, make_records

from paddle_base.recordio.index import read_index
from paddle_base.recordio.layout import Compression
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.recordio.writing import RecordIOWriter

CHUNKS = {"plain": 5, "snappy": 5, "gzip": 5, "one": 1, "empty": 0, "empty_records": 1, "chunk_per_record": 12}
COMPRESSIONS = {"plain": 0, "snappy": 1, "gzip": 2, "one": 1, "empty_records": 0, "chunk_per_record": 1}


@each("name", FILES)
def test_every_record_of_the_original_is_read(name: str) -> None:
    count, most, _ = FILES[name]
    with RecordIOReader(golden(name)) as reader:
        assert list(reader) == make_records(count, most)


@each("name", FILES)
def test_the_index_has_the_originals_chunks_and_records(name: str) -> None:
    path = golden(name)
    index = read_index(path)
    assert (len(index.chunks), index.records) == (CHUNKS[name], FILES[name][0])
    assert {chunk.compression for chunk in index.chunks} <= {COMPRESSIONS.get(name)}
    assert [chunk.offset for chunk in index.chunks] == [0, *[chunk.end for chunk in index.chunks]][: len(index.chunks)]
    assert index.size == (index.chunks[-1].end if index.chunks else 0) == path.stat().st_size


@pytest.mark.parametrize("name", ["plain", "empty_records", "empty"])
def test_uncompressed_files_are_written_byte_for_byte_as_the_original_does(name: str, tmp_path: Path) -> None:
    count, most, chunk = FILES[name]
    with RecordIOWriter(tmp_path / "ours", Compression.NONE, chunk) as writer:
        for record in make_records(count, most):
            writer.write(record)
    assert (tmp_path / "ours").read_bytes() == golden(name).read_bytes()


@pytest.mark.parametrize("name", ["snappy", "gzip", "chunk_per_record", "one"])
def test_compressed_files_have_the_originals_chunks(name: str, tmp_path: Path) -> None:
    count, most, chunk = FILES[name]
    with RecordIOWriter(tmp_path / "ours", Compression(COMPRESSIONS[name]), chunk) as writer:
        for record in make_records(count, most):
            writer.write(record)
    theirs, ours = read_index(golden(name)), read_index(tmp_path / "ours")
    assert [one.records for one in ours.chunks] == [one.records for one in theirs.chunks]
    assert list(RecordIOReader(tmp_path / "ours")) == make_records(count, most)

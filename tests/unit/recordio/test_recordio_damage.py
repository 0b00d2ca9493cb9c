"""Damaged and hostile files: one clear error, never a wrong record, and no more memory than a chunk may have."""

from __future__ import annotations

import gzip
import resource
import struct
import tempfile
import zlib
from pathlib import Path

import cramjam
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from recordio_records import make_records

from paddle_base.recordio import compression
from paddle_base.recordio.compression import PayloadError, compress, decompress
from paddle_base.recordio.errors import ChunkPlace, DamagedChunkError, ForeignFileError
from paddle_base.recordio.index import read_index
from paddle_base.recordio.layout import HEADER, MAGIC, MOST_CHUNK_BYTES, Compression, find_ends
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.recordio.writing import RecordIOWriter
from paddle_base.runtime.errors import ConfigError

RECORDS = make_records(40, 60)
SNAPPY_BEGINNING = b"\xff\x06\x00\x00sNaPpY"


def make(path: Path, compression: Compression) -> bytes:
    with RecordIOWriter(path, compression, 300) as writer:
        for record in RECORDS:
            writer.write(record)
    return path.read_bytes()


def chunk(payload: bytes, compression: int = 0, records: int = 1, **fields: int) -> bytes:
    """A chunk with a right CRC, and fields of the header as they are given."""
    said = {"magic": MAGIC, "crc": zlib.crc32(payload), "compression": compression, "size": len(payload)} | fields
    return HEADER.pack(*said.values(), records) + payload


def record(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


@pytest.fixture(scope="module")
def whole() -> dict[Compression, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        return {one: make(Path(directory) / one.name, one) for one in Compression}


def read_until_error(path: Path) -> tuple[list[bytes], DamagedChunkError | None]:
    found: list[bytes] = []
    try:
        found.extend(RecordIOReader(path))
    except DamagedChunkError as error:
        return found, error
    return found, None


@settings(max_examples=300, deadline=None)
@given(data=st.data(), compressed=st.sampled_from(list(Compression)))
def test_flipped_bits_give_records_of_whole_chunks_and_then_one_error(
    data: st.DataObject, compressed: Compression, whole: dict[Compression, bytes]
) -> None:
    damaged = bytearray(whole[compressed])
    for bit in data.draw(st.sets(st.integers(0, len(damaged) * 8 - 1), min_size=1, max_size=4)):
        damaged[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "damaged"
        path.write_bytes(damaged)
        found, error = read_until_error(path)
        assert error is not None
        is_foreign = isinstance(error, ForeignFileError)  # a bit of the file's first four bytes is flipped
        assert str(error).startswith(f"{path} is no RecordIO file: " if is_foreign else f"{error.place}: ")
        assert error.place.path == str(path) and not (is_foreign and error.place.offset)
        assert found == RECORDS[: len(found)]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), compressed=st.sampled_from(list(Compression)))
def test_a_truncated_tail_is_named_unless_it_ends_between_two_chunks(
    data: st.DataObject, compressed: Compression, whole: dict[Compression, bytes]
) -> None:
    size = data.draw(st.integers(0, len(whole[compressed]) - 1))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "whole"
        path.write_bytes(whole[compressed])
        ends = {0, *(one.end for one in read_index(path).chunks)}
        path.write_bytes(whole[compressed][:size])
        found, error = read_until_error(path)
        assert found == RECORDS[: len(found)]
        assert (error is None) == (size in ends)
        if error is not None:
            assert "the file ends" in str(error)
            with pytest.raises(DamagedChunkError):
                read_index(path)


@settings(max_examples=300, deadline=None)
@given(payload=st.binary(max_size=80), records=st.integers(0, 5), compressed=st.sampled_from(list(Compression)))
def test_any_payload_is_records_or_an_error(payload: bytes, records: int, compressed: Compression) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "any"
        begin = SNAPPY_BEGINNING if compressed == Compression.SNAPPY else b""
        path.write_bytes(chunk(begin + payload, compressed, records))
        found, error = read_until_error(path)
        assert (error is None) or not found
        if error is None:
            raw = decompress(begin + payload, compressed, MOST_CHUNK_BYTES)
            assert b"".join(map(record, found)) == raw and len(found) == records


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=400), flips=st.lists(st.integers(0, 10**6), max_size=3))
def test_snappy_without_the_crc_of_the_chunk_gives_whole_frames_or_an_error(raw: bytes, flips: list[int]) -> None:
    """A flipped kind makes a frame one that readers leave out; the CRC of the chunk is there for that."""
    payload = bytearray(compress(raw * 9, Compression.SNAPPY))
    for flip in flips:
        if payload:
            payload[flip // 8 % len(payload)] ^= 1 << flip % 8
    try:
        assert decompress(bytes(payload), Compression.SNAPPY, 10**6) in (raw * 9, b"")
    except PayloadError:
        assert flips or not raw


@each(
    ("content", "said"),
    [
        (
            b"some text of a page",
            "/hostile is no RecordIO file: it begins with b'some tex'; take a file in the RecordIO",
        ),
        (b"1,2\n", "/hostile is no RecordIO file: it begins with b'1,2\\n'; take"),
        (b"\x04\x03", "chunk 0 at byte 0: the file ends 18 bytes before"),
        (
            chunk(b"", records=0) + b"x" * 20,
            "chunk 1 at byte 20: the chunk begins with the wrong number 0x78787878; take",
        ),
        (chunk(record(b"a"), 3), "the chunk's compression is 3"),
        (
            chunk(record(b"a"), size=2**32 - 1),
            "the file ends 4294967290 bytes before the end of the chunk's 4294967295",
        ),
        (chunk(record(b"a"), records=2), "2 records do not fit into 5 bytes"),
        (chunk(record(b"a"), Compression.GZIP, 2**32 - 1), "4294967295 records do not fit into 268435456 bytes"),
        (chunk(record(b"a") * 2), "the payload of 10 bytes does not agree with the header's number of records, 1;"),
        (chunk(record(b"abcd")[:-1]), "the payload of 7 bytes does not agree"),
        (chunk(struct.pack("<I", 2**32 - 1) + b"abcd", records=2), "the payload of 8 bytes does not agree"),
        (
            chunk(b"", records=0) + b"\x04\x03",
            "chunk 1 at byte 20: the file ends 18 bytes before the end of the chunk's",
        ),
        (chunk(record(b"a"), crc=0), "the CRC-32 of the chunk's 5 bytes is 0x"),
        (chunk(record(b"a"), Compression.GZIP), "the payload cannot be decompressed: gzip cannot read the payload"),
        (
            chunk(gzip.compress(record(b"a"), mtime=0)[:-1], Compression.GZIP),
            "the payload is not exactly one gzip member",
        ),
        (
            chunk(gzip.compress(record(b"a"), mtime=0) * 2, Compression.GZIP),
            "the payload is not exactly one gzip member",
        ),
        (chunk(b"sNaPpY" * 3, Compression.SNAPPY), "the payload does not begin like data in Snappy's framed format"),
        (
            chunk(SNAPPY_BEGINNING + b"\x01\x01\x00\x00a", Compression.SNAPPY),
            "the payload ends inside a frame of Snappy",
        ),
        (
            chunk(SNAPPY_BEGINNING + b"\x01\xff\xff\xffabcd", Compression.SNAPPY),
            "the payload ends inside a frame of Snappy",
        ),
        (
            chunk(SNAPPY_BEGINNING + b"\x02\x00\x00\x00", Compression.SNAPPY),
            "a frame of a kind that Snappy does not define (2)",
        ),
        (
            chunk(SNAPPY_BEGINNING + b"\x00\x07\x00\x00abcd\xff\xff\x7f", Compression.SNAPPY),
            "a frame of Snappy declares more than 65536 bytes",
        ),
        (
            chunk(SNAPPY_BEGINNING + b"\x01\x09\x00\x00abcd" + record(b"a"), Compression.SNAPPY),
            "Snappy cannot read the payload",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "file",
)
def test_what_is_wrong_is_said(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(content)
    found, error = read_until_error(path)
    assert found == []
    assert said in str(error)
    assert error is not None and error.exit_code == 65 and error.place.path == str(path)


def test_a_chunk_larger_than_any_reader_takes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(HEADER.pack(MAGIC, 0, 0, MOST_CHUNK_BYTES + 1, 1))
        file.truncate(HEADER.size + MOST_CHUNK_BYTES + 1)
    with pytest.raises(DamagedChunkError, match="bytes; the maximum is 268435456; write the file with smaller chunks"):
        read_index(path)


@pytest.mark.parametrize("compressed", [Compression.GZIP, Compression.SNAPPY])
def test_a_bomb_stops_at_the_bound(compressed: Compression, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    payload = compress(bytes(64 << 20), compressed)
    (tmp_path / "bomb").write_bytes(chunk(payload, compressed, 1 << 20))
    monkeypatch.setattr("paddle_base.recordio.reading.MOST_CHUNK_BYTES", 1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedChunkError, match="the payload's decompressed size is above 1048576 bytes"):
        list(RecordIOReader(tmp_path / "bomb"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10  # KiB


def test_lengths_beyond_32_bits_are_no_records() -> None:
    with pytest.raises(DamagedChunkError):
        find_ends(record(b"") + struct.pack("<I", 2**32 - 1), 2, ChunkPlace("some", 0, 0))


def test_without_cramjam_only_chunks_of_snappy_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: dict[Compression, bytes]
) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(name)

    assert cramjam is compression.load_cramjam()
    monkeypatch.setattr("importlib.import_module", fail)
    for one, content in whole.items():
        (tmp_path / one.name).write_bytes(content)
        assert read_index(tmp_path / one.name).records == len(RECORDS)
    for one in (Compression.NONE, Compression.GZIP):
        assert list(RecordIOReader(tmp_path / one.name)) == RECORDS
    with pytest.raises(ConfigError, match="pip install cramjam"):
        list(RecordIOReader(tmp_path / "SNAPPY"))
    with pytest.raises(ConfigError, match="pip install cramjam"):
        RecordIOWriter(tmp_path / "new")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["GZIP", "NONE", "SNAPPY"]

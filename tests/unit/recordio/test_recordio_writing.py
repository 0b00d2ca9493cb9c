"""A written file is complete or not there, and its chunks are bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.recordio import writing
from paddle_base.recordio.errors import OversizedRecordError
from paddle_base.recordio.index import read_index
from paddle_base.recordio.layout import Compression
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.recordio.writing import RecordIOWriter
from paddle_base.runtime.errors import VolumeError


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.binary(max_size=50), max_size=30), compressed=st.sampled_from(list(Compression)),
    most=st.integers(0, 200),
)  # fmt: skip
def test_what_is_written_is_read(
    records: list[bytes], compressed: Compression, most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "written"
    with RecordIOWriter(path, compressed, most) as writer:
        for one in records:
            writer.write(one)
    assert list(RecordIOReader(path)) == records
    assert read_index(path).records == len(records)


def test_a_link_stays_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(VolumeError, match=r"cannot write .*: Is (a directory|no regular file); "):
            RecordIOWriter(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("file")
    for record in (b"new", b"anew"):
        with RecordIOWriter(tmp_path / "link") as writer:
            writer.write(record)
        assert (tmp_path / "link").is_symlink() and list(RecordIOReader(tmp_path / "file")) == [record]


def test_an_error_leaves_no_file_and_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "some"
    for content in (None, b"before"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ZeroDivisionError), RecordIOWriter(path, Compression.NONE, 1) as writer:
            writer.write(b"a")
            writer.write(b"b")
            raise ZeroDivisionError
        assert [one.read_bytes() for one in tmp_path.iterdir()] == [content] * (content is not None)


def test_a_full_volume_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(VolumeError, match=r"cannot write .*/some: No space left on device; make room"):
        RecordIOWriter(tmp_path / "some").close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(VolumeError, match="No such file or directory"):
        RecordIOWriter(tmp_path / "absent" / "some")


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    writer = RecordIOWriter(tmp_path / "some", Compression.NONE)
    writer.write(b"a")
    writer.close()
    writer.close()
    assert list(RecordIOReader(tmp_path / "some")) == [b"a"]


def test_a_record_beyond_any_chunk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_CHUNK_BYTES", 100)
    with RecordIOWriter(tmp_path / "some", Compression.NONE) as writer:
        writer.write(bytes(96))
        with pytest.raises(
            OversizedRecordError, match=r"a record of 97 bytes for .*: a chunk has at most 100 bytes; split"
        ):
            writer.write(bytes(97))


def test_empty_records_fill_chunks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The original's writer counts no lengths, so that records without bytes filled its memory."""
    monkeypatch.setattr(writing, "MOST_CHUNK_BYTES", 40)
    with RecordIOWriter(tmp_path / "some", Compression.NONE) as writer:
        for _ in range(25):
            writer.write(b"")
    assert [one.records for one in read_index(tmp_path / "some").chunks] == [10, 10, 5]


def test_a_chunk_is_as_the_original_counts_it(tmp_path: Path) -> None:
    with RecordIOWriter(tmp_path / "some", Compression.NONE, 100) as writer:
        for one in [bytes(50), bytes(50), b"a", bytes(300), b"", b"b"]:
            writer.write(one)
    assert [one.records for one in read_index(tmp_path / "some").chunks] == [2, 1, 1, 2]


def test_what_is_no_bytes_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    with RecordIOWriter(tmp_path / "some", Compression.NONE) as writer:
        writer.write(b"a")
        with pytest.raises(TypeError):
            writer.write("text")  # type: ignore[arg-type]
        writer.write(b"b")
    assert list(RecordIOReader(tmp_path / "some")) == [b"a", b"b"]

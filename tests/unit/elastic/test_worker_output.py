"""The files of the workers' output: another writer, and a volume that is full."""

from __future__ import annotations

import contextlib
import os
from io import FileIO
from pathlib import Path

import pytest

from paddle_cluster.elastic.launching.output import OutputWriter


def test_two_writers_of_a_file_leave_no_gaps_in_it(tmp_path: Path) -> None:
    """Two drivers with the same --output-filename wrote NUL bytes, because the second had truncated the file."""
    files: list[FileIO | None] = []
    writers = [OutputWriter(tmp_path, 1, False) for _ in range(2)]
    with contextlib.ExitStack() as stack:
        for number, text in ((0, b"first\n"), (1, b"second\n")):
            found = writers[number].open(0)
            for file in found.values():
                assert file is not None
                stack.callback(file.close)
            files.append(found["stdout"])
            writers[number].show(0, "stdout", text, files[number])
        writers[0].show(0, "stdout", b"third\n", files[0])
    assert (tmp_path / "rank.0/stdout").read_bytes() == b"second\n"
    assert (tmp_path / "rank.0/stdout.1").read_bytes() == b"first\nthird\n"


def test_the_output_of_an_earlier_job_stays(tmp_path: Path) -> None:
    """The next job with the same --output-filename emptied it in silence."""
    for text in (b"first\n", b"second\n", b"third\n"):
        writer = OutputWriter(tmp_path, 1, False)
        for _ in range(2):  # the second worker of the rank appends
            files = writer.open(0)
            writer.show(0, "stdout", text, files["stdout"])
            for file in files.values():
                assert file is not None
                file.close()
    found = {path.name: path.read_bytes() for path in (tmp_path / "rank.0").iterdir() if path.stat().st_size}
    assert found == {"stdout.1": b"first\n" * 2, "stdout.2": b"second\n" * 2, "stdout": b"third\n" * 2}


def test_a_write_that_is_short_goes_on_with_the_rest(tmp_path: Path) -> None:
    """The rest of a short write was lost."""

    class ShortFile(FileIO):
        def write(self, data: memoryview) -> int:  # type: ignore[override]
            return super().write(data[:3])

    source, sink = os.pipe()
    os.write(sink, b"one two three\n")
    os.close(sink)
    path = tmp_path / "stdout"
    OutputWriter(None, 1, False).copy(FileIO(source, "rb"), 0, "stdout", ShortFile(path, "ab"))
    assert path.read_bytes() == b"one two three\n"


def test_a_file_that_lacks_output_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Output was lost without a word when the volume was full."""
    writer = OutputWriter(None, 1, False)
    with FileIO("/dev/full", "ab") as file:
        for text in (b"one\n", b"two\n"):
            writer.show(0, "stdout", text, file)
    found = capsys.readouterr()
    assert found.out == "[0]<stdout>:one\n[0]<stdout>:two\n"
    assert found.err.count("/dev/full lacks output of its worker, because it cannot be written: No space left") == 1

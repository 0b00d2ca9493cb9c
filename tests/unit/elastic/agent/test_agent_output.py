"""What a worker writes on its way to the driver: bounds, back-pressure, lines."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from paddle_cluster.elastic.agent.protocol import MOST_CHUNK, OutputAnswer, StreamMark, StreamPart
from paddle_cluster.elastic.agent.remote import OutputPrinter
from paddle_cluster.elastic.agent.workers import MOST_KEPT, WorkerOutput
from paddle_cluster.elastic.launching.output import OutputWriter, WorkerPipe

WAIT_S = 60.0


class Piped:
    """A stream of a worker, whose writer is the test."""

    def __init__(self, output: WorkerOutput, kind: str = "stdout") -> None:
        source, self.sink = os.pipe()
        output.open(0)
        self.thread = threading.Thread(target=output.copy, args=(WorkerPipe(source), 0, kind, None), daemon=True)
        self.thread.start()

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.sink, data) :]

    def end(self) -> None:
        os.close(self.sink)
        self.thread.join(WAIT_S)


def marks(shown: int = -1, seen: int = 0) -> dict[str, StreamMark]:
    return {"stdout": StreamMark(shown, seen), "stderr": StreamMark()}


def test_what_is_shown_is_forgotten_and_the_rest_is_given_again() -> None:
    output = WorkerOutput()
    piped = Piped(output)
    piped.write(b"one\ntwo")
    assert output.read(marks(), MOST_CHUNK, WAIT_S).parts["stdout"] == StreamPart(0, b"one\ntwo", 7)
    assert output.read(marks(4, 7), MOST_CHUNK, 0.0).parts["stdout"] == StreamPart(4, b"two", 7)
    piped.write(b"!")
    assert output.read(marks(4, 7), MOST_CHUNK, WAIT_S).parts["stdout"] == StreamPart(4, b"two!", 8)
    piped.end()
    assert output.read(marks(), 2, 0.0).parts["stdout"] == StreamPart(4, b"tw", 8)


def test_a_worker_that_writes_more_than_is_kept_waits() -> None:
    output = WorkerOutput()
    piped = Piped(output)
    data = bytes(range(256)) * (8 * MOST_KEPT // 256)
    writer = threading.Thread(target=piped.write, args=(data,), daemon=True)
    writer.start()
    found, most = bytearray(), 0
    while len(found) < len(data):
        part = output.read(marks(len(found), len(found)), MOST_CHUNK, WAIT_S).parts["stdout"]
        assert part.first == len(found)
        most = max(most, part.total - part.first)
        found += part.data
    writer.join(WAIT_S)
    piped.end()
    assert found == data
    assert most < MOST_KEPT + (1 << 16)


def test_the_end_comes_when_no_reader_waits_for_room() -> None:
    output = WorkerOutput()
    piped = Piped(output)
    writer = threading.Thread(target=piped.write, args=(bytes(3 * MOST_KEPT),), daemon=True)
    writer.start()
    finisher = threading.Thread(target=output.finish, args=(0,), daemon=True)
    while output.read(marks(), 0, 0.01).parts["stdout"].total < MOST_KEPT:
        pass
    finisher.start()
    assert output.read(marks(), 0, 0.0).exit_code is None
    output.discard()
    finisher.join(WAIT_S)
    writer.join(WAIT_S)
    piped.end()
    assert output.read(marks(), MOST_CHUNK, WAIT_S).exit_code == 0
    assert output.is_empty


def test_lines_are_shown_whole_and_the_last_one_as_it_is(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    writer = OutputWriter(tmp_path, 1, False)

    def news(first: int, data: bytes, total: int, code: int | None) -> OutputAnswer:
        return OutputAnswer({"stdout": StreamPart(first, data, total), "stderr": StreamPart(0, b"", 0)}, code)

    with OutputPrinter(writer, 3) as shower:
        shower.give(news(0, b"one\ntw", 6, None))
        assert shower.wait(WAIT_S)
        assert shower.marks["stdout"] == StreamMark(4, 6)
        last = news(4, b"two\nthr", 14, 0)
        shower.give(last)
        assert not shower.has_all(last)
        assert shower.marks["stdout"] == StreamMark(8, 11)
        last = news(8, b"three!", 14, 0)
        shower.give(last)
        assert shower.has_all(last)
    assert (tmp_path / "rank.3/stdout").read_bytes() == b"one\ntwo\nthree!"


def test_a_line_longer_than_an_answer_is_shown_in_parts() -> None:
    with OutputPrinter(OutputWriter(None, 1, False), 0) as shower:
        shower.give(
            OutputAnswer({"stdout": StreamPart(0, bytes(MOST_CHUNK), 9 << 20), "stderr": StreamPart(0, b"", 0)}, None)
        )
        assert shower.wait(WAIT_S)
        assert shower.marks["stdout"].shown == MOST_CHUNK

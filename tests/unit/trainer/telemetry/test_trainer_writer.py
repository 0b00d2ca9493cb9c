"""The thread that writes records, progress and report: what it takes at one moment, and what the last page says."""

import threading
from types import SimpleNamespace

import pytest

from trainer.records.records import read_all_records
from trainer.telemetry import writer as writer_module
from trainer.telemetry.reporter import OutputTarget, Reporter
from trainer.telemetry.writer import PERIOD_S, Writer, WriterState

LIMIT_S = 30
SNAPSHOT = Reporter(None, passes=4).snapshot


@pytest.fixture
def pages(monkeypatch):
    """What was in records.jsonl whenever the report was made."""
    found = []

    def write_report(output):
        found.append((output / "records.jsonl").read_text())

    monkeypatch.setattr("trainer.report.write_report", write_report)
    return found


def test_the_last_page_has_the_record_of_the_end(tmp_path, pages):
    """The end came while a round was written: that round's page used up the wish for a page, and said "training"."""
    has_ended = threading.Event()
    is_first = iter([True])

    def write_progress(_snapshot):
        if next(is_first, False):
            writer.tell(SNAPSHOT, "end\n")
            ending.start()
            assert has_ended.wait(LIMIT_S)

    writer = Writer(tmp_path, write_progress, has_report=True)
    join = writer.join
    writer.join = lambda limit_s: has_ended.set()  # end() waits here, after it has said so
    ending = threading.Thread(target=writer.end, args=(LIMIT_S,))
    writer.tell(SNAPSHOT, "batch\n")
    writer.start()
    writer.show()
    join(LIMIT_S)
    assert not writer.is_alive()
    assert pages[-1] == "batch\nend\n"


@pytest.mark.parametrize("has_report", [True, False], ids=["trainer 0", "another trainer"])
def test_the_writer_rests_between_two_rounds(tmp_path, pages, monkeypatch, has_report):
    """A trainer that makes no report kept the wish for one, and wrote its progress without a pause."""
    writer = Writer(tmp_path, lambda _snapshot: None, has_report=has_report)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            writer._state = WriterState.ENDING

    monkeypatch.setattr(writer._changed, "wait", wait)
    writer.tell(SNAPSHOT, "batch\n")
    writer.show()
    writer.start()
    writer.join(LIMIT_S)
    assert waits == [PERIOD_S] * 3


def test_a_report_that_is_not_due_comes_as_soon_as_it_is(tmp_path, pages, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(writer_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    writer = Writer(tmp_path, lambda _snapshot: None, has_report=True)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        now[0] += seconds
        if len(waits) == 4:
            writer._state = WriterState.ENDING

    monkeypatch.setattr(writer._changed, "wait", wait)
    (tmp_path / "records.jsonl").write_text("")
    writer._report_due = 1012.0  # a page took long
    writer.show()
    writer.start()
    writer.join(LIMIT_S)
    assert waits == [5.0, 5.0, 2.0, 5.0]


def test_a_round_has_the_snapshot_that_came_with_its_last_line(tmp_path):
    """So a page never has the progress of one moment and the records of another."""
    rounds = []

    def write_progress(snapshot):
        lines = (tmp_path / "records.jsonl").read_text().splitlines()
        rounds.append((snapshot.batch, int(lines[-1])))
        writer.show()

    writer = Writer(tmp_path, write_progress, has_report=False)
    writer.tell(SNAPSHOT._replace(batch=0), "0\n")
    writer.start()
    for batch in range(1, 300):
        writer.tell(SNAPSHOT._replace(batch=batch), f"{batch}\n")
    writer.end(LIMIT_S)
    assert [batch for batch, _ in rounds] == [line for _, line in rounds]
    assert rounds[-1] == (299, 299)


def test_what_is_told_before_the_start_is_written_and_after_the_end_is_not(tmp_path):
    writer = Writer(tmp_path, lambda _snapshot: None, has_report=False)
    writer.tell(SNAPSHOT, "before\n")
    writer.start()
    writer.end(LIMIT_S)
    writer.tell(SNAPSHOT, "after\n")
    writer.end(LIMIT_S)
    assert (tmp_path / "records.jsonl").read_text() == "before\n"


def test_a_writer_that_was_never_started_ends_at_once(tmp_path):
    writer = Writer(tmp_path, lambda _snapshot: None, has_report=True)
    writer.tell(SNAPSHOT, "line\n")
    writer.end(LIMIT_S)
    assert list(tmp_path.iterdir()) == []


def test_ten_jobs_say_at_their_end_that_they_have_ended(tmp_path):
    """With the real page, whose making the end often meets."""
    for number in range(10):
        output = tmp_path / str(number)
        output.mkdir()
        reporter = Reporter(OutputTarget(output, None, 0, ""), passes=1)
        reporter.start(**{"pass": 0, "batch": 0, "trainers": 1})
        reporter.start_pass(0)
        reporter.add(1, 64)
        reporter.show()
        reporter.end(0)
        assert [one["kind"] for one in read_all_records(output)] == ["start", "end"]
        assert '<span class="state finished">finished</span>' in (output / "report.html").read_text()

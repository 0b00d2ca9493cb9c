"""What the report says of the workers of an all-reduce job."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from membership_story import BEGAN, StoryJob
from report_jobs import local_run
from waiting import until

from paddle_cluster.elastic.membership.decisions import READY
from paddle_cluster.elastic.membership_file import NAME
from trainer.report.facts import Reader
from trainer.report.links import Links
from trainer.report.page import make_page
from trainer.report.state import SILENCE_S, describe_state


def make(output: Path, end: dict[str, Any] | None = None, after: float = 1.0) -> tuple[str, str]:
    """A job with a failure; returns the state and the page `after` seconds."""
    job = StoryJob()
    job.begin("a", "b")
    job.history.fail(("b", 0), -9, BEGAN + 10)
    job.history.report(("a", 0), READY)
    job.now += 12
    job.begin("a", "b", "<c>", new=("b",))
    (output / NAME).write_text(json.dumps(job.record(end)))
    (output / "rank.0").mkdir()
    (output / "rank.0" / "stdout").write_text("said\n")
    facts = Reader(output, lambda: job.now + after).read()
    assert facts.is_known
    return describe_state(facts).name, make_page(facts, Links(output, output / "report.html"), None)


def test_generations_and_workers_are_in_tables_and_the_output_in_the_files(tmp_path: Path) -> None:
    state, page = make(tmp_path)
    assert state == "training"
    for text in ("Works since 1.0 s: generation 2 of 3 workers", "b[0], rank 1, ended by signal 9", "2.0 s"):
        assert text in page
    assert "rank 2: &lt;c&gt;[0], since generation 2, works" in page
    assert "rank.0/stdout" in page
    assert "<c>" not in page


@pytest.mark.parametrize(("status", "state"), [(0, "finished"), (75, "failed"), (143, "stopped")])
def test_the_end_of_the_job_is_the_state(tmp_path: Path, status: int, state: str) -> None:
    found, page = make(tmp_path, {"status": status, "reason": "as the test says"}, after=99.0)
    assert found == state
    assert "as the test says" in page


def test_a_silent_driver_is_named(tmp_path: Path) -> None:
    state, page = make(tmp_path, after=SILENCE_S + 1)
    assert state == "training"
    assert "has not written for 1.0 min: it was killed" in page


def test_a_run_that_trains_says_itself_how_it_is_and_has_no_workers(tmp_path: Path) -> None:
    job = local_run(tmp_path)
    before = Reader(tmp_path, lambda: job.now).read()
    assert "Workers" not in make_page(before, Links(tmp_path, tmp_path / "report.html"), None)
    state, page = make(tmp_path, after=1e9)
    assert state == describe_state(before).name
    assert 'id="workers"' in page


def test_a_record_that_is_none_is_left_out(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{}")
    facts = Reader(tmp_path).read()
    assert not facts.is_known
    assert facts.membership == {}


def test_a_clock_that_is_set_back_does_not_keep_the_list_of_files_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as the step, a reader listed no directory again."""
    real = time.time
    reader = Reader(tmp_path)
    reader.read()
    monkeypatch.setattr(time, "time", lambda: real() - 600)
    (tmp_path / "pass-00000").mkdir()
    until(lambda: reader.read().listing.passes == ["pass-00000"], "the reader lists the directory again")

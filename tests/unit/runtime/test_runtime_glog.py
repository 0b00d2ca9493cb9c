"""Lines as JSON, whatever is said and whenever."""

import json
import signal

import pytest

from paddle_base.runtime import glog


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """A JSON log; returns what reads its messages."""
    monkeypatch.setattr(glog, "_json", None)
    monkeypatch.setattr(glog, "_said_in_json", {})
    path = tmp_path / "log.jsonl"
    glog.to_json(str(path), role="trainer", number=1, attempt="1.aa")
    yield lambda: [json.loads(line)["message"] for line in path.read_bytes().splitlines()]
    glog._json.close()


def test_any_text_is_one_line(lines):
    said = ["a\nb", "\x1b[31m \ud800 \udcff \u2028", "é\0"]
    for text in said:
        glog.info(text)
    assert lines() == said


def test_a_signal_handler_may_log_in_the_middle_of_a_line(lines):
    """The timer fires once a line: a periodic one interrupts its own handler without end on a slow machine."""
    before = signal.signal(signal.SIGALRM, lambda *_: glog.warning("signal"))
    try:
        while lines().count("signal") < 100:
            for microseconds in range(1, 101):
                signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
                glog.info("x" * 100)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert set(lines()) == {"signal", "x" * 100}


def test_a_log_that_takes_no_more_ends_nothing(lines, capsys):
    glog._json.close()
    glog.info("a line")
    assert "a line" in capsys.readouterr().err

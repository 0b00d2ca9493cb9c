"""Colour and the bar: only on a terminal, and never against NO_COLOR."""

import io
import sys

import pytest
from each import each

from paddle_base.runtime import glog, terminal

XTERM = {"TERM": "xterm"}


class Terminal(io.StringIO):
    def isatty(self):
        return not super().isatty()  # which raises if it is closed


@each(
    "stream, environ, can_move, can_paint",
    [
        (Terminal(), XTERM, True, True),
        (Terminal(), {**XTERM, "NO_COLOR": "1"}, True, False),
        (Terminal(), {**XTERM, "NO_COLOR": ""}, True, True),
        (Terminal(), {"TERM": "dumb"}, False, False),
        (Terminal(), {}, False, False),
        (io.StringIO(), XTERM, False, False),
        (None, XTERM, False, False),
    ],
)
def test_what_a_stream_shows(stream, environ, can_move, can_paint):
    assert terminal.is_terminal(stream, environ) == can_move
    assert terminal.has_colour(stream, environ) == can_paint


def test_a_closed_stream_is_no_terminal():
    closed = Terminal()
    closed.close()
    assert not terminal.has_colour(closed, XTERM)


@pytest.mark.parametrize(
    "fraction, picture",
    [(-1, "[----]"), (0, "[----]"), (0.5, "[##--]"), (0.99, "[###-]"), (1, "[####]"), (7, "[####]")],
)
def test_the_bar_is_full_at_the_end_and_not_before(fraction, picture):
    assert terminal.draw_bar(fraction, 4) == picture


@pytest.mark.parametrize(
    "line, painted",
    [
        ("1  pod-1  -  Running  3", "1  pod-1  -  \x1b[32mRunning\x1b[0m  3"),
        ("tasks of pass 1: 2 todo, 0 failed, of 9", "tasks of pass 1: 2 todo, 0 failed, of 9"),
        ("tasks of pass 1: 3 failed", "tasks of pass 1: 3 \x1b[31mfailed\x1b[0m"),
        ("ID  POD  NODE", "\x1b[1mID  POD  NODE\x1b[0m"),
        (
            "attempt 2; restarting: no trainer has begun yet",
            "attempt 2; \x1b[33mrestarting\x1b[0m: no trainer has begun yet",
        ),
    ],
)
def test_states_are_painted(line, painted):
    assert terminal.paint_states(line) == painted


def test_lines_without_a_terminal_stay_as_they_are():
    lines = ["training: pass 1", "ID  POD"]
    assert terminal.format_lines(lines, 0.5, io.StringIO(), XTERM) == "training: pass 1\nID  POD\n"
    assert terminal.format_lines(lines, 0.5, Terminal(), {**XTERM, "NO_COLOR": "1"}) == (
        "training: pass 1\nID  POD\n[############------------] 50% of the job\n"
    )
    assert terminal.format_lines(lines, None, Terminal(), XTERM).count("\x1b[") == 4


@pytest.fixture
def on_terminal(monkeypatch):
    """Make stderr a terminal; called in the test, because pytest sets its own before that."""

    def make():
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        return made

    yield make
    glog.set_bottom_line("")


def test_a_log_line_comes_above_the_bottom_line(on_terminal):
    stderr = on_terminal()
    glog.set_bottom_line("[##--] half")
    glog.info("a line", at="a.py:1")
    glog.set_bottom_line("")
    glog.write("after\n")
    first, second, last = stderr.getvalue().split("\r\x1b[K")[1:]
    assert first == "[##--] half\r"
    assert second.endswith("a.py:1] a line\n[##--] half\r") and last == "after\n"


def test_the_bottom_line_is_cut_to_one_line(on_terminal, monkeypatch):
    stderr = on_terminal()
    monkeypatch.setattr(terminal, "count_columns", lambda stream: 10)
    glog.set_bottom_line("x" * 100)
    assert stderr.getvalue() == "\r\x1b[K" + "x" * 9 + "\r"


def test_warnings_are_yellow_and_errors_red(on_terminal):
    stderr = on_terminal()
    for write, style in ((glog.warning, "33"), (glog.error, "31"), (glog.fatal, "31")):
        write("it is so")
        line = stderr.getvalue().splitlines(keepends=True)[-1]
        assert line.startswith(f"\x1b[{style}m") and line.endswith("it is so\x1b[0m\n")
    glog.info("and so")
    assert "\x1b" not in stderr.getvalue().splitlines()[-1]

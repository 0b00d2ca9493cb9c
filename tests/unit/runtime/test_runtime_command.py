"""A program's way from its arguments to its exit status."""

from dataclasses import dataclass

import pytest

from paddle_base.runtime.command import FlagValues, format_flags, run_program
from paddle_base.runtime.errors import BugError, ConfigError, InterruptError, UsageError
from paddle_base.runtime.gflags import LIBRARY_HELP, Flag, Status, flag, flags_of, index_flags, time_flag

FLAGS = index_flags(
    Flag("wait", "10s", Status.SUPPORTED, "time to wait"),
    Flag("quick", False, Status.QUIET, "it is always quick"),
)


def raises(error: BaseException) -> int:
    raise error


def test_help_prints_the_manual_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["--port=1", "--help"], lambda: "usage\n", lambda _: raises(AssertionError())) == 0
    assert capsys.readouterr().out == "usage\n"


def test_a_program_that_ends_returns_its_status() -> None:
    assert run_program(["a"], str, lambda arguments: len(arguments)) == 1


@pytest.mark.parametrize("error", [UsageError("two\nlines"), ConfigError("wrong"), InterruptError("signal 15")])
def test_an_error_is_one_line_and_its_status(error: ConfigError, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_program([], str, lambda _: raises(error)) == error.exit_code
    assert " ".join(str(error).split("\n")) in capfd.readouterr().err
    assert error.exit_code != 0


def test_a_bug_shows_where_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_program([], str, lambda _: raises(ZeroDivisionError("bug"))) == BugError.exit_code
    assert "ZeroDivisionError: bug" in capfd.readouterr().err


def test_values_are_read_by_their_kind() -> None:
    line = FlagValues({"wait": "1m30s", "port": 7, "old": "", "new": "a, b,,"}, [])
    assert (line.seconds("wait"), line.number("port"), line.text("wait")) == (90.0, 7, "1m30s")
    assert line.items("old", "new") == ["a", "b"]
    assert line.items("old") == []


@dataclass(frozen=True)
class Pace:
    """Settings of a program."""

    most: int = flag("pace_max", 3, "maximum", 1, 9)
    pause: float = time_flag("pace_pause", "1m", "time between two steps")


def test_a_field_declares_the_flag_that_fills_it() -> None:
    """A setting stood in the table of flags, in the class of its value, and in the code that moved it: issue M."""
    assert (Pace().most, Pace().pause) == (3, 60.0)
    line = FlagValues.read(["--pace_max=9", "--pace_pause=2h"], index_flags(*flags_of(Pace).values()))
    assert line.fill(Pace) == Pace(9, 7200.0)
    with pytest.raises(UsageError, match=r"--pace_max is 10; it must be in \[1, 9\]"):
        FlagValues.read(["--pace_max=10"], index_flags(*flags_of(Pace).values()))


def test_the_manual_says_which_flags_have_no_effect() -> None:
    assert format_flags(FLAGS) == [
        "  --wait=10s".ljust(41) + " time to wait",
        "  --quick=false".ljust(41) + " no effect: it is always quick",
        "",
        LIBRARY_HELP,
    ]

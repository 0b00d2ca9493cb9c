from __future__ import annotations

import pytest
from each import each

from paddle_cluster.localcluster.api.objects import PodState
from paddle_cluster.localcluster.api.server import peak_rate
from paddle_cluster.localcluster.errors import OptionError
from paddle_cluster.localcluster.faults import Orders, concerns, parse_fault, parse_faults, parse_follow
from paddle_cluster.localcluster.pods.report import ConsoleReporter

POD = PodState("j-1-abcde", "j", "u", "c", index=1)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("kill", "1@2.5"), ("kill", "*-1-*@Pass=0"), ("term", "0@a@b"), ("delay", "2@3"), ("delay", "2@0:a:b")],
)
def test_a_fault_is_read_and_written_alike(kind: str, text: str):
    assert str(parse_fault(kind, text)) == f"--{kind} {text}"


def test_seconds_may_have_their_unit():
    assert parse_fault("kill", "1@2s").seconds == 2.0


@each(
    ("kind", "text", "message"),
    [
        ("kill", "1", "the form is POD@WHEN"),
        ("kill", "@1", "the form is POD@WHEN"),
        ("kill", "1@", "the form is POD@WHEN"),
        ("kill", "1@(", r"--kill 1@\(: '\(' is no regular expression"),
        ("delay", "1@ready", "seconds or POD:REGEX"),
        ("delay", "1@0:", "seconds or POD:REGEX"),
        ("kill", f"{'9' * 5000}@1", "POD is a number of at most 18 digits"),
        ("kill", "١@Pass=0", "POD is a number of at most 18 digits"),
        ("delay", f"1@{'9' * 5000}:a", "POD is a number of at most 18 digits"),
        ("kill", f"1@{'9' * 5000}", "WHEN is at most 1000000000 seconds"),
        ("kill", "1@a{99999999999}", "is no regular expression"),
    ],
)
def test_a_fault_of_another_form_is_a_usage_error(kind: str, text: str, message: str):
    with pytest.raises(OptionError, match=message):
        parse_fault(kind, text)


@pytest.mark.parametrize("text", ["kill 3@2", "term 17@Pass=1", "delay 1@3:waiting"])
def test_a_pod_that_the_job_does_not_have_is_refused(text: str) -> None:
    """The fault never came, and the job ended as if it had survived it."""
    with pytest.raises(OptionError, match=r"there is no pod \d+; the Job has the pods 0 to 2"):
        kind, _, fault = text.partition(" ")
        parse_faults({kind: [fault]}, 3)
    assert len(parse_faults({"kill": ["2@2", "*-7-*@2"], "delay": ["0@1:x"]}, 3)) == 3
    assert len(parse_faults({"kill": ["7@2"]})) == 1, "the seventh pod of a Job without indexes"


def orders(*faults: str) -> Orders:
    return Orders([parse_fault(*fault.split(" ", 1)) for fault in faults])


def test_a_fault_strikes_once_per_index():
    board = orders("kill *@x")
    assert board.hear("j-0-a", 0, "x") == [0]
    board.spend(0, 0)
    assert board.hear("j-0-b", 0, "x") == []
    assert board.hear("j-1-a", 1, "x") == [0]


def test_the_same_fault_given_twice_strikes_the_replacement_too():
    board = orders("kill 0@x", "kill 0@x")
    board.spend(board.hear("j-0-a", 0, "x")[0], 0)
    assert board.hear("j-0-b", 0, "x") == [1]


def test_a_line_of_another_pod_makes_no_fault_due():
    assert orders("kill 0@x").hear("j-1-a", 1, "x") == []


def test_a_delay_ends_with_a_line_of_the_watched_pod_only():
    board = orders("delay 2@0:x")
    delay = board.take_delay("j-2-a", 2)
    assert delay == 0
    assert [board.hear("j-1-a", 1, "x"), board.is_over(delay, 99.0)] == [[], False]
    assert [board.hear("j-0-a", 0, "x"), board.is_over(delay, 0.0)] == [[], True]


def test_a_delay_in_seconds_ends_with_them():
    board = orders("delay 2@1.5")
    delay = board.take_delay("j-2-a", 2)
    assert delay is not None
    assert [board.is_over(delay, 1.4), board.is_over(delay, 1.5)] == [False, True]


def test_a_replacement_is_not_delayed_again():
    board = orders("delay *@1")
    assert [board.take_delay("j-2-a", 2), board.take_delay("j-2-b", 2), board.take_delay("j-1-a", 1)] == [0, None, 0]


@pytest.mark.parametrize(
    ("selector", "meant"), [("1", True), ("0", False), ("11", False), ("*", True), ("j-1-*", True), ("j-2-*", False)]
)
def test_a_pod_is_meant_by_index_or_name(selector: str, meant: bool):
    assert concerns(selector, "j-1-abcde", 1) is meant


@pytest.mark.parametrize(
    ("text", "pod", "pattern"),
    [("Pass=", "*", "Pass="), ("0@Pass=", "0", "Pass="), ("*-0-*@x@y", "*-0-*", "x@y"), ("a b@c", "*", "a b@c")],
)
def test_what_is_followed_may_name_a_pod(text: str, pod: str, pattern: str):
    assert (parse_follow(text)[0], parse_follow(text)[1].pattern) == (pod, pattern)


def test_followed_lines_are_printed_with_their_pod(capsys: pytest.CaptureFixture[str]):
    reporter = ConsoleReporter(["1@cost", "^F"])
    for text in ("cost=1", "dull", "Fatal"):
        reporter.line(POD, 1, text)
    reporter.line(POD, 0, "cost=2")
    assert capsys.readouterr().out == "j-1-abcde| cost=1\nj-1-abcde| Fatal\n"


def test_what_the_launcher_waits_for_is_printed_once_whichever_pod_says_it(capsys: pytest.CaptureFixture[str]):
    reporter, quiet = ConsoleReporter(), ConsoleReporter(quiet=True)
    texts = ("waiting: 1 of 3 pods", "waiting: 1 of 3 pods", "node_id 0", "waiting: 2 of 3 pods")
    for second, text in enumerate(texts):
        for hearer in (reporter, quiet):
            hearer.line(POD, 1, f"2026-11-20 10:59:0{second} start_paddle: {text}")
    assert capsys.readouterr().out.splitlines() == [
        "j-1-abcde| 2026-11-20 10:59:00 start_paddle: waiting: 1 of 3 pods",
        "j-1-abcde| 2026-11-20 10:59:03 start_paddle: waiting: 2 of 3 pods",
    ]


def test_a_misspelt_variable_is_printed_once_and_no_other_warning(capsys: pytest.CaptureFixture[str]):
    reporter = ConsoleReporter()
    misspelt = "NUM_PASES is set, but is no variable of the launcher: did you mean NUM_PASSES?"
    for text in (misspelt, misspelt, "no secret (no file x)"):
        reporter.line(POD, 1, f"2026-11-20 10:59:00 start_paddle: WARNING: {text}")
    reporter.line(POD, 1, "I1120 10:59:00 1 x.py:1] did you mean tea?: did you mean coffee?")
    assert capsys.readouterr().out == f"j-1-abcde| 2026-11-20 10:59:00 start_paddle: WARNING: {misspelt}\n"


def test_why_an_attempt_has_ended_and_where_the_next_one_resumes_is_printed_once(capsys: pytest.CaptureFixture[str]):
    """The terminal was silent from a failure to the next pass."""
    reporter = ConsoleReporter()
    news = [
        "first failure reported: trainer 1 on pod-1: trainer, exit status 75",
        "what failed first is not known yet: the pserver at 10.0.0.2 may have been frozen",
        "going on from state/pass-00001 of an earlier attempt",
        "an earlier Job has trained 9 passes; moved to run-1, and the training starts from the beginning",
    ]
    for text in (*news, *news, "the trainer gets SIGTERM"):
        reporter.line(POD, 1, f"2026-11-20 10:59:00 start_paddle: {text}")
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"j-1-abcde| 2026-11-20 10:59:00 start_paddle: {text}" for text in news]


def test_the_end_of_a_programs_log_is_printed_below_the_launchers_line(capsys: pytest.CaptureFixture[str]):
    """The terminal ended with "the end of server.log:", and the log said which port is taken."""
    reporter = ConsoleReporter()
    first = "2026-11-20 10:59:00 start_paddle: first failure reported: pserver ended with status 75; the end of x:"
    cause = "    F1120 10:59:00.000000 1 __main__.py:9] cannot listen on 10.0.0.2:7164: another process holds this port"
    other = POD.evolve(uid="u-2", name="j-2-abcde")
    for pod in (POD, other):
        reporter.line(pod, 1, first)
    for text in (cause, "    dull", "pod 1 ends", "    indented"):
        reporter.line(POD, 1, text)
        reporter.line(other, 2, text)
    assert capsys.readouterr().out.splitlines() == [f"j-1-abcde| {text}" for text in (first, cause, "    dull")]


def test_the_table_has_one_line_per_change(capsys: pytest.CaptureFixture[str]):
    reporter = ConsoleReporter()
    for pod in (POD, POD, POD.evolve(phase="Running", ip="127.9.0.2"), POD.evolve(phase="Running", ip="127.9.0.2")):
        reporter.pod_changed(pod, 0.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["STATUS", "ContainerCreating", "Running"]
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]


def test_quiet_prints_no_table(capsys: pytest.CaptureFixture[str]):
    ConsoleReporter(quiet=True).pod_changed(POD, 0.0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("times", "window", "rate"),
    [([], 1.0, 0), ([5.0], 1.0, 1), ([0.0, 0.5, 0.9, 1.6], 1.0, 3), ([0.0, 1.0, 2.0, 3.0], 2.0, 1.5)],
)
def test_the_peak_rate_is_that_of_the_fullest_window(times: list[float], window: float, rate: float):
    assert peak_rate(times, window) == rate


def test_a_number_that_is_too_long_for_a_pod_selects_none():
    """`--follow` with a number of 5000 digits was a traceback, at the first line of a pod."""
    selector, _ = parse_follow(f"{'9' * 5000}@a")
    assert not concerns(selector, "j-1-abcde", 1)

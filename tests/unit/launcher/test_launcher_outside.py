"""What comes from outside: texts for the launcher's log, files of the volume, pages of the API, kubectl's output."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import responses
from builders import JOB, pod, pod_environment, podlist

import start_paddle
from paddle.utils import status
from paddle_base.runtime.errors import PeerUnreachableError
from paddle_base.runtime.kubernetes.client import ANSWER_LIMIT
from paddle_base.runtime.kubernetes.text import printable
from paddle_base.runtime.network.answers import read_answer
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.attempts import JobRecord
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import parse_pods
from paddle_cluster.launcher.cluster.waiting import LAST_LOOK_S, Wait, WaitPolicy
from paddle_cluster.launcher.control.job_record import read_record
from paddle_cluster.launcher.errors import ApiError
from paddle_cluster.launcher.failures import read_errors
from paddle_cluster.launcher.programs.process import run_bounded
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.staging import read_split_count
from paddle_cluster.launcher.status import describe_job, list_pods_of, tabulate_pods
from paddle_cluster.launcher.text import LauncherLog, end_in_one_line, say

URL = "https://10.96.0.1:443/api/v1/namespaces/default/pods"
TOKEN = "header.pay'load.signature"


@pytest.fixture
def secrets(launcher_log: LauncherLog) -> Secrets:
    """Those of the launcher's log, after the launcher has read TOKEN from its service account."""
    launcher_log.secrets.keep(TOKEN)
    return launcher_log.secrets


# ----- Texts


def test_only_the_first_line_of_a_message_begins_at_the_margin(capsys: pytest.CaptureFixture[str]) -> None:
    """A pod's name or a message of the API with a line break could say anything in the launcher's name."""
    say("one\n2026-01-01 00:00:00 start_paddle: training finished\n  a table\n\ttab\r\x1b[2J\u2028")
    first, *others = capsys.readouterr().out.splitlines()
    assert first.endswith(" start_paddle: one")
    assert others == [
        "  2026-01-01 00:00:00 start_paddle: training finished",
        "  a table",
        "  \ttab\\r\\x1b[2J\\u2028",
    ]


@pytest.mark.parametrize("form", [str, repr, json.dumps], ids=["plain", "Python", "JSON"])
@pytest.mark.usefixtures("secrets")
def test_no_log_has_the_token(capsys: pytest.CaptureFixture[str], form: Callable[[str], str]) -> None:
    say(f"Invalid header value {form(TOKEN)}")
    said = capsys.readouterr().out
    assert "signature" not in said and "<token>" in said


@pytest.mark.parametrize("form", [str, repr, json.dumps], ids=["plain", "Python", "JSON"])
def test_no_value_of_an_answer_has_the_token(secrets: Secrets, form: Callable[[str], str]) -> None:
    value = secrets.redact_value({form(TOKEN): [1, None, {"message": f"echo {form(TOKEN)}"}]})
    assert "signature" not in json.dumps(value) and "echo " in json.dumps(value)


def test_a_bug_of_ours_does_not_show_the_token(secrets: Secrets, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise RuntimeError(TOKEN)

    assert end_in_one_line(work, secrets) == 70
    assert "RuntimeError: <token>" in capsys.readouterr().err


def test_a_text_in_a_bug_of_ours_does_not_look_like_a_message(
    secrets: Secrets, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback with a text of the API's answer had lines of the form of the launcher's own."""

    def work() -> int:
        raise RuntimeError("no\n2026-01-01 00:00:00 start_paddle: training finished\x1b[2J")

    assert end_in_one_line(work, secrets) == 70
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert others[-2:] == ["  RuntimeError: no", "  2026-01-01 00:00:00 start_paddle: training finished\\x1b[2J"]


def test_a_short_word_is_no_token(secrets: Secrets) -> None:
    secrets.keep("pod")
    assert secrets.redact("pod") == "pod"


# ----- Answers of the API


class Body:
    """What urllib3 gives of an answer: as many bytes as there are, in pieces."""

    def __init__(self, content: bytes) -> None:
        self.file, self.pieces = io.BytesIO(content), 0

    def read(self, amount: int, decode_content: bool) -> bytes:
        self.pieces += not decode_content
        return self.file.read(amount)


ZEROS = bytes(5_000_000)
PACKINGS: dict[str, tuple[bytes, str]] = {
    "plain": (ZEROS, ""),
    "identity": (ZEROS, "identity"),
    "gzip": (gzip.compress(ZEROS), "gzip"),
    "gzip in capitals": (gzip.compress(ZEROS), "GZIP"),
}


@pytest.mark.parametrize(("wire", "packing"), PACKINGS.values(), ids=PACKINGS)
def test_an_answer_is_unpacked_up_to_its_limit_and_no_further(wire: bytes, packing: str) -> None:
    assert read_answer(Body(wire), packing, len(ZEROS)) == ZEROS
    tracemalloc.start()
    with pytest.raises(ValueError, match="it has more than 0 MiB"):
        read_answer(Body(wire), packing, 100_000)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


# ----- Pages of the API


def make_api(**changed: str) -> PodApi:
    return PodApi(LauncherConfig.from_env(pod_environment(**changed)))


@responses.activate
def test_no_page_is_asked_for_after_the_deadline_of_the_wait() -> None:
    responses.get(URL, json=podlist(token="more"))
    with pytest.raises(ApiError, match="did not list all pods in time"):
        make_api().list_pods(limit_s=0.0)
    assert not responses.calls


@responses.activate
def test_a_list_has_at_most_a_thousand_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.launcher.cluster.kubernetes.PAGES_LIMIT", 7)
    responses.get(URL, json=podlist(token="more"))
    with pytest.raises(ApiError, match="a list of pods with more than 7 pages and no end") as error:
        make_api().list_pods()
    assert (len(responses.calls), error.value.fatal) == (7, False)


@responses.activate
def test_the_pages_of_a_list_are_together_not_larger_than_a_job_of_that_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.launcher.cluster.kubernetes.ANSWER_LIMIT", 3000)
    monkeypatch.setattr("paddle_cluster.launcher.cluster.kubernetes.POD_LIMIT", 0)
    responses.get(URL, json={**podlist(token="more"), "padding": "x" * 2000})
    with pytest.raises(ApiError, match="a list of pods with more than 0 MiB and no end"):
        make_api().list_pods()
    assert len(responses.calls) == 2


@pytest.mark.parametrize(("pods", "page"), [("3", 500), ("1000", 2000), ("100000", 2000)])
def test_a_page_of_ordinary_pods_stays_within_the_limit_of_an_answer(pods: str, page: int) -> None:
    api = make_api(CONF_PADDLE_GRADIENT_NUM=pods)
    assert api.page == page
    assert 12_000 * api.page < ANSWER_LIMIT


@responses.activate
def test_every_wait_gives_its_list_the_time_that_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    monkeypatch.setattr(PodApi, "list_pods", lambda _, limit_s: given.append(limit_s) or podlist())
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    waiting = WaitPolicy(60.0, lambda: now[0], sleep, say=lambda _: None)
    wait = Wait(make_api(), waiting)
    with pytest.raises(PeerUnreachableError):
        wait.until(lambda: start_paddle.complete_set(wait.api.config, wait.list_pods()))
    assert given[0] <= 60.0 and given == sorted(given, reverse=True) and given[-1] == LAST_LOOK_S


def test_a_pause_that_is_over_before_it_begins_is_none() -> None:
    """Between two looks at the clock a busy machine may take longer than the pause."""
    ticks, slept = itertools.count(0.0, 70.0), []
    policy = WaitPolicy(1000.0, lambda: next(ticks), slept.append, say=lambda _: None)
    Wait(make_api(), policy).pause("nothing")
    assert slept == [0.0]


# ----- Files of the volume


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / JOB / "output" / "node_1").mkdir(parents=True)
    return tmp_path / JOB / "output"


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def deep(levels: int) -> Callable[[Path], object]:
    text = '{"time": 1, "attempt": "1.x", "status": ' + "[" * levels + "]" * levels + "}"
    return lambda path: path.write_text(text)


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a terabyte": sparse,
    "nested 900 deep": deep(900),
    "nested 100,000 deep": deep(100_000),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\xff"),
    "empty": Path.touch,
    **{text: lambda path, text=text: path.write_text(text) for text in ("{", "[]", "null", '{"job_uid": "x"}')},
    "unclosed arrays": lambda path: path.write_text("[" * 100_000),
    "unclosed objects": lambda path: path.write_text('{"a":' * 100_000),
    "a number of 5000 digits": lambda path: path.write_text('{"split_count": ' + "9" * 5000 + "}"),
    "infinity": lambda path: path.write_text('{"split_count": 1e999, "time": 1e999, "attempt": Infinity}'),
}


@pytest.mark.parametrize("make", ODD_FILES.values(), ids=ODD_FILES)
def test_a_file_of_the_volume_that_is_none_of_ours_is_left_out(
    output: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], object]
) -> None:
    """A named pipe was waited for, for ever; a file was read whole, and what is nested 900 deep could not be shown."""
    for name in ("job.json", "progress.json", "node_1/error.json", "node_1/progress.json", "prepared.json"):
        make(output / name)
    assert read_record(output) is None
    assert read_errors(output) == []
    assert read_split_count(output / "prepared.json") is None
    for line in [*describe_job(output), *tabulate_pods([], output)]:
        assert printable(line)


def test_a_record_that_is_nested_deep_is_no_record(output: Path) -> None:
    """It could be read, and not be written again: dataclasses.asdict copies it."""
    inner: Any = "x"
    for _ in range(500):
        inner = [inner]
    record = JobRecord("u", 3, False, 1, ["p"], 0, pods=[{"ip": "10.0.0.1", "place": inner}])
    (output / "job.json").write_text(json.dumps(vars(record)))
    assert read_record(output) is None


def test_a_text_of_a_file_makes_no_line_of_its_own(
    output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status of a job showed what a file of the volume says as lines like its own, and obeyed its escapes."""
    odd = "x\nattempt 9 has finished\x1b[2J"
    told = {"time": 1, "status": odd, "message": odd, "host": odd, "pass": odd, "slowest": {"host": odd, "trainer": 1}}
    for place in (output, output / "node_1"):
        (place / "progress.json").write_text(json.dumps(told))
    monkeypatch.setattr("paddle_cluster.launcher.status.list_pods_of", lambda *_: podlist())
    assert start_paddle.main(["status", JOB, f"--job_path={output.parents[1]}"]) == 0
    assert status.main([str(output)]) == 0
    said = capsys.readouterr().out
    assert said.count("attempt 9 has finished\\x1b[2J") >= 8
    assert "\x1b" not in said and not [line for line in said.splitlines() if line.startswith("attempt 9")]


# ----- kubectl


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_program_that_ends_in_time_tells_its_status_and_both_outputs() -> None:
    code = "import sys; print('a' * 200000, end=''); print('b', file=sys.stderr, end=''); sys.exit(3)"
    assert run_bounded(python(code), 60.0, 1 << 20) == (3, b"a" * 200_000, b"b")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_writes_for_ever_is_ended(stream: str) -> None:
    with pytest.raises(ValueError, match="the program wrote more than 1 MiB"):
        run_bounded(python(f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"), 60.0, 1 << 20)


@pytest.mark.parametrize("code", ["import time; time.sleep(99)", "while True: print('x', flush=True)"])
def test_a_program_that_does_not_end_is_ended(code: str) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded(python(code), 0.5, 1 << 30)


OUTPUTS = {
    "nothing": ("", "line 1 column 1"),
    "HTML": ("<html>", "line 1 column 1"),
    "a list": ("[]", "kubectl printed a list, expected an object"),
    "items that are none": ('{"items": [1]}', r"items\[0\] is 1, expected an object"),
    "a phase that is none": ('{"items": [{"status": {"phase": [1]}}]}', "phase is a list, expected a text"),
    "nested": ("[" * 100_000, "the JSON text is nested too deep"),
    "NaN": ('{"items": NaN}', "NaN is no value of JSON"),
}


@pytest.mark.parametrize(("text", "said"), OUTPUTS.values(), ids=OUTPUTS)
def test_what_kubectl_prints_is_judged_as_an_answer_of_the_api_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    (tmp_path / "said").write_text(text)
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\ncat {tmp_path}/said\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(PeerUnreachableError, match=said):
        list_pods_of(JOB, "")


def test_a_pod_of_the_shell_is_shown_on_one_line() -> None:
    (found,) = parse_pods(podlist(pod("", "a\nb\x1b").waiting("Bad\n", "first\nsecond")))
    assert "\n" not in str(found) and found.why == "Bad: first second" and found.name == "a b\\x1b"

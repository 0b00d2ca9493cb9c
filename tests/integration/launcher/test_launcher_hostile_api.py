"""The launcher as a process against a false API server: an error with a code, in time, and never a traceback.

Answers came without end, packed a thousandfold, two bytes a second, or nested without end; none of that had a limit.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders import JOB, pod_environment
from hostile_api import (
    OWN,
    HostileApi,
    Script,
    answer,
    bomb,
    for_ever,
    head,
    items,
    later,
    one_pod,
    say,
    silence,
    slowly,
)

LAUNCHER = Path(__file__).parents[3] / "start_paddle.py"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.a-token-of-the-service-account.c2lnbmF0dXJl"
MEMORY_KB = 1_500_000  # of address space; the bombs unpack to more
AT_ONCE = 6
START_TIMEOUT = "3"  # seconds, in which a busy machine can still shake hands
LONG_TIMEOUT = "60"  # seconds, which no launcher waits for whose second answer is good
NO_PODLIST = "something that is no pod list"


@dataclasses.dataclass(frozen=True)
class Case:
    """An answer, what the launcher makes of it, and how it ends.

    Where the answer never comes to an end (`stays`), it ends with status 69 at START_TIMEOUT. Elsewhere the second
    answer is a good one, so that no case waits for a deadline, and none depends on how busy the machine is.
    """

    script: Script
    said: str
    status: int = 0
    stays: bool = False  # every answer is the same
    is_plain: bool = False  # the server speaks no TLS


def stays(script: Script, said: str, **others: Any) -> Case:
    return Case(script, said, 69, stays=True, **others)


def bad_pod(said: str, **changed: Any) -> Case:
    return Case(answer(one_pod(**changed)), rf"{NO_PODLIST} \(items\[0\]: {said}")


def echo(api: HostileApi, request: bytes) -> list[bytes]:
    """Refuses with the request in the message, as some proxies do."""
    return list(answer({"message": request.decode()}, 500)(api, request))


def spell(text: str) -> bytes:
    """A text as JSON may spell it."""
    return "".join(f"\\u{ord(letter):04x}" for letter in text).encode()


ENDLESS_PAGES = answer({"metadata": {"continue": "more"}, "items": []})
LOST = "does not answer at https"
TOO_MUCH = f"(more than 64 MiB|{LOST})"  # a busy machine does not get so far in the time of a request
CASES: dict[str, Case] = {
    # too much
    "a gzip bomb": Case(later(lambda: answer(bomb(200), Content_Encoding="gzip")), "more than 64 MiB"),
    "a gzip bomb as an error": Case(later(lambda: answer(bomb(200), 500, Content_Encoding="gzip")), "more than 64 MiB"),
    "a gzip bomb in a redirect": Case(
        later(lambda: answer(bomb(200), 302, Content_Encoding="gzip", Location="https://127.0.0.1:1/")),
        "more than 64 MiB",
    ),
    "a gzip bomb in a gzip bomb": Case(
        later(lambda: answer(bomb(1000, 2), Content_Encoding="gzip, gzip")),
        'Content-Encoding is "gzip, gzip", expected gzip',
    ),
    "a packing that was not asked for": Case(answer(b"x", Content_Encoding="br"), 'Content-Encoding is "br"'),
    "gzip that is none": Case(answer(b"{}" * 50, Content_Encoding="gzip"), "it is no gzip"),
    "gzip that is cut off": Case(answer(bomb(1)[:500], Content_Encoding="gzip"), "its gzip is cut off"),
    "a body without end": stays(for_ever(head(), bytes(1 << 20)), TOO_MUCH),
    "a body without end in chunks": stays(
        for_ever(head(Transfer_Encoding="chunked"), b"100000\r\n" + bytes(1 << 20) + b"\r\n"), TOO_MUCH
    ),
    "a chunk whose size never ends": stays(for_ever(head(Transfer_Encoding="chunked"), b"1" * (1 << 20)), LOST),
    "a chunk of no size": Case(say(head(Transfer_Encoding="chunked") + b"x\r\n"), LOST),
    "headers without end": stays(for_ever(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000), LOST),
    "a header without end": stays(for_ever(b"HTTP/1.1 200 OK\r\nA: ", bytes(1 << 16)), LOST),
    "a status line without end": stays(for_ever(b"HTTP/1.1 ", b"2" * (1 << 16)), LOST),
    "go on, without end": stays(for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), LOST),
    "cookies": Case(answer({}, **{f"Set_Cookie{n}": "a=b" for n in range(9)}, Set_Cookie="x" * 60000), "no items"),
    "pages without end": stays(
        ENDLESS_PAGES,  # the deadline finds any step of any page; test_launcher_outside.py counts them
        "(returned a list of pods with more than 1000 pages|did not list all pods in time|TimeoutError: )",
    ),
    "five million values": Case(
        later(lambda: answer(gzip.compress(b'{"items":[' + b"[]," * 5_000_000 + b"1]}"), Content_Encoding="gzip")),
        "values, at most 4000000",
    ),
    # too slow
    "silence": stays(silence, LOST),
    "a body, byte by byte": stays(slowly(head(Content_Length="999"), b" "), LOST),
    "chunks, byte by byte": stays(slowly(head(Transfer_Encoding="chunked"), b"1\r\n \r\n"), LOST),
    "headers, byte by byte": stays(slowly(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"), LOST),
    "Retry-After: 999999999": stays(answer({"message": "slow"}, 429, Retry_After="999999999"), "429: slow"),
    "Retry-After: 400 digits": stays(answer({"message": "slow"}, 503, Retry_After="9" * 400), "503: slow"),
    "Retry-After: a far day": stays(answer({}, 503, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"), "503: "),
    "Retry-After: -1": stays(answer({}, 503, Retry_After="-1"), "503: "),
    "Retry-After: NaN": stays(answer({}, 503, Retry_After="NaN"), "503: "),
    # no HTTP
    "no TLS": stays(silence, LOST, is_plain=True),
    "nothing": Case(say(b""), LOST),
    "another protocol": Case(say(b"SSH-2.0-OpenSSH_9.6\r\n"), LOST),
    "half of the body": Case(say(head(Content_Length="999") + b'{"items":'), LOST),
    "two lengths": Case(say(head(Content_Length="3, 4") + b"{}"), LOST),
    "another status": Case(answer(b"", 999), "answered 999: empty answer"),
    "another protocol is offered": Case(say(head(101, Upgrade="h2c")), "answered 101", 78),
    "no content": Case(say(head(204)), "answered 204", 78),
    "a redirect": Case(answer(b"", 307, Location="https://127.0.0.1:1/"), "answered 307", 78),
    # no JSON, or another
    "nothing in it": Case(answer(b""), NO_PODLIST),
    "HTML": stays(answer(b"<html>sign in</html>"), f"{NO_PODLIST}.*<html>sign in"),
    "lists, nested": Case(answer(b"[" * 1_000_000), f"{NO_PODLIST} .the JSON text is nested too deep"),
    "objects, nested": Case(answer(b'{"items":' * 100_000), f"{NO_PODLIST} .the JSON text is nested too deep"),
    "an error, nested": Case(answer(b'{"message":' * 100_000, 500), "answered 500: "),
    "an error of another type": Case(answer({"message": [["x"]]}, 500), "answered 500: "),
    "NaN": Case(answer(b'{"items": NaN}'), "NaN is no value of JSON"),
    "a number of 100,000 digits": Case(answer(b'{"items": ' + b"9" * 100_000 + b"}"), NO_PODLIST),
    "bytes that are no text": Case(answer(b'{"items": ["\xff"]}'), NO_PODLIST),
    "null": Case(answer(None), f"{NO_PODLIST} .the object has no items"),
    "items in an object": Case(answer({"items": {"0": OWN}}), "items is an object, expected a list"),
    "a number for a pod": Case(answer(items(7)), r"items\[0\] is 7, expected an object"),
    "null for a pod": Case(answer(items(None)), r"items\[0\] is null, expected an object"),
    "a list's metadata as a list": Case(answer({"items": [], "metadata": [1]}), "metadata is a list"),
    "a continue that is a number": Case(answer({"items": [], "metadata": {"continue": 3}}), "continue is 3"),
    # pods of parts that are none
    "metadata null": bad_pod("metadata.name is missing", metadata=None),
    "metadata as a text": bad_pod('metadata is "x", expected an object', metadata="x"),
    "a name that is a number": bad_pod("name is 7, expected a text", metadata__name=7),
    "a uid that is a list": bad_pod("uid is a list, expected a text", metadata__uid=[[]]),
    "labels as a list": bad_pod("labels is a list, expected an object", metadata__labels=["a"]),
    "an index that is a number": bad_pod(
        "batch.kubernetes.io/job-completion-index is 0",
        metadata__labels={"batch.kubernetes.io/job-completion-index": 0},
    ),
    "owners as a text": bad_pod("ownerReferences is", metadata__ownerReferences="x"),
    "a time that is a number": bad_pod("deletionTimestamp is 1", metadata__deletionTimestamp=1),
    "status as a text": bad_pod('status is "Running"', status="Running"),
    "a phase that is a list": bad_pod("phase is a list", status__phase=["Running"]),
    "an address that is a number": bad_pod("podIP is 2130706433", status__podIP=2130706433),
    "two addresses in one": bad_pod("podIP is .*, expected an IP address", status__podIP="127.0.0.1,10.9.9.9"),
    "an address with a line break": bad_pod("podIP is", status__podIP="127.0.0.1\nx"),
    "conditions that are numbers": bad_pod(r"conditions\[0\] is 1", status__conditions=[1]),
    "containers in an object": bad_pod("containerStatuses is an object", status__containerStatuses={"a": 1}),
    "an exit code that is a text": bad_pod(
        "exitCode is",
        status__containerStatuses=[{"state": {"terminated": {"reason": "Error", "exitCode": "1"}}}],
    ),
    "two pods of one name": stays(answer(items(OWN, OWN)), "two pods have the name"),
    "two pods of one uid": Case(
        answer(items(OWN, one_pod(metadata__name="another")["items"][0])), "two pods have the uid"
    ),
    # texts that are meant for the log
    "an error that ends its line": stays(
        answer({"message": "no\n2026-01-01 00:00:00 start_paddle: training finished\x1b[2J"}, 500),
        r"answered 500: no 2026-01-01 00:00:00 start_paddle: training finished\\x1b\[2J",
    ),
    "an error without end": Case(answer({"message": "x" * 1_000_000}, 500), r"answered 500: x{1000}\.\.\.$"),
    "an error that echoes the token": Case(echo, "Authorization: Bearer <token>"),
    "an error that spells the token": Case(
        answer(b'{"message": "' + spell(TOKEN) + b'"}', 500), "answered 500: <token>"
    ),
    "HTML that echoes the token": Case(answer(f"<p>{TOKEN}".encode()), "<p><token>"),
    "a pod whose texts end their lines": Case(
        answer(
            one_pod(
                metadata__name="own\nstart_paddle: x",
                spec={"nodeName": "node\r\x1b]0;title\x07"},
                status={"phase": "Pending\u2028", "reason": "Bad", "message": f"first\nsecond {TOKEN} \x9b\u202e"},
            )
        ),
        r"own start_paddle: x on node \\x1b\]0;title\\x07: Pending, Bad: first second <token> \\x9b\\u202e",
    ),
    "a name that no encoding has": Case(
        answer(one_pod(metadata__name="\ud800", status__phase="Pending")), r"0 of 1 Running; \\ud800: Pending"
    ),
}


class Runs:
    """The launchers of all cases. They wait most of the time, so the next ones run beside the one that is asked for."""

    def __init__(self, pool: ThreadPoolExecutor, root: Path) -> None:
        self.pool, self.root = pool, root
        self.begun: dict[str, Future[subprocess.CompletedProcess[str]]] = {}

    def result(self, name: str) -> subprocess.CompletedProcess[str]:
        names = list(CASES)
        place = names.index(name)
        for number, each in enumerate(names[place : place + AT_ONCE], place):
            if each not in self.begun:
                self.begun[each] = self.pool.submit(run_case, CASES[each], self.root / str(number))
        return self.begun[name].result(100)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield Runs(pool, tmp_path_factory.mktemp("hostile"))


def once(script: Script) -> Script:
    """The answer of a script to the first request, and a good one to every other."""

    def answers(api: HostileApi, request: bytes) -> Any:
        return (script if len(api.requests) == 1 else answer(one_pod()))(api, request)

    return answers


def run_case(case: Case, root: Path) -> subprocess.CompletedProcess[str]:
    if case.stays:
        return run(case, root)
    return run(dataclasses.replace(case, script=once(case.script)), root, START_TIMEOUT=LONG_TIMEOUT)


def run(case: Case, root: Path, *flags: str, **changed: str) -> subprocess.CompletedProcess[str]:
    with HostileApi(case.script, root / "account", is_plain=case.is_plain) as api:
        (root / "account" / "token").write_text(TOKEN + "\n")
        return run_launcher(api, root, *flags, **changed)


def run_launcher(api: HostileApi, root: Path, *flags: str, **changed: str) -> subprocess.CompletedProcess[str]:
    (root / "work").mkdir(exist_ok=True)
    environ = pod_environment(
        JOB_PATH=str(root / "volume"),
        POD_IP="127.0.0.1",
        CONF_PADDLE_GRADIENT_NUM="1",
        KUBERNETES_SERVICE_HOST="127.0.0.1",
        KUBERNETES_SERVICE_PORT_HTTPS=str(api.port),
        SERVICE_ACCOUNT_DIR=str(root / "account"),
        RESTARTS="0",
        PATH=f"{root / 'bin'}:{os.environ['PATH']}",
        HTTPS_PROXY="http://127.0.0.1:1",  # of the environment, and meant for other servers
        **{"START_TIMEOUT": START_TIMEOUT, **changed},
    )
    command = [sys.executable, str(LAUNCHER), *(flags or ("--dry_run",))]
    return subprocess.run(
        ["sh", "-c", f'ulimit -v {MEMORY_KB}; exec "$@"', "sh", *command], cwd=root / "work", env=environ,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90,
    )  # fmt: skip


def check_log(said: str) -> None:
    """Every line is the launcher's own, or belongs to one: no text from outside begins at the margin or obeys."""
    assert "Traceback" not in said and TOKEN not in said, said
    for line in said.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d start_paddle: |  ", line) and line.isprintable(), said


@pytest.mark.parametrize("name", CASES)
def test_a_false_answer_is_an_error_of_the_launcher(runs: Runs, name: str) -> None:
    """One that passes costs nothing: what one server answers, another behind its address may answer well."""
    ended, case = runs.result(name), CASES[name]
    assert ended.returncode == case.status, ended.stdout
    last = ended.stdout.rstrip().rpartition("start_paddle: error: ")[2].split("\n  trainer id")[0]
    assert re.search(case.said, ended.stdout, re.MULTILINE), ended.stdout
    if case.stays:
        assert last.startswith(f"gave up after {START_TIMEOUT} s (START_TIMEOUT): "), ended.stdout
    said, _, plan = ended.stdout.rpartition("\ntrainer 0: 127.0.0.1 (this pod)\n")
    if case.status == 0:
        assert " start_paddle: waiting: " in said, ended.stdout
        assert [line.split(" --")[0] for line in plan.splitlines()] == ["paddle pserver", "paddle train"], ended.stdout
    check_log(said or ended.stdout)


def test_a_whole_answer_may_be_packed_and_come_in_pages(tmp_path: Path) -> None:
    def pages(api: HostileApi, request: bytes) -> Any:
        first = {"metadata": {"continue": "second"}, "items": []}
        body = gzip.compress(json.dumps(one_pod() if b"continue=second" in request else first).encode())
        return answer(body, Content_Encoding="gzip")(api, request)

    ended = run(Case(pages, ""), tmp_path)
    assert ended.returncode == 0, ended.stdout


def test_the_token_goes_to_the_api_server_only(tmp_path: Path) -> None:
    """A redirect is not followed, and a proxy of the environment is not asked."""
    with HostileApi(answer({}), tmp_path / "other") as other:
        redirect = answer(b"", 301, Location=f"https://127.0.0.1:{other.port}/")
        ended = run(Case(redirect, ""), tmp_path)
    assert (ended.returncode, other.requests) == (78, []), ended.stdout


TOKENS: dict[str, bytes] = {
    "a line break": b"a-token-of-two\nlines-of-text",
    "a carriage return": b"a-token-of-two\rlines-of-text",
    "a blank": b"a-token-of two-words",
    "an escape sequence": b"a-token-with\x1b[2Jin-it",
    "a zero byte": b"a-token-with\0in-it",
    "another alphabet": "a-token-with-\u20ac-in-it".encode(),
    "Latin-1": b"a-token-with-\xe9-in-it",
    "100,000 characters": b"a-token-" + b"x" * 100_000,
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_token_that_is_none_is_neither_sent_nor_shown(tmp_path: Path, token: bytes) -> None:
    """`Invalid header value` was logged with the token, when its file had a line break inside."""
    with HostileApi(answer(one_pod()), tmp_path / "account") as api:
        (tmp_path / "account" / "token").write_bytes(token)
        ended = run_launcher(api, tmp_path)
        assert (ended.returncode, api.requests) == (78, []), ended.stdout
    assert re.search(r"cannot read \S+/token of its service account: .*; mount the file", ended.stdout)
    assert "a-token" not in ended.stdout
    check_log(ended.stdout)


@pytest.mark.parametrize("name", ["token", "ca.crt", "namespace"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a named pipe", "a directory"])
def test_a_file_of_the_account_that_is_none_is_not_waited_for(tmp_path: Path, name: str, make: Any) -> None:
    with HostileApi(answer(one_pod()), tmp_path / "account") as api:
        (tmp_path / "account" / name).unlink(missing_ok=True)
        make(tmp_path / "account" / name)
        ended = run_launcher(api, tmp_path)
    assert ended.returncode == 78, ended.stdout
    assert f"{name}" in ended.stdout and "is no plain file" in ended.stdout
    check_log(ended.stdout)


def test_an_empty_token_is_none(tmp_path: Path) -> None:
    with HostileApi(answer(one_pod()), tmp_path / "account") as api:
        (tmp_path / "account" / "token").write_text("\n")
        assert run_launcher(api, tmp_path).returncode == 0
        assert b"Authorization" not in api.requests[0]


def test_a_token_that_comes_back_is_written_nowhere(tmp_path: Path) -> None:
    """job.json has the names and nodes of all pods; error.json and the report what programs and API server said."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "paddle"
    program.write_text(f'#!/bin/sh\nsleep 0.1; echo "refused: Bearer $(cat {tmp_path}/account/token)"; exit 70\n')
    program.chmod(0o755)
    shard = tmp_path / "volume" / JOB / "0" / "data"
    shard.mkdir(parents=True)
    (shard / "train.txt").write_text("1\n")
    body = json.dumps(one_pod(spec={"nodeName": "SPELT"})).encode()
    ended = run(Case(answer(body.replace(b"SPELT", spell(TOKEN))), ""), tmp_path, "--num_passes=1")
    assert ended.returncode == 70, ended.stdout
    output = tmp_path / "volume" / JOB / "output"
    written = {path.name: path.read_text() for path in output.rglob("*.json")}
    assert {"job.json", ".job.json", "error.json"} <= written.keys(), ended.stdout
    assert not [name for name, text in written.items() if TOKEN in text]
    assert "127.0.0.1" in written["job.json"] and "<token>" in written["job.json"]
    said = [line for line in ended.stdout.splitlines() if " start_paddle: " in line or line.startswith("    ")]
    assert TOKEN not in "\n".join(said)

"""The launcher against a false API server: an error with a code, in time, and never a traceback.

Answers came without end, packed a thousandfold, two bytes a second, or nested without end; none of that had a limit.
One case of each kind is a whole launcher (WHOLE), whose memory is limited. The others are its main program in this
process, on the same real connections.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders import JOB, one_pod, pod_environment
from hostile_api import HostileApi, Script, answer, spell
from hostile_cases import CASES, TOKEN, Case

import start_paddle
from paddle_cluster.launcher.programs.process import Stop

LAUNCHER = Path(__file__).parents[3] / "start_paddle.py"
MEMORY_KB = 1_500_000  # of address space; the bombs unpack to more
START_TIMEOUT = "3"  # seconds, in which a busy machine can still shake hands
SHORT_TIMEOUT = "0.2"  # seconds, where an answer that does not come in time is the same error as one that does
LONG_TIMEOUT = "60"  # seconds, which no launcher waits for whose second answer is good
WHOLE = (
    "a gzip bomb",
    "a body without end",
    "a body, byte by byte",
    "no TLS",
    "a redirect",
    "an error that ends its line",
)


class Ended(NamedTuple):
    """The exit status of a launcher, and all that it has said."""

    returncode: int
    stdout: str


Here = Callable[..., Ended]


def once(script: Script) -> Script:
    """The answer of a script to the first request, and a good one to every other."""

    def answers(api: HostileApi, request: bytes) -> Any:
        return (script if len(api.requests) == 1 else answer(one_pod()))(api, request)

    return answers


def make_environ(api: HostileApi, root: Path, **changed: str) -> dict[str, str]:
    return pod_environment(
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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs the launcher's main program in this process."""

    def run(api: HostileApi, *flags: str, **changed: str) -> Ended:
        (tmp_path / "work").mkdir(exist_ok=True)
        with monkeypatch.context() as patches:
            patches.chdir(tmp_path / "work")
            patches.setattr(Stop, "of_process", Stop)  # the signals are pytest's
            for name, value in make_environ(api, tmp_path, **changed).items():
                patches.setenv(name, value)
            capsys.readouterr()
            status = start_paddle.main(flags or ("--dry_run",))
        return Ended(status, "".join(capsys.readouterr()))

    return run


def run_whole(script: Script, root: Path, *flags: str, is_plain: bool = False, **changed: str) -> Ended:
    """Runs a whole launcher."""
    with HostileApi(script, root / "account", is_plain=is_plain) as api:
        (root / "account" / "token").write_text(TOKEN + "\n")
        (root / "work").mkdir(exist_ok=True)
        command = [sys.executable, str(LAUNCHER), *(flags or ("--dry_run",))]
        done = subprocess.run(
            ["sh", "-c", f'ulimit -v {MEMORY_KB}; exec "$@"', "sh", *command], cwd=root / "work",
            env=make_environ(api, root, **changed), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=90,
        )  # fmt: skip
    return Ended(done.returncode, done.stdout)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ended]]:
    """The ends of whole launchers. They wait most of the time, so all run beside each other."""
    root = tmp_path_factory.mktemp("hostile")

    def run(name: str) -> Ended:
        case, folder = CASES[name], root / str(WHOLE.index(name))
        if case.stays:
            return run_whole(case.script, folder, is_plain=case.is_plain)
        return run_whole(once(case.script), folder, START_TIMEOUT=LONG_TIMEOUT)

    with ThreadPoolExecutor(len(WHOLE)) as pool:
        begun: dict[str, Future[Ended]] = {}

        def result(name: str) -> Ended:
            begun.update({} if begun else {each: pool.submit(run, each) for each in WHOLE})
            return begun[name].result(100)

        yield result


def check_log(said: str) -> None:
    """Every line is the launcher's own, or belongs to one: no text from outside begins at the margin or obeys."""
    assert "Traceback" not in said and TOKEN not in said, said
    for line in said.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d start_paddle: |  ", line) and line.isprintable(), said


def check(case: Case, ended: Ended, timeout: str) -> None:
    assert ended.returncode == case.status, ended.stdout
    last = ended.stdout.rstrip().rpartition("start_paddle: error: ")[2].split("\n  trainer id")[0]
    assert re.search(case.said, ended.stdout, re.MULTILINE), ended.stdout
    if case.stays:
        assert last.startswith(f"gave up after {timeout} s (START_TIMEOUT): "), ended.stdout
    said, _, plan = ended.stdout.rpartition("\ntrainer 0: 127.0.0.1 (this pod)\n")
    if case.status == 0:
        assert " start_paddle: waiting: " in said, ended.stdout
        assert [line.split(" --")[0] for line in plan.splitlines()] == ["paddle pserver", "paddle train"], ended.stdout
    check_log(said or ended.stdout)


@pytest.mark.parametrize("name", WHOLE)
def test_a_false_answer_is_an_error_of_the_whole_launcher(whole: Callable[[str], Ended], name: str) -> None:
    check(CASES[name], whole(name), START_TIMEOUT)


@pytest.mark.parametrize("name", [name for name in CASES if name not in WHOLE])
def test_a_false_answer_is_an_error_of_the_launcher(here: Here, tmp_path: Path, name: str) -> None:
    """One that passes costs nothing: what one server answers, another behind its address may answer well."""
    case = CASES[name]
    script, timeout = (case.script, SHORT_TIMEOUT) if case.stays else (once(case.script), LONG_TIMEOUT)
    with HostileApi(script, tmp_path / "account", is_plain=case.is_plain) as api:
        (tmp_path / "account" / "token").write_text(TOKEN + "\n")
        check(case, here(api, START_TIMEOUT=timeout), timeout)


def test_a_whole_answer_may_be_packed_and_come_in_pages(here: Here, tmp_path: Path) -> None:
    def pages(api: HostileApi, request: bytes) -> Any:
        first = {"metadata": {"continue": "second"}, "items": []}
        body = gzip.compress(json.dumps(one_pod() if b"continue=second" in request else first).encode())
        return answer(body, Content_Encoding="gzip")(api, request)

    with HostileApi(pages, tmp_path / "account") as api:
        (tmp_path / "account" / "token").write_text(TOKEN)
        ended = here(api)
    assert ended.returncode == 0, ended.stdout


def test_the_token_goes_to_the_api_server_only(here: Here, tmp_path: Path) -> None:
    """A redirect is not followed, and a proxy of the environment is not asked."""
    with HostileApi(answer({}), tmp_path / "other") as other:
        redirect = answer(b"", 301, Location=f"https://127.0.0.1:{other.port}/")
        with HostileApi(redirect, tmp_path / "account") as api:
            (tmp_path / "account" / "token").write_text(TOKEN)
            ended = here(api)
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
def test_a_token_that_is_none_is_neither_sent_nor_shown(here: Here, tmp_path: Path, token: bytes) -> None:
    """`Invalid header value` was logged with the token, when its file had a line break inside."""
    with HostileApi(answer(one_pod()), tmp_path / "account") as api:
        (tmp_path / "account" / "token").write_bytes(token)
        ended = here(api)
        assert (ended.returncode, api.requests) == (78, []), ended.stdout
    assert re.search(r"cannot read \S+/token of its service account: .*; mount the file", ended.stdout)
    assert "a-token" not in ended.stdout
    check_log(ended.stdout)


@pytest.mark.parametrize("name", ["token", "ca.crt", "namespace"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a named pipe", "a directory"])
def test_a_file_of_the_account_that_is_none_is_not_waited_for(here: Here, tmp_path: Path, name: str, make: Any) -> None:
    with HostileApi(answer(one_pod()), tmp_path / "account") as api:
        (tmp_path / "account" / name).unlink(missing_ok=True)
        make(tmp_path / "account" / name)
        ended = here(api)
    assert ended.returncode == 78, ended.stdout
    assert name in ended.stdout and re.search(r"is no plain file|Is no regular file|Is a directory", ended.stdout)
    check_log(ended.stdout)


def test_an_empty_token_is_none(here: Here, tmp_path: Path) -> None:
    with HostileApi(answer(one_pod()), tmp_path / "account") as api:
        (tmp_path / "account" / "token").write_text("\n")
        assert here(api).returncode == 0
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
    ended = run_whole(answer(body.replace(b"SPELT", spell(TOKEN))), tmp_path, "--num_passes=1")
    assert ended.returncode == 70, ended.stdout
    output = tmp_path / "volume" / JOB / "output"
    written = {path.name: path.read_text() for path in output.rglob("*.json")}
    assert {"job.json", ".job.json", "error.json"} <= written.keys(), ended.stdout
    assert not [name for name, text in written.items() if TOKEN in text]
    assert "127.0.0.1" in written["job.json"] and "<token>" in written["job.json"]
    said = [line for line in ended.stdout.splitlines() if " start_paddle: " in line or line.startswith("    ")]
    assert TOKEN not in "\n".join(said)

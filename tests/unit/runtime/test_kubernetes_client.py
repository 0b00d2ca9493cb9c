"""The client of the Kubernetes API that autoscaler and driver use: a token is neither shown nor sent if it is none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import responses

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.kubernetes.account import TOKEN_LIMIT, read_text
from paddle_base.runtime.kubernetes.client import ApiClient, ApiPlace, ApiProblem, find_place

TOKEN = "header.pay'load/signature-of-the-token"
URL = "https://10.96.0.1:443/api/v1/pods"
Answer = tuple[int, dict[str, str], str]


@pytest.fixture
def place(tmp_path: Path) -> ApiPlace:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return ApiPlace("10.96.0.1", 443, tmp_path)


@pytest.fixture
def api() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock() as mock:
        yield mock


def escape(text: str) -> str:
    """Escape every character as JSON may."""
    return "".join(f"\\u{ord(each):04x}" for each in text)


def echo(answer: Callable[[str], Answer]) -> Callable[[Any], Answer]:
    return lambda request: answer(str(request.headers["Authorization"]))


ECHOES: dict[str, Callable[[str], Answer]] = {
    "the message of a refusal": lambda said: (403, {}, json.dumps({"message": f"refused: {said}"})),
    "a message with escapes": lambda said: (500, {}, f'{{"message": "refused: {escape(said)}"}}'),
    "a page": lambda said: (500, {}, f"<html>{said}</html>"),
    "a page that is cut off inside": lambda said: (502, {}, f"{'x' * (130 - len(said))}{said}"),
    "a page whose first bytes end inside": lambda said: (502, {}, f"{'x ' * 190}{said}"),
    "an answer that is not JSON": lambda said: (200, {}, said),
    "the header Content-Encoding": lambda said: (200, {"Content-Encoding": said}, "{}"),
}


@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES)
def test_a_token_that_comes_back_is_not_in_the_error(
    place: ApiPlace, api: responses.RequestsMock, answer: Callable[[str], Answer]
) -> None:
    api.add_callback(responses.GET, URL, callback=echo(answer))
    with pytest.raises(ApiProblem) as caught:
        ApiClient(place).ask("GET", "/api/v1/pods")
    said = str(caught.value)
    assert "header" not in said and "signature" not in said, said


def test_a_token_that_comes_back_is_not_in_an_answer(place: ApiPlace, api: responses.RequestsMock) -> None:
    """Names and annotations of objects are logged, too."""
    for form in (str, escape):
        text = f'{{"items": [{{"name": "{form(f"a {TOKEN}")}"}}]}}'
        api.add(responses.GET, URL, text)
        found = ApiClient(place).ask("GET", "/api/v1/pods")
        assert found == {"items": [{"name": "a <token>"}]}
        api.reset()


def test_a_token_that_comes_back_is_not_in_an_event(place: ApiPlace, api: responses.RequestsMock) -> None:
    api.add(responses.GET, URL, json.dumps({"type": "ERROR", "object": {"message": f"a {TOKEN}"}}) + "\n")
    events = list(ApiClient(place).watch("/api/v1/pods", "1"))
    assert events[1:] == [("ERROR", {"message": "a <token>"})]


def test_a_token_that_comes_back_in_a_broken_answer_is_not_in_the_error(
    place: ApiPlace, api: responses.RequestsMock
) -> None:
    api.add(responses.GET, URL, body=requests.ConnectionError(f"BadStatusLine({f'{TOKEN}'!r})"))
    with pytest.raises(ApiProblem, match="<token>") as caught:
        ApiClient(place).ask("GET", "/api/v1/pods")
    assert "signature" not in str(caught.value)


BAD = {
    "a line break": b"a-token-with\nan-end",
    "a return": b"a-token-with\ran-end",
    "a tab": b"a-token-with\tan-end",
    "UTF-8": "a-token-with-\u4e2d".encode(),
    "Latin-1": b"a-token-with-\xe9-in-it",
    "too many bytes": b"a-token-" + b"x" * TOKEN_LIMIT,
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_token_that_is_none_ends_the_program_at_its_start(tmp_path: Path, content: bytes) -> None:
    """It was sent, and stood in the error `Invalid header value`."""
    (tmp_path / "token").write_bytes(content)
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "SERVICE_ACCOUNT_DIR": str(tmp_path)}
    with pytest.raises(
        ConfigError, match=r"cannot read \S+/token of its service account: .*; mount the file"
    ) as caught:
        find_place(environ)
    assert "a-token" not in str(caught.value) and "\\" not in str(caught.value)


def test_a_token_that_becomes_unusable_is_a_problem_for_which_the_program_waits(place: ApiPlace) -> None:
    """The threads of the autoscaler survive it; the program that gives up ends with 78."""
    (place.account / "token").write_bytes(BAD["a line break"])
    client = ApiClient(place)
    with pytest.raises(ApiProblem, match="cannot read") as caught:
        client.ask("GET", "/api/v1/pods")
    assert not caught.value.is_refusal
    error = caught.value.to_error("")
    assert isinstance(error, ConfigError) and "a-token" not in str(error)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a named pipe", "a directory"])
def test_a_file_of_the_account_that_is_none_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "namespace")
    with pytest.raises(ConfigError, match=r"cannot read .*/namespace"):
        _ = ApiPlace("10.96.0.1", 443, tmp_path).namespace


def test_a_certificate_that_is_a_named_pipe_is_not_waited_for(place: ApiPlace) -> None:
    os.mkfifo(place.account / "ca.crt")
    with pytest.raises(ApiProblem, match="Is no regular file") as caught:
        ApiClient(place).ask("GET", "/api/v1/pods")
    assert isinstance(caught.value.to_error(""), ConfigError)  # as a token that is none


def test_an_empty_file_of_the_account_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    assert read_text(tmp_path / "token") is None
    assert read_text(tmp_path / "none") is None
    assert read_text(tmp_path / "token" / "below") is None

"""Asking the API and waiting for it: faults S1, S10, S11 of the tutorial's launcher, on a clock of our own."""

from __future__ import annotations

import datetime
import email.utils
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import responses
from builders import pod, pod_environment, podlist

import start_paddle
from start_paddle import ApiError, LauncherConfig, PodApi, Waiting, wait_for_pods, why_not_ready

URL = "https://10.96.0.1:443/api/v1/namespaces/default/pods"
THREE = [pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")]


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("default")
    (tmp_path / "ca.crt").write_text("not read by the mock")
    return tmp_path


def make_api(account: Path | str = "/nonexistent", **changed: str) -> PodApi:
    return PodApi(LauncherConfig.from_env(pod_environment(SERVICE_ACCOUNT_DIR=str(account), **changed)))


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.said: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def waiting(self, timeout_s: float = 600.0) -> Waiting:
        return Waiting(timeout_s, lambda: self.now, self.sleep, random.Random(7), self.said.append)


def all_three(podlist: dict[str, Any]) -> dict[str, Any] | str:
    return why_not_ready(start_paddle.parse_pods(podlist), 3) or podlist


@responses.activate
def test_the_request_is_the_tutorials_with_token_and_verified_certificate(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S11: the original sent the token with verify=False and without any timeout."""
    responses.get(URL, json=podlist(*THREE))
    sent: list[dict[str, Any]] = []
    send = requests.Session.get

    def spy(session: requests.Session, url: str, **options: Any) -> requests.Response:
        sent.append(options)
        return send(session, url, **options)

    monkeypatch.setattr(requests.Session, "get", spy)
    assert len(make_api(account).list_pods()["items"]) == 3
    assert sent[0]["verify"] == str(account / "ca.crt")
    assert 0 < sent[0]["timeout"] <= 10
    request = responses.calls[0].request
    assert request.headers["Authorization"] == "Bearer first"
    assert request.params["labelSelector"] == "job-name=paddle-cluster-job"


@responses.activate
def test_without_a_service_account_no_header_is_sent() -> None:
    responses.get(URL, json=podlist())
    make_api().list_pods()
    assert "Authorization" not in responses.calls[0].request.headers


@responses.activate
def test_the_token_is_read_again_for_every_request(account: Path) -> None:
    responses.get(URL, json=podlist())
    api = make_api(account)
    api.list_pods()
    (account / "token").write_text("second")
    api.list_pods()
    assert [call.request.headers["Authorization"] for call in responses.calls] == ["Bearer first", "Bearer second"]


@responses.activate
def test_401_is_retried_once_with_a_fresh_token(account: Path) -> None:
    """A projected token is rotated while the pod runs; the original read it once."""

    def answer(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        if request.headers["Authorization"] == "Bearer first":
            (account / "token").write_text("second")
            return 401, {}, '{"message": "Unauthorized"}'
        return 200, {}, '{"items": []}'

    responses.add_callback(responses.GET, URL, answer)
    assert make_api(account).list_pods()["items"] == []
    assert len(responses.calls) == 2


@responses.activate
def test_S10_all_pages_are_read() -> None:
    """The original ignored `continue`, so a long list was a short one."""
    responses.get(URL, json=podlist(THREE[0], token="more"))
    responses.get(
        URL,
        json=podlist(*THREE[1:]),
        match=[responses.matchers.query_param_matcher({"continue": "more"}, strict_match=False)],
    )
    assert make_api().list_pods()["items"] == THREE


FAILURES: dict[str, tuple[dict[str, Any], str, type[start_paddle.LaunchError], bool]] = {
    "401": (
        {"status": 401, "json": {"message": "Unauthorized"}},
        "nor was a fresh one",
        start_paddle.ForbiddenError,
        False,
    ),
    "403": (
        {"status": 403, "json": {"message": "pods is forbidden"}},
        "lacks the verb `list` on pods in namespace default: kubectl create -f k8s/rbac.yaml",
        start_paddle.ForbiddenError,
        False,
    ),
    "404": (
        {"status": 404, "body": "404 page not found"},
        "Check JOB_NAMESPACE=default",
        start_paddle.BadEnvironmentError,
        True,
    ),
    "429": ({"status": 429, "json": {"message": "slow down"}}, "429: slow down", start_paddle.UnreachableError, False),
    "500": ({"status": 500, "json": {"message": "etcd"}}, "500: etcd", start_paddle.UnreachableError, False),
    "a redirect": (
        {"status": 302, "headers": {"Location": "http://x/"}},
        "302",
        start_paddle.BadEnvironmentError,
        True,
    ),
    "HTML": ({"body": "<html>login</html>"}, "no pod list", start_paddle.UnreachableError, False),
    "an empty body": ({"body": ""}, "no pod list", start_paddle.UnreachableError, False),
    "JSON of another kind": ({"json": {"kind": "Status"}}, "no items", start_paddle.UnreachableError, False),
    "a JSON list": ({"json": []}, "no pod list", start_paddle.UnreachableError, False),
    "items that are no pods": ({"json": {"items": [1]}}, "no pod list", start_paddle.UnreachableError, False),
    "a pod whose parts are lists": (
        {"json": {"items": [{"metadata": [0]}]}},
        "no pod list",
        start_paddle.UnreachableError,
        False,
    ),
    "a hang": (
        {"body": requests.ReadTimeout("no answer for 10 s")},
        "no answer for 10 s",
        start_paddle.UnreachableError,
        False,
    ),
    "a refused connection": (
        {"body": requests.ConnectionError("refused")},
        "refused",
        start_paddle.UnreachableError,
        False,
    ),
}


@pytest.mark.parametrize(("answer", "said", "final", "fatal"), FAILURES.values(), ids=FAILURES.keys())
@responses.activate
def test_S10_a_failed_request_says_what_happened(answer: dict[str, Any], said: str, final: type, fatal: bool) -> None:
    """The original parsed every body as a pod list: a 403 became KeyError 'items'."""
    responses.get(URL, **answer)
    with pytest.raises(ApiError) as error:
        make_api().list_pods()
    assert said in str(error.value)
    assert (error.value.final, error.value.fatal) == (final, fatal)


@responses.activate
def test_waiting_goes_on_until_exactly_the_expected_pods_run() -> None:
    """S1: the original started as soon as all *listed* pods ran, one of one for instance."""
    for pods in (THREE[:1], THREE[:2], [*THREE[:2], THREE[2].pending("Unschedulable", "no memory")], THREE):
        responses.get(URL, json=podlist(*pods))
    clock = Clock()
    wait_for_pods(make_api(), 3, all_three, clock.waiting())
    assert (
        len(clock.said) == 3
        and "2 of 3 Running; paddle-cluster-job-10-0-0-3: Pending, Unschedulable: no memory" in clock.said[2]
    )


@responses.activate
def test_the_same_obstacle_is_said_once_per_30_seconds() -> None:
    responses.get(URL, json=podlist())
    clock = Clock()
    with pytest.raises(start_paddle.UnreachableError):
        wait_for_pods(make_api(), 3, all_three, clock.waiting(100.0))
    assert len(clock.said) == 4


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ({"json": podlist(THREE[0])}, start_paddle.UnreachableError, "1 of 3 Running; 2 not created yet"),
        ({"status": 403, "json": {"message": "no"}}, start_paddle.ForbiddenError, "verb `list`"),
        ({"status": 500, "body": "x"}, start_paddle.UnreachableError, "500"),
    ],
    ids=["pods missing: 69", "forbidden: 77", "server error: 69"],
)
@responses.activate
def test_the_deadline_ends_the_wait_with_the_same_table(answer: dict[str, Any], error: type, said: str) -> None:
    responses.get(URL, **answer)
    clock = Clock()
    with pytest.raises(error, match="gave up after 60 s") as raised:
        wait_for_pods(make_api(), 3, all_three, clock.waiting(60.0))
    assert said in str(raised.value)
    assert 1060.0 <= clock.now < 1061.0


@responses.activate
def test_403_goes_away_when_the_right_is_given() -> None:
    responses.get(URL, status=403, json={"message": "no"})
    responses.get(URL, json=podlist(*THREE))
    clock = Clock()
    wait_for_pods(make_api(), 3, all_three, clock.waiting())
    assert "verb `list`" in clock.said[0]


@responses.activate
def test_404_ends_at_once() -> None:
    responses.get(URL, status=404, body="404 page not found")
    clock = Clock()
    with pytest.raises(start_paddle.BadEnvironmentError):
        wait_for_pods(make_api(), 3, all_three, clock.waiting())
    assert len(responses.calls) == 1


@responses.activate
def test_failures_are_retried_with_growing_pauses_and_retry_after() -> None:
    for _ in range(5):
        responses.get(URL, status=503, body="starting")
    responses.get(URL, status=429, headers={"Retry-After": "40"}, body="slow down")
    responses.get(URL, json=podlist(*THREE))
    clock = Clock()
    wait_for_pods(make_api(), 3, all_three, clock.waiting())
    pauses = clock.slept[1:]
    assert pauses[0] < pauses[2] < pauses[4] <= 15 * 1.3
    assert pauses[5] >= 40


RETRY_AFTER: dict[str, tuple[str | None, Callable[[float], bool]]] = {
    "seconds": ("7", lambda s: s == 7),
    "a date": (
        email.utils.format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)),
        lambda s: 3500 < s <= 3600,
    ),
    "a date gone by": ("Sat, 21 Nov 2020 07:00:00 GMT", lambda s: s == 0),
    "nonsense": ("soon", lambda s: s == 0),
    "nothing": (None, lambda s: s == 0),
}


@pytest.mark.parametrize(("value", "is_right"), RETRY_AFTER.values(), ids=RETRY_AFTER.keys())
def test_retry_after_is_read(value: str | None, is_right: Callable[[float], bool]) -> None:
    assert is_right(start_paddle.parse_retry_after(value))


@pytest.mark.parametrize("launchers", [1, 3, 40, 100, 1000, 5000])
def test_launchers_together_stay_below_200_calls_a_second(launchers: int) -> None:
    assert launchers / start_paddle.poll_interval(launchers, 0.0) <= start_paddle.CALLS_PER_SECOND
    assert start_paddle.poll_interval(launchers, 0.0) >= 0.2
    assert start_paddle.poll_interval(launchers, 61.0) >= 1.0


def test_an_ipv6_api_server_gets_brackets() -> None:
    assert make_api(KUBERNETES_SERVICE_HOST="fd00::1").url.startswith("https://[fd00::1]:443/")


@responses.activate
def test_getPodList_returns_the_answer_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in pod_environment().items():
        monkeypatch.setenv(name, value)
    responses.get(URL, json=podlist(*THREE))
    assert start_paddle.getIdMap(start_paddle.getPodList()) == {"10.0.0.1": 0, "10.0.0.2": 1, "10.0.0.3": 2}

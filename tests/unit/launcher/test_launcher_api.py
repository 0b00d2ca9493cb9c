"""Asking the API and waiting for it: faults S1, S10, S11 of the tutorial's launcher, on a clock of our own."""

from __future__ import annotations

import datetime
import email.utils
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import responses
from builders import JOB, pod, pod_environment, podlist
from launching import make_launcher

import start_paddle
from paddle_base.runtime.errors import ApiForbiddenError, ConfigError, PaddleError, PeerUnreachableError, VolumeError
from paddle_base.runtime.kubernetes.answers import parse_retry_after
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord, Meeting
from paddle_cluster.launcher.cluster.call_slots import SLOTS_PER_SECOND
from paddle_cluster.launcher.cluster.kubernetes import LONGEST_INTERVAL_S, PODS_PER_SECOND, PodApi, poll_interval
from paddle_cluster.launcher.cluster.pods import OVERDUE_S, own_pods, parse_pods
from paddle_cluster.launcher.cluster.waiting import Wait, WaitPolicy
from paddle_cluster.launcher.control.job_record import write_record
from paddle_cluster.launcher.errors import ApiError, NotReadyError
from paddle_cluster.launcher.settings import LauncherConfig

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

    def waiting(self, timeout_s: float = 600.0) -> WaitPolicy:
        return WaitPolicy(timeout_s, lambda: self.now, self.sleep, random.Random(7), self.said.append)


class FastClock(Clock):
    """A clock that does not sleep in the small steps of a launcher that listens."""

    def sleep(self, seconds: float) -> None:
        super().sleep(max(seconds, 0.5))


def wait_for_three(policy: WaitPolicy) -> None:
    config, wait = LauncherConfig.from_env(pod_environment()), Wait(make_api(), policy)
    wait.until(lambda: start_paddle.complete_set(config, wait.list_pods()))


@responses.activate
def test_the_request_is_the_tutorials_with_token_and_verified_certificate(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S11: the original sent the token with verify=False and without any timeout."""
    responses.get(URL, json=podlist(*THREE))
    sent: list[dict[str, Any]] = []
    send = requests.Session.request

    def spy(session: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        sent.append(options)
        return send(session, method, url, **options)

    monkeypatch.setattr(requests.Session, "request", spy)
    assert len(make_api(account).list_pods()["items"]) == 3
    assert sent[0]["verify"] == str(account / "ca.crt")
    assert all(0 < limit <= 10 for limit in sent[0]["timeout"])  # to connect, and for the answer
    request = responses.calls[0].request
    assert request.headers["Authorization"] == "Bearer first"
    assert request.params["labelSelector"] == "job-name=paddle-cluster-job"


@pytest.mark.parametrize("skew", [-600.0, 600.0], ids=["a clock that is behind", "a clock that is ahead"])
@responses.activate
def test_whether_a_deletion_is_overdue_is_seen_by_the_clock_that_set_its_time(
    monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    """A launcher whose clock was ahead advised to taint the node of each pod that was being deleted."""
    now = 1_800_000_000.0
    monkeypatch.setattr("time.time", lambda: now + skew)
    pods = []
    for number, due in enumerate([now - OVERDUE_S + 5, now - OVERDUE_S - 5]):
        stamp = datetime.datetime.fromtimestamp(due, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        pods.append(pod(f"10.0.0.{number}").on_node("n").terminating(stamp))
    responses.get(URL, json=podlist(*pods), headers={"Date": email.utils.formatdate(now, usegmt=True)})
    states = [
        one.state for one in parse_pods(own_pods(LauncherConfig.from_env(pod_environment()), make_api().list_pods()))
    ]
    assert states[0] == "Terminating" and "its node n does not report" in states[1]


@responses.activate
def test_without_a_service_account_no_header_is_sent() -> None:
    responses.get(URL, json=podlist())
    make_api().list_pods()
    assert "Authorization" not in responses.calls[0].request.headers


@responses.activate
def test_without_its_own_authority_the_certificate_is_verified_all_the_same(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses.get(URL, json=podlist())
    (account / "ca.crt").unlink()
    verified: list[object] = []
    send = requests.Session.request

    def spy(session: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        verified.append(options["verify"])
        return send(session, method, url, **options)

    monkeypatch.setattr(requests.Session, "request", spy)
    make_api(account).list_pods()
    assert verified == [True]


@responses.activate
def test_no_cookie_is_kept(account: Path) -> None:
    responses.get(URL, json=podlist(), headers={"Set-Cookie": "a=b; Path=/"})
    api = make_api(account)
    for _ in range(2):
        api.list_pods()
    assert [call.request.headers.get("Cookie") for call in responses.calls] == [None, None]
    assert len(api.client.session.cookies) == 0


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


FAILURES: dict[str, tuple[dict[str, Any], str, type[PaddleError], bool]] = {
    "401": (
        {"status": 401, "json": {"message": "Unauthorized"}},
        "even after it was read again",
        ApiForbiddenError,
        False,
    ),
    "403": (
        {"status": 403, "json": {"message": "pods is forbidden"}},
        "lacks the verb `list` on pods in namespace default: run kubectl create -f k8s/rbac.yaml",
        ApiForbiddenError,
        False,
    ),
    "404": (
        {"status": 404, "body": "404 page not found"},
        "Check JOB_NAMESPACE=default",
        ConfigError,
        True,
    ),
    "429": ({"status": 429, "json": {"message": "slow down"}}, "429: slow down", PeerUnreachableError, False),
    "500": ({"status": 500, "json": {"message": "etcd"}}, "500: etcd", PeerUnreachableError, False),
    "a redirect": (
        {"status": 302, "headers": {"Location": "http://x/"}},
        "302",
        ConfigError,
        True,
    ),
    "a hang": (
        {"body": requests.ReadTimeout("no answer for 10 s")},
        "no answer for 10 s",
        PeerUnreachableError,
        False,
    ),
    "a refused connection": (
        {"body": requests.ConnectionError("refused")},
        "refused",
        PeerUnreachableError,
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
    wait_for_three(clock.waiting())
    assert (
        len(clock.said) == 3
        and "2 of 3 Running; paddle-cluster-job-10-0-0-3: Pending, Unschedulable: no memory" in clock.said[2]
    )


@responses.activate
def test_the_same_obstacle_is_said_once_per_30_seconds() -> None:
    responses.get(URL, json=podlist())
    clock = Clock()
    with pytest.raises(PeerUnreachableError):
        wait_for_three(clock.waiting(100.0))
    assert len(clock.said) == 4


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ({"json": podlist(THREE[0])}, PeerUnreachableError, "1 of 3 Running; 1 of 3 pods exist"),
        ({"status": 403, "json": {"message": "no"}}, ApiForbiddenError, "verb `list`"),
        ({"status": 500, "body": "x"}, PeerUnreachableError, "500"),
    ],
    ids=["pods missing: 69", "forbidden: 77", "server error: 69"],
)
@responses.activate
def test_the_deadline_ends_the_wait_with_the_same_table(answer: dict[str, Any], error: type, said: str) -> None:
    responses.get(URL, **answer)
    clock = Clock()
    with pytest.raises(error, match="gave up after 60 s") as raised:
        wait_for_three(clock.waiting(60.0))
    assert said in str(raised.value)
    assert 1060.0 <= clock.now < 1061.0


@responses.activate
def test_403_goes_away_when_the_right_is_given() -> None:
    responses.get(URL, status=403, json={"message": "no"})
    responses.get(URL, json=podlist(*THREE))
    clock = Clock()
    wait_for_three(clock.waiting())
    assert "verb `list`" in clock.said[0]


@responses.activate
def test_404_ends_at_once() -> None:
    responses.get(URL, status=404, body="404 page not found")
    clock = Clock()
    with pytest.raises(ConfigError):
        wait_for_three(clock.waiting())
    assert len(responses.calls) == 1


@responses.activate
def test_failures_are_retried_with_growing_pauses_and_retry_after() -> None:
    for _ in range(5):
        responses.get(URL, status=503, body="starting")
    responses.get(URL, status=429, headers={"Retry-After": "40"}, body="slow down")
    responses.get(URL, json=podlist(*THREE))
    clock = Clock()
    wait_for_three(clock.waiting())
    pauses = clock.slept
    assert pauses[0] < pauses[2] < pauses[4] <= 15 * 1.3
    assert pauses[5] >= 40


RETRY_AFTER: dict[str, tuple[str | None, Callable[[float], bool]]] = {
    "seconds": ("7", lambda s: s == 7),
    "more than a minute": ("999999999", lambda s: s == 60),
    "more than a float holds": ("9" * 400, lambda s: s == 60),
    "less than nothing": ("-5", lambda s: s == 0),
    "no number": ("NaN", lambda s: s == 0),
    "a date beyond the calendar": ("Sat, 21 Nov 9999 07:00:00 -9999", lambda s: s in (0, 60)),
    "a date": (
        email.utils.format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)),
        lambda s: s == 60,
    ),
    "a date gone by": ("Sat, 21 Nov 2020 07:00:00 GMT", lambda s: s == 0),
    "nonsense": ("soon", lambda s: s == 0),
    "nothing": (None, lambda s: s == 0),
}


@pytest.mark.parametrize(("value", "is_right"), RETRY_AFTER.values(), ids=RETRY_AFTER.keys())
def test_retry_after_is_read(value: str | None, is_right: Callable[[float], bool]) -> None:
    assert is_right(parse_retry_after(value))


@pytest.mark.parametrize("launchers", [1, 3, 16, 100, 1000, 5000, 50000])
@pytest.mark.parametrize("listed", [2, 0])
def test_launchers_ask_at_most_once_in_a_period_of_slots(launchers: int, listed: int) -> None:
    for unchanged_s in (0.0, 61.0):
        interval = poll_interval(launchers, listed or launchers, unchanged_s)
        assert launchers / interval <= SLOTS_PER_SECOND + 1e-6
        assert interval >= (1.0 if unchanged_s else 0.2)


@pytest.mark.parametrize(("askers", "listed"), [(3, 3), (16, 16), (1, 1000), (1000, 2), (100, 100)])
def test_launchers_together_list_at_most_500_pods_a_second(askers: int, listed: int) -> None:
    """A pod costs the API server 0.1 to 0.4 ms and 12 kB in every list that has it."""
    assert askers * listed / poll_interval(askers, listed, 0.0) <= PODS_PER_SECOND


def test_no_launcher_asks_so_seldom_that_it_misses_its_deadline() -> None:
    """Without completion indexes each of 1000 lists all 1000: by the rule above that is once in half an hour."""
    assert poll_interval(1000, 1000, 0.0) == LONGEST_INTERVAL_S


def test_an_ipv6_api_server_gets_brackets() -> None:
    assert make_api(KUBERNETES_SERVICE_HOST="fd00::1").url.startswith("https://[fd00::1]:443/")


@responses.activate
def test_getPodList_returns_the_answer_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in pod_environment().items():
        monkeypatch.setenv(name, value)
    responses.get(URL, json=podlist(*THREE))
    assert start_paddle.getIdMap(start_paddle.getPodList()) == {"10.0.0.1": 0, "10.0.0.2": 1, "10.0.0.3": 2}


def own_list(*pods: Any) -> dict[str, Any]:
    return podlist(*(one.indexed(number) for number, one in enumerate(pods)))


def meet(tmp_path: Path, clock: Clock, memory: AttemptHistory | None = None) -> Meeting | None:
    """What the launcher of trainer 1 makes of the API's answers and the volume; START_TIMEOUT is 60, REJOIN 600."""
    config = LauncherConfig.from_env(
        pod_environment(JOB_PATH=str(tmp_path), POD_IP="10.0.0.2", START_TIMEOUT="60", REJOIN_TIMEOUT="600")
    )
    return start_paddle.meet(make_launcher(config, clock.waiting(60.0), memory, num_passes="10"))


def write_known_record(tmp_path: Path, **fields: Any) -> JobRecord:
    ids = start_paddle.getIdMap(own_list(*THREE))
    known = {"passes": 10, "finished": False, "attempt": 1, "pod_uids": ids.pod_uids, "start_pass": 0}
    record = JobRecord(**{"job_uid": ids.job_uid, **known, **fields})
    output = tmp_path / JOB / "output"
    output.mkdir(parents=True, exist_ok=True)
    write_record(output, record)
    return record


@responses.activate
def test_the_first_set_of_pods_is_waited_for_until_START_TIMEOUT(tmp_path: Path) -> None:
    responses.get(URL, json=own_list(*THREE[:2]))
    said = r"gave up after 60 s \(START_TIMEOUT\): 2 of 3 Running; 2 of 3 pods exist \(kubectl "
    with pytest.raises(PeerUnreachableError, match=said) as error:
        meet(tmp_path, Clock())
    names = [one["metadata"]["name"] for one in THREE[:2]]
    rows = [line.split() for line in str(error.value).splitlines()[2:]]
    assert rows == [["0", names[0], "Running"], ["1", names[1], "Running"], ["2", "no", "pod"]]


@responses.activate
def test_a_lost_pod_is_waited_for_longer_by_those_who_stay_and_by_those_who_come(tmp_path: Path) -> None:
    """The Job replaces it after a back-off, and a drained node takes minutes: nobody else may end."""
    responses.get(URL, json=own_list(*THREE[:2]))
    record = write_known_record(tmp_path)
    for memory in (AttemptHistory(record=record), AttemptHistory()):
        with pytest.raises(PeerUnreachableError, match=r"gave up after 600 s \(REJOIN_TIMEOUT\): 2 of 3"):
            meet(tmp_path, FastClock(), memory)


@responses.activate
def test_the_same_pods_wait_for_trainer_0_to_begin_the_next_attempt(tmp_path: Path) -> None:
    responses.get(URL, json=own_list(*THREE))
    clock, record = FastClock(), write_known_record(tmp_path)
    with pytest.raises(PeerUnreachableError, match="with this set after attempt 1"):
        meet(tmp_path, clock, AttemptHistory(record=record))
    assert "trainer 0 has begun no attempt with this set" in clock.said[0]
    second = write_known_record(tmp_path, attempt=2)
    assert meet(tmp_path, Clock(), AttemptHistory(record=record)).record == second


@responses.activate
def test_a_pod_that_is_being_stopped_does_not_take_part_again(tmp_path: Path) -> None:
    own = THREE[1]["metadata"]["name"]
    pods = own_list(THREE[0], THREE[1].terminating(), THREE[2])
    config = LauncherConfig.from_env(pod_environment(POD_IP="10.0.0.2", POD_NAME=own))
    with pytest.raises(NotReadyError, match=f"this pod, {own}, is being stopped"):
        start_paddle.complete_set(config, pods)


@responses.activate
def test_a_pod_that_has_succeeded_has_seen_the_end_of_the_training(tmp_path: Path) -> None:
    """It is never replaced, so the set would not be full again; with --saving_period no last pass may be saved."""
    responses.get(URL, json=own_list(THREE[0].phase("Succeeded"), *THREE[1:]))
    record = write_known_record(tmp_path)
    assert meet(tmp_path, Clock(), AttemptHistory(record=record)) is None


@responses.activate
def test_a_job_that_has_given_up_does_not_wait_for_a_full_set(tmp_path: Path) -> None:
    responses.get(URL, json=own_list(*THREE[:2]))
    record = write_known_record(tmp_path, given_up=True)
    assert meet(tmp_path, Clock()).record == record


@responses.activate
def test_a_volume_that_is_full_between_two_attempts_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer 0 cannot write job.json: it says so, and goes on when there is room; at the deadline it ends with 74."""
    responses.get(URL, json=own_list(*THREE))
    record = write_known_record(tmp_path)
    environ = pod_environment(JOB_PATH=str(tmp_path), REJOIN_TIMEOUT="600")

    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("paddle_cluster.launcher.control.job_record.write_atomically", refuse)
    for restarts, ends_after in (("10", 600.0), ("0", 0.0)):
        config = LauncherConfig.from_env({**environ, "RESTARTS": restarts})
        clock = Clock()
        with pytest.raises(VolumeError, match="the volume is full: make room"):
            start_paddle.meet(make_launcher(config, clock.waiting(60.0), AttemptHistory(record=record)))
        assert ends_after <= clock.now - 1000.0 < ends_after + 1

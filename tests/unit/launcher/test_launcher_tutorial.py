"""The shorter manifests of the tutorial: what they leave out has the values that the longest one prints."""

import random
import time
from typing import Any

import pytest
import responses
from builders import pod, pod_environment, podlist

import start_paddle
from paddle_base.runtime.errors import ConfigError, PeerUnreachableError
from paddle_base.runtime.network.redaction import Secrets
from paddle_cluster.launcher.cluster.waiting import WaitPolicy, with_number_of_pods
from paddle_cluster.launcher.settings import LauncherConfig

PODS = "https://10.96.0.1:443/api/v1/namespaces/default/pods"
JOB = "https://10.96.0.1:443/apis/batch/v1/namespaces/default/jobs/paddle-cluster-job"
BLOG = dict.fromkeys(
    [
        "TRAIN_CONFIG_DIR",
        "CONF_PADDLE_NIC",
        "CONF_PADDLE_PORT",
        "CONF_PADDLE_PORTS_NUM",
        "CONF_PADDLE_PORTS_NUM_SPARSE",
        "CONF_PADDLE_GRADIENT_NUM",
    ]
)


def test_the_three_variables_of_the_blog_are_enough() -> None:
    config = LauncherConfig.from_env(pod_environment(**BLOG))
    found = (config.nic, config.port, config.ports_num, config.ports_num_sparse, config.gradient_num)
    assert found == ("eth0", 7164, 2, 2, 3)
    assert config.pserver_num == 3


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, []

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def waiting(self) -> WaitPolicy:
        return WaitPolicy(600.0, lambda: self.now, self.sleep, random.Random(7), self.said.append)


@pytest.fixture
def number_of_pods(monkeypatch: pytest.MonkeyPatch) -> Any:
    """number_of_pods(**changed): what becomes of the blog's environment."""

    def ask(clock: Clock | None = None, **changed: str | None) -> LauncherConfig:
        environ = pod_environment(**{**BLOG, **changed})
        for name in BLOG:
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        config = LauncherConfig.from_env(environ)
        return with_number_of_pods(config, (clock or Clock()).waiting(), Secrets())

    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.get(PODS, json=podlist(pod("10.0.0.1")))
        ask.answers = mock  # type: ignore[attr-defined]
        yield ask


def job(**spec: object) -> dict[str, Any]:
    return {"kind": "Job", "spec": spec}


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"parallelism": 5, "completions": 5}, 5),
        ({"parallelism": 5}, 5),
        ({"parallelism": 5, "completions": None}, 5),
        ({"parallelism": 5, "completions": 2}, 2),
        ({}, 1),
    ],
    ids=str,
)
def test_the_pods_are_the_jobs_parallelism_where_it_may_be_read(
    number_of_pods: Any, spec: dict[str, Any], pods: int, capsys: pytest.CaptureFixture[str]
) -> None:
    number_of_pods.answers.get(JOB, json=job(**spec))
    config = number_of_pods()
    assert (config.gradient_num, config.pserver_num) == (pods, pods)
    assert f"CONF_PADDLE_GRADIENT_NUM is not set: this Job has {pods} pod" in capsys.readouterr().out


@pytest.mark.parametrize("status", [403, 404])
def test_a_pod_that_may_not_read_its_job_takes_the_tutorials_three(
    number_of_pods: Any, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    number_of_pods.answers.get(JOB, status=status, json={"message": "jobs is forbidden"})
    assert number_of_pods().gradient_num == 3
    said = capsys.readouterr().out
    assert "this pod may not read the parallelism of its Job: the API server " in said
    assert f"answered {status}; the launcher assumes 3 pods" in said


def test_a_number_that_is_set_is_not_asked_for(number_of_pods: Any) -> None:
    assert number_of_pods(CONF_PADDLE_GRADIENT_NUM="4").gradient_num == 4
    assert not number_of_pods.answers.calls


@pytest.mark.parametrize(
    "body", [[], {}, {"spec": []}, job(parallelism="3"), job(parallelism=True), job(parallelism=-1)], ids=str
)
def test_an_answer_that_is_no_job_is_asked_for_again(number_of_pods: Any, body: Any) -> None:
    """To take three then would make pods disagree on how many they are."""
    number_of_pods.answers.get(JOB, json=body)
    number_of_pods.answers.get(JOB, json=job(parallelism=4))
    clock = Clock()
    assert number_of_pods(clock).gradient_num == 4
    assert any("answered something that is no Job" in text for text in clock.said)


def test_an_api_server_that_fails_is_asked_until_the_deadline(number_of_pods: Any) -> None:
    number_of_pods.answers.get(JOB, status=503, json={"message": "starting"})
    clock = Clock()
    with pytest.raises(PeerUnreachableError, match=r"gave up after 600 s .*503: starting"):
        number_of_pods(clock)


def test_a_job_that_is_to_have_no_pods_is_waited_for(number_of_pods: Any) -> None:
    number_of_pods.answers.get(JOB, json=job(parallelism=0))
    number_of_pods.answers.get(JOB, json=job(parallelism=2))
    clock = Clock()
    assert number_of_pods(clock).gradient_num == 2
    assert clock.said == ["waiting: the Job's parallelism is 0, and CONF_PADDLE_GRADIENT_NUM is not set"]


def test_more_pservers_than_the_parallelism_are_refused(number_of_pods: Any) -> None:
    number_of_pods.answers.get(JOB, json=job(parallelism=4))
    assert number_of_pods(CONF_PADDLE_PSERVER_NUM="4").pserver_num == 4
    with pytest.raises(ConfigError, match="CONF_PADDLE_PSERVER_NUM is 5, but this Job has only 4 pods"):
        number_of_pods(CONF_PADDLE_PSERVER_NUM="5")


def test_getting_the_pod_list_alone_needs_no_number(number_of_pods: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    number_of_pods(CONF_PADDLE_GRADIENT_NUM="1")
    monkeypatch.delenv("CONF_PADDLE_GRADIENT_NUM")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert start_paddle.getPodList()["items"]

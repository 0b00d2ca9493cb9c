"""Which pods run a trainer, which a pserver, and which both: pods with one program, and with the other alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import responses
from builders import JOB_UID, pod, pod_environment, podlist
from launching import FakeControl, make_launcher
from test_launcher_api import URL, Clock

import start_paddle
from paddle_base.runtime.errors import ConfigError
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord, Meeting
from paddle_cluster.launcher.cluster.kubernetes import PodApi
from paddle_cluster.launcher.cluster.pods import IdMap
from paddle_cluster.launcher.cluster.waiting import is_first_live
from paddle_cluster.launcher.command_lines import (
    build_pserver_command,
    build_trainer_command,
    check_flags,
    list_preloaded,
    print_plan,
)
from paddle_cluster.launcher.control.ending import finish
from paddle_cluster.launcher.control.failure_detector import FailureDetector, LauncherPlace
from paddle_cluster.launcher.control.job_record import wanted_record
from paddle_cluster.launcher.control.watch import SILENCE_S, AttemptWatch
from paddle_cluster.launcher.errors import NotReadyError
from paddle_cluster.launcher.failures import describe_error, describe_followers, make_error
from paddle_cluster.launcher.layout import PodLayout
from paddle_cluster.launcher.settings import LauncherConfig, read_layout

# trainers, pservers, apart -> what each pod runs: t a trainer, p a pserver, b both
LAYOUTS: dict[str, tuple[tuple[int, int, bool], str]] = {
    "as many of both": ((3, 3, False), "bbb"),
    "fewer pservers": ((3, 1, False), "btt"),
    "more pservers": ((2, 5, False), "bbppp"),
    "one trainer and many pservers": ((1, 3, False), "bpp"),
    "apart": ((2, 3, True), "ttppp"),
    "one of each, apart": ((1, 1, True), "tp"),
    "one pod": ((1, 1, False), "b"),
    "no pserver": ((2, 0, False), "tt"),
}


@pytest.mark.parametrize(("numbers", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_pod_has_its_programs(numbers: tuple[int, int, bool], expected: str) -> None:
    layout = PodLayout(*numbers)
    kinds = {(True, True): "b", (True, False): "t", (False, True): "p"}
    found = [kinds[layout.runs_trainer(number), layout.runs_pserver(number)] for number in range(layout.pods)]
    assert "".join(found) == expected
    assert [number for number, kind in enumerate(expected) if kind != "t"] == list(layout.pserver_ids)


def make_config(trainers: int, pservers: int, apart: bool = False, **changed: str | None) -> LauncherConfig:
    numbers = {"CONF_PADDLE_GRADIENT_NUM": str(trainers), "CONF_PADDLE_PSERVER_NUM": str(pservers)}
    return LauncherConfig.from_env(pod_environment(**numbers, CONF_PADDLE_PSERVER_APART=str(int(apart)), **changed))


def make_ids(pods: int) -> IdMap:
    return start_paddle.getIdMap(podlist(*(pod(f"10.0.0.{number + 1}").indexed(number) for number in range(pods))))


@pytest.mark.parametrize(
    ("numbers", "servers"),
    [((2, 4, False), [1, 2, 3, 4]), ((2, 2, True), [3, 4]), ((4, 1, False), [1])],
    ids=["more", "apart", "fewer"],
)
def test_all_trainers_get_the_same_pservers_and_all_pservers_the_number_of_trainers(
    numbers: tuple[int, int, bool], servers: list[int]
) -> None:
    config = make_config(*numbers)
    flag = f"--pservers={','.join(f'10.0.0.{number}' for number in servers)}"
    for trainer_id in range(config.gradient_num):
        assert flag in build_trainer_command(config, make_ids(4), trainer_id, {}).argv
    trainers = f"--num_gradient_servers={config.gradient_num}"
    assert all(trainers in build_pserver_command(config, number, {}).argv for number in config.layout.pserver_ids)


def test_the_plan_says_what_each_pod_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(make_config(1, 2, POD_IP="10.0.0.2"), make_ids(2), {})
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["trainer 0: 10.0.0.1", "pserver pod 1: 10.0.0.2 (this pod)"]
    assert len(said) == 3 and said[2].startswith("paddle pserver ")
    print_plan(make_config(1, 1, True, POD_IP="10.0.0.1"), make_ids(2), {})
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["trainer 0: 10.0.0.1 (this pod), without a pserver", "pserver pod 1: 10.0.0.2"]
    assert len(said) == 3 and said[2].startswith("paddle train ")


def test_all_pods_are_waited_for_and_the_message_names_both_numbers() -> None:
    config = make_config(2, 3, JOB_NAMESPACE="default")
    pods = [pod(f"10.0.0.{number + 1}").indexed(number) for number in range(4)]
    with pytest.raises(NotReadyError, match=r"^2 of 3 Running; 2 of 3 pods exist"):
        start_paddle.complete_set(config, podlist(*pods[:2]))
    assert start_paddle.complete_set(config, podlist(*pods[:3])) == make_ids(3)
    with pytest.raises(NotReadyError) as waiting:
        start_paddle.complete_set(config, podlist(*pods))
    assert str(waiting.value) == (
        "4 pods exist (paddle-cluster-job-10-0-0-1, paddle-cluster-job-10-0-0-2, paddle-cluster-job-10-0-0-3, "
        "paddle-cluster-job-10-0-0-4) but CONF_PADDLE_GRADIENT_NUM = 2 and CONF_PADDLE_PSERVER_NUM = 3 need 3 pods: "
        "set it to the Job's parallelism and completions"
    )


def test_the_tutorials_function_counts_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONF_PADDLE_GRADIENT_NUM", "1")
    monkeypatch.setenv("CONF_PADDLE_PSERVER_NUM", "2")
    assert start_paddle.isPodAllRunning(podlist(pod("10.0.0.1"), pod("10.0.0.2")))
    monkeypatch.setenv("CONF_PADDLE_PSERVER_APART", "1")
    assert not start_paddle.isPodAllRunning(podlist(pod("10.0.0.1"), pod("10.0.0.2")))
    monkeypatch.setenv("CONF_PADDLE_PSERVER_NUM", "x")
    with pytest.raises(ConfigError, match="CONF_PADDLE_PSERVER_NUM is 'x', expected a whole number"):
        start_paddle.isPodAllRunning(podlist())
    assert read_layout({"CONF_PADDLE_GRADIENT_NUM": "4"}) == PodLayout(4, 4)


@pytest.mark.parametrize("apart", [False, True])
def test_pods_that_would_have_nothing_to_run_are_refused(apart: bool) -> None:
    with pytest.raises(ConfigError, match="--local trains without pservers, but CONF_PADDLE_GRADIENT_NUM = 1 and "):
        check_flags(make_config(1, 2, apart), {"local": "1"})
    check_flags(make_config(1, 2, apart), {"local": "0"})
    check_flags(make_config(2, 1), {"local": "1"})


# ----- What is written down, and said of it


def make_record(config: LauncherConfig) -> JobRecord:
    return wanted_record(config, make_ids(config.layout.pods), {})


@pytest.mark.parametrize("numbers", [numbers for numbers, _ in LAYOUTS.values()], ids=list(LAYOUTS))
def test_the_record_tells_the_layout(numbers: tuple[int, int, bool]) -> None:
    assert make_record(make_config(*numbers)).roles == PodLayout(*numbers)


def test_a_record_without_numbers_is_of_trainers_alone() -> None:
    assert JobRecord("job", 1, False, 1, ["a", "b"], 0).roles.name_pod(1) == "trainer 1"


def test_a_pod_without_a_trainer_is_not_called_one() -> None:
    record = make_record(make_config(2, 5))
    killed = make_error(record.name, 3, "pod-3", AttemptResult(75, "pserver", "killed", "SIGKILL"))
    assert describe_error(killed, record).startswith("pserver pod 3 on pod-3: pserver, exit status 75, ")
    alone = make_error(record.name, 1, "pod-1", AttemptResult(75, "trainer", "lost"))
    said = describe_followers([alone], record)
    assert said.startswith("trainer 0 and pserver pods 2, 3, 4 have reported nothing; trainer 1 has ended, ")
    detector = FailureDetector(record.pod_uids[0], LauncherPlace("10.0.0.1", "pod-0"))
    detector.report(alone)
    lost = detector.judge(record, is_late=True)
    assert lost and lost["trainer_id"] == 2 and "the launchers of pserver pod 3 (paddle-cluster-job-" in lost["message"]


# ----- The end


def test_a_pod_without_a_trainer_tells_trainer_0_that_all_have_left(tmp_path: Path) -> None:
    config = make_config(1, 1, True, JOB_PATH=str(tmp_path))
    record, control = make_record(config), FakeControl(config.output)
    finish(make_launcher(config, Clock().waiting(), control=control), record, 1)
    assert (control.sent, control.done) == ([("left", {"attempt": record.name})], [])


@pytest.fixture
def watch_of(monkeypatch: pytest.MonkeyPatch) -> tuple[Clock, FakeControl, AttemptWatch]:
    config = make_config(1, 1, True, POD_IP="10.0.0.2", JOB_PATH="/nonexistent")
    clock, control = Clock(), FakeControl(config.output)
    monkeypatch.setattr("paddle_cluster.launcher.control.watch.time.monotonic", lambda: clock.now)
    launcher = make_launcher(config, clock.waiting(60.0), control=control)
    return clock, control, AttemptWatch(launcher, Meeting(make_ids(2), make_record(config)))


@responses.activate
def test_a_pserver_that_nobody_has_met_ends_when_trainer_0s_pod_is_lost(
    watch_of: tuple[Clock, FakeControl, AttemptWatch],
) -> None:
    """No trainer would tell it: the pserver itself misses only trainers that it has met."""
    clock, control, watch = watch_of
    there, own = pod("10.0.0.1").indexed(0), pod("10.0.0.2").indexed(1)
    answer = responses.get(URL, json=podlist(there, own))
    for trouble, seconds, calls in (("", 60.0, 0), ("refused", 1.0, 0), ("refused", SILENCE_S, 1), ("", 99.0, 1)):
        clock.now += seconds
        control.missing = trouble
        assert watch.find_lost_server() is None
        assert answer.call_count == calls
    control.missing = "refused"
    responses.upsert(responses.GET, URL, json=podlist(there.phase("Failed"), own))
    clock.now += SILENCE_S
    lost = watch.find_lost_server()
    assert lost and (lost.status, lost.message) == (75, "trainer 0's pod is lost: refused")


@responses.activate
def test_the_pod_that_replaces_trainer_0s_is_another_one() -> None:
    ids, own = make_ids(2), pod("10.0.0.2").indexed(1)
    api = PodApi(make_config(1, 1, True, POD_IP="10.0.0.2"))
    responses.get(URL, json=podlist(pod("10.0.0.1", "another").indexed(0), own))
    assert not is_first_live(api, ids)
    responses.upsert(responses.GET, URL, status=503, json={"message": "starting"})
    assert is_first_live(api, ids)


@responses.activate
def test_a_pserver_pod_meets_the_others(tmp_path: Path) -> None:
    config = make_config(2, 3, POD_IP="10.0.0.3", JOB_PATH=str(tmp_path), START_TIMEOUT="60")
    responses.get(URL, json=podlist(*(pod(f"10.0.0.{number + 1}").indexed(number) for number in range(3))))
    launcher = make_launcher(config, Clock().waiting(60.0))
    record = dataclasses.replace(make_record(config), job_uid=JOB_UID)
    assert isinstance(launcher.control, FakeControl)
    launcher.control.__class__ = type("Told", (FakeControl,), {"newest": record})
    assert start_paddle.meet(launcher) == Meeting(make_ids(3), record)


def test_the_fork_server_imports_what_the_pod_runs() -> None:
    entry = {"ENTRY": "python train.py"}
    assert list_preloaded(make_config(2, 2)) == ["pserver", "train"]
    assert list_preloaded(make_config(2, 2, CONF_PADDLE_METRICS_PORT="9164")) == ["pserver", "train", "metrics"]
    assert list_preloaded(make_config(2, 2, **entry)) == ["pserver"]
    assert list_preloaded(make_config(2, 0, **entry, CONF_PADDLE_METRICS_PORT="9164")) == []
    assert list_preloaded(make_config(1, 2, apart=True, JOB_COMPLETION_INDEX="2")) == ["pserver"]
    assert list_preloaded(make_config(1, 2, apart=True, JOB_COMPLETION_INDEX="0")) == ["pserver", "train"]

"""Whole Jobs of small scripts through `Cluster`."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from waiting import until

from paddle_cluster.localcluster import Cluster, OptionError, WaitError
from paddle_cluster.localcluster.job.manifest import Rule

DEADLINE = 30.0
FOREVER = "trap 'exit 143' TERM; echo ready; sleep 1000 & wait"


def phases(cluster: Cluster) -> list[str]:
    return [pod.phase for pod in cluster.pods()]


def test_a_job_of_three_pods_completes(job, script, tmp_path):
    text = "echo $JOB_COMPLETION_INDEX $POD_IP > $JOB_PATH/$JOB_COMPLETION_INDEX; touch $WORK_DIR/x; echo done"
    with Cluster(job, volumes={"mfs": tmp_path / "vol"}, entrypoint=script(text)) as cluster:
        result = cluster.wait(DEADLINE)
    assert (result.outcome.reason, result.exit_status) == ("CompletionsReached", 0)
    assert [pod.output for pod in result.pods] == ["done\n"] * 3
    written = [(tmp_path / "vol" / str(index)).read_text().split() for index in range(3)]
    assert [words[0] for words in written] == ["0", "1", "2"]
    assert len({words[1] for words in written}) == 3


def test_pods_find_each_other_through_the_api(job, script, tmp_path):
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(FOREVER)) as cluster:
        for index in range(3):
            cluster.wait_for_phase(str(index), "Running", DEADLINE)
        account = cluster.service_account_directory
        url = f"{cluster.api.url}/api/v1/namespaces/default/pods?labelSelector=job-name=j"
        headers = {"Authorization": f"Bearer {(account / 'token').read_text()}"}
        items = requests.get(url, headers=headers, verify=str(account / "ca.crt"), timeout=DEADLINE).json()["items"]
    assert [pod["status"]["podIP"] for pod in items] == [pod.ip for pod in cluster.pods()]


def test_a_killed_pod_is_replaced_and_listed_beside_its_replacement(job, script, tmp_path):
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(FOREVER), backoff_seconds=0.01) as cluster:
        cluster.wait_for_output("ready", DEADLINE, pod="1")
        first = cluster.wait_for_phase("1", "Running", DEADLINE)
        cluster.kill("1")
        cluster.wait_for_phase(first.name, "Failed", DEADLINE)
        second = cluster.wait_for_phase("1", "Running", DEADLINE)
        assert (second.index, second.name != first.name, second.ip != first.ip) == (1, True, True)
        assert second.controller_uid == first.controller_uid
        assert cluster.store.get(first.name).body["status"]["phase"] == "Failed"


def test_a_deleted_pod_terminates_and_vanishes_and_is_replaced(job, script, tmp_path):
    leave = "echo stopping; while [ ! -e $JOB_PATH/go ]; do sleep 0.01; done; exit 0"
    text = f"trap '{leave}' TERM; echo ready; while :; do sleep 0.01; done"
    job = replace(job, replace_terminating=False)
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(text), backoff_seconds=0.01) as cluster:
        cluster.wait_for_output("ready", DEADLINE, pod="2")
        first = cluster.wait_for_phase("2", "Running", DEADLINE)
        cluster.terminate("2")
        cluster.wait_for_output("stopping", DEADLINE, pod="2")
        shown = cluster.store.get(first.name).body
        assert (shown["status"]["phase"], "deletionTimestamp" in shown["metadata"]) == ("Running", True)
        assert len(cluster.pods()) == 3
        (tmp_path / "go").touch()
        cluster.wait_for_phase(first.name, "Succeeded", DEADLINE)
        assert cluster.store.get(first.name) is None


def test_a_second_stop_does_not_wait_for_the_grace_of_the_first(job, script, tmp_path):
    job = replace(job, parallelism=1, completions=1, grace_seconds=1000.0)
    text = "trap '' TERM; echo ready; while true; do sleep 1000; done"
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(text), grace=1000.0) as cluster:
        cluster.wait_for_output("ready", DEADLINE)
        cluster.stop()
        cluster.stop(grace=0.0)
        assert cluster.wait(DEADLINE).pods[0].exit_code == 137


def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(job, script, tmp_path):
    job = replace(job, parallelism=1, completions=1, grace_seconds=0.2, backoff_limit=0)
    text = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(text), term=["0@ready"]) as cluster:
        result = cluster.wait(DEADLINE)
    assert result.outcome.reason == "BackoffLimitExceeded"
    assert (result.pods[0].exit_code, result.pods[0].deleted) == (137, True)


def test_the_exit_code_of_a_rule_fails_the_job_and_ends_the_others(job, script, tmp_path):
    job = replace(job, rules=(Rule("FailJob", "In", frozenset({78})),), replace_terminating=False)
    text = f"if [ $JOB_COMPLETION_INDEX = 1 ]; then exit 78; fi; {FOREVER}"
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(text)) as cluster:
        result = cluster.wait(DEADLINE)
        assert [pod.name for pod in cluster.store.snapshot().pods] == [result.pod(1).name]
    assert (result.outcome.reason, result.exit_status) == ("PodFailurePolicy", 78)
    assert result.outcome.message.endswith("failed with exit code 78 matching FailJob rule at index 0")


def test_a_drained_pod_is_not_counted_where_a_rule_ignores_it(job, script, tmp_path):
    rule = Rule("Ignore", conditions=(("DisruptionTarget", "True"),))
    job = replace(job, rules=(rule,), replace_terminating=False, backoff_limit=0)
    text = f"if [ -e $JOB_PATH/go ]; then exit 0; fi; {FOREVER}"
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(text), backoff_seconds=0.01) as cluster:
        for index in range(3):
            cluster.wait_for_output("ready", DEADLINE, pod=str(index))
        (tmp_path / "go").touch()
        for index in range(3):
            cluster.terminate(str(index), disruption="EvictionByEvictionAPI")
        result = cluster.wait(DEADLINE)
    assert result.outcome.is_complete
    assert len(result.pods) == 6


def test_kill_strikes_once_at_a_line_of_output(job, script, tmp_path):
    text = "for i in 1 2 3; do echo step $i; done; sleep 0.3"
    with Cluster(
        job, volumes={"mfs": tmp_path}, entrypoint=script(text), kill=["1@step 2"], backoff_seconds=0.01
    ) as cluster:
        result = cluster.wait(DEADLINE)
    assert [pod.exit_code for pod in result.pods if pod.index == 1] == [137, 0]
    assert result.outcome.is_complete


def test_a_delayed_pod_waits_for_a_line_of_another(job, script, tmp_path):
    text = "if [ $JOB_COMPLETION_INDEX = 0 ]; then while [ ! -e $JOB_PATH/go ]; do sleep 0.01; done; echo open; fi"
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(text), delay=["2@0:open"]) as cluster:
        cluster.wait_for_phase("1", "Succeeded", DEADLINE)
        pending = cluster.wait_for_phase("2", "Pending", DEADLINE)
        assert pending.waiting[0] == "Unschedulable"
        (tmp_path / "go").touch()
        assert cluster.wait(DEADLINE).outcome.is_complete


def test_one_process_of_a_pod_can_be_killed_and_the_pod_lives(job, script, tmp_path):
    text = "sleep 1000 & echo ready; wait $!; echo child ended with $?; sleep 1000 & wait"
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(text)) as cluster:
        cluster.wait_for_output("ready", DEADLINE, pod="0")
        until(lambda: any(line == "sleep 1000" for _, line in cluster.processes("0")))
        cluster.kill("0", process="^sleep 1000", signum=signal.SIGKILL)
        assert cluster.wait_for_output("child ended", DEADLINE, pod="0").text == "child ended with 137"
        assert cluster.wait_for_phase("0", "Running", DEADLINE)
        with pytest.raises(OptionError, match="runs no process like 'nothing'"):
            cluster.kill("0", process="nothing")


def test_the_active_deadline_ends_the_job(job, script, tmp_path):
    job = replace(job, active_deadline_seconds=0.2)
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(FOREVER)) as cluster:
        result = cluster.wait(DEADLINE)
    assert (result.outcome.reason, result.exit_status) == ("DeadlineExceeded", 75)


def test_waiting_in_vain_shows_what_the_pods_said(job, script, tmp_path):
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script("echo something else")) as cluster:
        with pytest.raises(WaitError, match=r"(?s)the Job ended before this happened: Complete .*--- j-0-.*thing else"):
            cluster.wait_for_output("what I want", DEADLINE)
        with pytest.raises(WaitError, match="phase Running of pod 0"):
            cluster.wait_for_phase("0", "Running", DEADLINE)


def test_a_deadline_of_a_wait_passes(job, script, tmp_path):
    cluster = Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(FOREVER))
    with cluster, pytest.raises(WaitError, match=r"the Job's end: this did not happen within 0\.1 s"):
        cluster.wait(0.1)


def test_leaving_the_block_ends_everything(job, script, tmp_path):
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script(FOREVER)) as cluster:
        cluster.wait_for_output("ready", DEADLINE, pod="0")
        process, _ = cluster.processes("0")[0]
    assert not Path(f"/proc/{process}").exists()
    assert cluster.result().outcome.reason == "Stopped"
    assert not cluster.service_account_directory.exists()


def test_a_pod_without_an_account_has_no_token(job, script, tmp_path):
    job = replace(job, mounts_token=False)
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script("test ! -e $SERVICE_ACCOUNT_DIR/token")) as cluster:
        assert cluster.wait(DEADLINE).outcome.is_complete


def test_variables_of_the_machine_do_not_leak_into_pods(job, script, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_MINE", "x")
    with Cluster(job, volumes={"mfs": tmp_path}, entrypoint=script("test -z $SECRET_OF_MINE")) as cluster:
        assert cluster.wait(DEADLINE).outcome.is_complete

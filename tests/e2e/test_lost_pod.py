"""What becomes of a three-pod job when a part of it dies: everyone notices, by name, and the next attempt goes on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from three_pods import ROOT, ends, errors_in_tests, open_gate, prepare, shut_gate

from localcluster import Cluster, load_job

PASSES = 10


def start(volume: Path, entrypoint: Path = ROOT / "start.sh", **env: str) -> Cluster:
    job = load_job(str(ROOT / "k8s" / "job.yaml"))
    env = {"NUM_PASSES": str(PASSES), "PADDLE_PEER_TIMEOUT": "3", **env}
    return Cluster(job, volumes={"mfs": volume}, entrypoint=entrypoint, env=env, logs=volume / "pods")


# where a launcher's constants are that tests change
CONSTANTS = {"FEW": "launcher/cluster/kubernetes.py", "LOOK_S": "launcher/control/returning.py"}


def make_launcher(directory: Path, **constants: float) -> Path:
    """Returns the start.sh of a launcher with other constants: how many pods are FEW, how often it looks for others."""
    shutil.copytree(ROOT / "launcher", directory / "launcher")
    for name, value in constants.items():
        module = directory / CONSTANTS[name]
        changed = re.sub(rf"^{name} = [\d.]+", f"{name} = {value}", module.read_text(), count=1, flags=re.MULTILINE)
        assert changed != module.read_text()
        module.write_text(changed)
    shutil.copy(ROOT / "start_paddle.py", directory / "start_paddle.py")
    return shutil.copy(ROOT / "start.sh", directory / "start.sh")


def launchers(cluster: Cluster) -> dict[str, int]:
    """Process id of each pod's launcher: it changes with the pod, and with nothing else."""
    found = {}
    for index in map(str, range(3)):
        (found[index],) = [number for number, line in cluster.processes(index) if "start_paddle.py" in line][:1]
    return found


@pytest.mark.parametrize("process", ["paddle train", "paddle pserver", None], ids=["trainer", "pserver", "pod"])
def test_a_killed_part_ends_the_attempt_and_the_next_one_goes_on(tmp_path: Path, process: str | None) -> None:
    """S31: in the original all other pods stayed in a barrier for ever, and the Job never ended.

    Here a program that was killed costs no pod at all, and a killed pod costs none of the others.
    """
    job = prepare(tmp_path)
    shut_gate(job, 6)
    with start(tmp_path) as cluster:
        cluster.wait_for_output(r"Pass=3 ", deadline=60, pod="1")
        before = launchers(cluster)
        cluster.kill("1", process=process)
        open_gate(job)
        cluster.wait_for_output(r"attempt 2\..*", deadline=60, pod="0")
        after = launchers(cluster) if process else {**launchers(cluster), "1": before["1"]}
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert after == before
    assert [pod.exit_code for pod in result.pods] == ([0, 0, 0] if process else [0, 137, 0, 0])
    record = json.loads((job / "output" / "job.json").read_text())
    assert record["finished"] and record["attempt"] >= 2 and (record["checkpoint"] or record["start_pass"] >= 3)
    program = {"paddle train": "trainer", "paddle pserver": "pserver", None: "pod"}[process]
    failure = record["attempts"][0]["failure"]
    assert (failure["trainer_id"], failure["program"]) == (1, program)
    assert (failure["signal"] == "SIGKILL") == (process is not None)
    for index in (0, 2):
        said = re.findall(r"first failure reported: trainer (\d) on .*", result.pod(index).output)
        assert said[0] == "1", result.pod(index).output[-3000:]
        assert "is still in ./data" in result.pod(index).output
    saved = [path.parent.name for path in (job / "output").glob("pass-*/done")]
    assert sorted(saved) == [f"pass-{number:05d}" for number in range(PASSES)]
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06
    assert (job / "output" / "node_0" / "train.log.1").exists()


def test_a_record_that_is_lost_with_launcher_0_costs_neither_time_nor_passes(tmp_path: Path) -> None:
    """The other launchers waited for an attempt of a higher number than any that came, until START_TIMEOUT."""
    job = prepare(tmp_path)
    shut_gate(job, 6)
    with start(tmp_path, START_TIMEOUT="600") as cluster:
        cluster.wait_for_output(r"Pass=3 ", deadline=60, pod="1")
        (job / "output" / "job.json").unlink()
        cluster.kill("0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137]
    record = json.loads((job / "output" / "job.json").read_text())
    assert record["finished"] and record["attempt"] >= 2 and record["checkpoint"]
    assert not list((job / "output").glob("run-*"))


def test_fewer_pservers_than_pods_train_to_the_end_and_come_back(tmp_path: Path) -> None:
    """The pods without one train, stay until the job is done, and take part in the next attempt like the others."""
    job = prepare(tmp_path)
    shut_gate(job, 6)
    with start(tmp_path, CONF_PADDLE_PSERVER_NUM="1") as cluster:
        cluster.wait_for_output(r"Pass=3 ", deadline=60, pod="2")
        assert ["paddle pserver" in str(cluster.processes(index)) for index in "012"] == [True, False, False]
        cluster.kill("2", process="paddle train")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert [pod.exit_code for pod in result.pods] == [0, 0, 0]
    assert json.loads((job / "output" / "job.json").read_text())["attempt"] >= 2
    assert errors_in_tests(job / "output" / "node_0" / "train.log")[-1][1] < 0.06


def test_attempts_in_vain_end_the_job_with_a_report(tmp_path: Path) -> None:
    """Each pod would else be replaced up to backoffLimit, for something that fails in the same way every time."""
    job = prepare(tmp_path)
    with (job / "digits" / "trainer_config.py").open("a") as script:
        script.write("\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with start(tmp_path, RESTARTS="1") as cluster:
        result = cluster.wait(deadline=60)
    assert result.outcome.reason == "PodFailurePolicy" and result.exit_status == 78, ends(result)
    for pod in result.pods[:3]:
        report = pod.output.partition("giving up: 2 attempts in a row")[2]
        lines = re.findall(r"attempt [12]\..*from the beginning: trainer \d on .*was killed by SIGKILL", report)
        assert len(lines) == 2
    assert "this Job has given up" in (result.cause.output if result.cause else "")


def test_a_deleted_pod_is_replaced_with_its_id_and_its_shard(tmp_path: Path) -> None:
    """S6: in the original a replaced pod's new IP gave all others other ids."""
    job = prepare(tmp_path)
    shut_gate(job, 6)
    with start(tmp_path) as cluster:
        cluster.wait_for_output(r"Pass=3 ", deadline=60, pod="0")
        cluster.terminate("0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    for index in range(3):
        told = re.findall(r"trainer (\d) of 3, attempt", result.pod(index).output)
        assert set(told) == {str(index)}


def test_a_bad_shard_fails_the_job_at_once_and_everyone_names_it(tmp_path: Path) -> None:
    """A retry cannot mend it: exit status 65 of one pod fails the Job, and the others say which trainer and why."""
    job = prepare(tmp_path)
    with (job / "2" / "data" / "train.txt").open("a") as shard:
        shard.write("not,a,digit\n")
    with start(tmp_path) as cluster:
        result = cluster.wait(deadline=60)
    assert result.outcome.reason == "PodFailurePolicy", ends(result)
    assert result.pod(2).exit_code == 65
    assert len(result.pods) == 3, "no pod was replaced"
    assert not list((job / "output").glob("pass-*"))


def test_a_second_job_starts_afresh_and_loses_nothing_of_the_first(tmp_path: Path) -> None:
    """S19: in the original the second run mixed its passes with the first one's and overwrote the logs."""
    job = prepare(tmp_path)
    for _ in range(2):
        with start(tmp_path, NUM_PASSES="2") as cluster:
            result = cluster.wait(deadline=60)
        assert result.outcome.is_complete, ends(result)
    assert "an earlier Job has trained 2 passes, and 2 are wanted; moved to" in result.pod(0).output
    for directory in (job / "output", job / "output" / "run-1"):
        assert len(list(directory.glob("pass-*/done"))) == 2
        assert len(list(directory.glob("node_*/train.log"))) == 3


def test_more_passes_wanted_later_go_on_from_the_last_one(tmp_path: Path) -> None:
    job = prepare(tmp_path)
    for passes in ("2", "3"):
        with start(tmp_path, NUM_PASSES=passes) as cluster:
            result = cluster.wait(deadline=60)
        assert result.outcome.is_complete, ends(result)
    assert "going on from state/pass-00001 of an earlier Job" in result.pod(0).output
    assert "only the parameters" not in result.pod(0).output
    assert (job / "output" / "pass-00002" / "done").exists() and not (job / "output" / "run-1").exists()


def test_a_job_of_many_pods_loses_trainer_0_and_another(tmp_path: Path) -> None:
    """Only trainer 0 lists all pods; the others, and those that replace some, take the set that its record names."""
    job = prepare(tmp_path / "volume")
    shut_gate(job, 4)
    with start(tmp_path / "volume", make_launcher(tmp_path, FEW=1)) as cluster:
        cluster.wait_for_output(r"Pass=2 ", deadline=60, pod="1")
        cluster.kill("1")
        cluster.wait_for_output(r"attempt 2\..*", deadline=60, pod="2")
        shut_gate(job, 8)
        cluster.wait_for_output(r"Pass=[67] ", deadline=60, pod="2")
        cluster.kill("0")
        open_gate(job)
        result = cluster.wait(deadline=100)
    assert result.outcome.is_complete, ends(result)
    assert sorted(pod.exit_code for pod in result.pods) == [0, 0, 0, 137, 137]
    record = json.loads((job / "output" / "job.json").read_text())
    assert record["finished"] and record["attempt"] >= 3 and len(record["pods"]) == 3
    assert "trainer 2 of 3, attempt 3." in result.pod(2).output
    assert "is still in ./data" in result.pod(2).output

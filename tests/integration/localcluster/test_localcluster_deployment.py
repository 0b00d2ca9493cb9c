"""Pods that are kept: started again, scaled, deleted, lost, and that nothing outlives them."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

from paddle_cluster.localcluster.deployment import DeployedPod, Deployment, PodTemplate
from paddle_cluster.localcluster.errors import HostError, OptionError

DEADLINE = 20.0
STAYS = 'trap "exit 0" TERM; echo up $POD_NAME $POD_UID $POD_IP; while :; do sleep 0.05; done'
Keep = Callable[..., Deployment]


def is_up(pod: DeployedPod) -> bool:
    """Whether its program has said so."""
    return pod.log.is_file() and pod.log.read_text().startswith("up")


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    """A maker of Deployments of a bash script, whose programs start again at once."""
    made = []

    def make(script: str, replicas: int = 1, **options: object) -> Deployment:
        template = PodTemplate("pod", ("bash", "-c", script), tmp_path / "cwd", {"OWN": "1"}, restart_s=0.01, grace_s=5)
        made.append(Deployment(template, tmp_path / "logs", replicas, **options))
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()


def test_a_program_that_ends_with_an_error_is_started_again_in_its_pod(keep, tmp_path):
    mark = tmp_path / "mark"
    found = keep(f"[ -e {mark} ] && exit 0; touch {mark}; exit 75")
    assert found.wait(DEADLINE)
    (pod,) = found.pods()
    assert (pod.ends, pod.starts) == ([75, 0], 2)


def test_a_killed_program_keeps_name_uid_and_address(keep):
    found = keep(STAYS, take_address=lambda: "127.9.9.9")
    until(lambda: bool(found.pods()) and is_up(found.pods()[0]))
    (pod,) = found.pods()
    said, first = pod.log.read_text(), pod.log
    found.kill(0)
    until(lambda: pod.starts == 2 and is_up(pod))
    assert pod.log != first
    assert pod.log.read_text() == said == f"up pod-0 {pod.uid} 127.9.9.9\n"
    assert pod.ends == [137]


def test_scaling_deletes_the_newest_pods_and_makes_new_ones(keep):
    found = keep(STAYS, 3)
    until(lambda: len(found.pods()) == 3 and all(map(is_up, found.pods())))
    found.scale(1)
    until(lambda: [pod.is_running for pod in found.pods()] == [True, False, False])
    found.scale(2)
    until(lambda: len(found.pods()) == 4 and is_up(found.pods()[3]))
    assert [pod.ends for pod in found.pods()] == [[], [0], [0], []]
    assert len({pod.uid for pod in found.pods()}) == 4


def test_a_deleted_pod_is_replaced_at_once(keep):
    found = keep('trap "" TERM; echo up; while :; do sleep 0.05; done')
    until(lambda: bool(found.pods()) and is_up(found.pods()[0]))
    found.delete(0)
    until(lambda: len(found.pods()) == 2 and is_up(found.pods()[1]))
    pod = found.pods()[0]
    assert pod.is_running, "the grace of 5 s is not over"
    until(lambda: pod.ends == [137])


def test_a_lost_pod_never_comes_back_and_another_one_takes_its_place(keep):
    found = keep(STAYS)
    until(lambda: bool(found.pods()) and is_up(found.pods()[0]))
    found.lose(0)
    until(lambda: len(found.pods()) == 2 and is_up(found.pods()[1]))
    until(lambda: found.pods()[0].ends == [137])
    assert found.pods()[0].is_over


def test_a_pod_that_is_given_up_goes_on_beside_the_one_that_takes_its_place(keep):
    found = keep(STAYS)
    until(lambda: bool(found.pods()) and is_up(found.pods()[0]))
    found.give_up(0)
    until(lambda: len(found.pods()) == 2 and is_up(found.pods()[1]))
    assert found.pods()[0].is_running
    found.kill(0)
    until(lambda: found.pods()[0].is_over)
    assert len(found.pods()) == 2


def test_a_frozen_program_is_thawed_and_does_its_work(keep, tmp_path):
    mark = tmp_path / "mark"
    found = keep(f"echo up; until [ -e {mark} ]; do sleep 0.02; done")
    until(lambda: bool(found.pods()) and is_up(found.pods()[0]))
    assert found.send(0, signal.SIGSTOP)
    mark.touch()
    assert not found.wait(0.1)
    assert found.send(0, signal.SIGCONT)
    assert found.wait(DEADLINE)
    assert not found.send(0, signal.SIGCONT), "nothing runs"


def test_starts_and_ends_are_told(keep):
    heard: queue.Queue[tuple[str, str]] = queue.Queue()
    keep("exit 0", hear=lambda *what: heard.put(what))
    assert [heard.get(timeout=DEADLINE) for _ in range(2)] == [("pod-0", "started"), ("pod-0", "ended with 0")]


def test_a_pod_that_is_not_there_is_named(keep):
    with pytest.raises(OptionError, match="there is no pod pod-7"):
        keep("exit 0").kill(7)


def test_a_directory_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    template = PodTemplate("pod", ("true",), tmp_path / "file" / "cwd")
    with Deployment(template, tmp_path / "logs", 1) as found, pytest.raises(HostError, match="cannot start pod"):
        found.wait(DEADLINE)


def test_nothing_outlives_its_process(tmp_path):
    """The owner is killed without a word: the pods' first processes see that their pipe has ended."""
    owner = f"""
import time
from pathlib import Path
from paddle_cluster.localcluster.deployment import Deployment, PodTemplate
template = PodTemplate("pod", ("bash", "-c", "echo up $$; sleep 1000 & wait"), Path({str(tmp_path)!r}))
deployment = Deployment(template, Path({str(tmp_path / "logs")!r}), 1)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", owner]) as process:
        log = tmp_path / "logs" / "pod-0.0.log"
        until(lambda: log.is_file() and log.read_text().startswith("up "))
        process.kill()
    pid = int(log.read_text().split()[1])
    until(lambda: not Path(f"/proc/{pid}").exists())

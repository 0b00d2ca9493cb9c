"""A pod as processes: output, signals, and that nothing outlives it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

from paddle_cluster.localcluster.addresses import Subnet
from paddle_cluster.localcluster.cluster import Cluster
from paddle_cluster.localcluster.errors import HostError, InUseError
from paddle_cluster.localcluster.job.manifest import EnvVar, JobSpec
from paddle_cluster.localcluster.pods.node import PodProcess
from paddle_cluster.localcluster.pods.plan import PodPlan

DEADLINE = 20.0


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Running:
    """A pod that runs a bash script, its lines and its end."""

    def __init__(self, directory: Path, *argv: str):
        self.lines: list[str] = []
        self.codes: list[int] = []
        self.ended = threading.Event()
        self.log = directory / "pod.log"
        env = {"PATH": os.environ["PATH"]}
        plan = PodPlan((str(directory / "cwd"),), str(directory / "cwd"), argv, env, ())
        self.process = PodProcess(plan, self.log, self.lines.append, self._end)

    def _end(self, code: int) -> None:
        self.codes.append(code)
        self.ended.set()

    def wait(self) -> int:
        assert self.ended.wait(DEADLINE)
        return self.codes[0]

    def wait_for_line(self, start: str) -> str:
        until(lambda: any(line.startswith(start) for line in self.lines))
        return next(line for line in self.lines if line.startswith(start))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*argv: str) -> Running:
        started.append(Running(tmp_path, *argv))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        assert each.process.join(DEADLINE)


def bash(text: str) -> tuple[str, str, str]:
    return ("bash", "-c", text)


def test_all_output_is_in_the_log_and_every_line_is_heard(run):
    pod = run(*bash("echo one; echo two >&2; printf three"))
    assert pod.wait() == 0
    assert pod.log.read_text() == "one\ntwo\nthree"
    assert pod.lines == ["one", "two", "three"]


def test_a_log_that_cannot_be_written_costs_the_log_and_not_the_pod(run, tmp_path):
    (tmp_path / "pod.log").symlink_to("/dev/full")
    pod = run(*bash("for i in 1 2 3; do echo line $i; done"))
    assert pod.wait() == 0
    assert pod.lines[0] == "localcluster: cannot write this pod's log: No space left on device"
    assert pod.lines[1:] == ["line 1", "line 2", "line 3"]


@pytest.mark.parametrize("code", [0, 1, 78, 143])
def test_the_exit_code_is_the_programs(run, code: int):
    assert run(*bash(f"exit {code}")).wait() == code


def test_a_program_killed_by_a_signal_ends_with_128_and_its_number(run):
    assert run(*bash("kill -SEGV $$")).wait() == 139


def test_a_program_that_cannot_be_started_says_so(run):
    pod = run("no-such-program")
    assert pod.wait() == 128
    assert pod.lines == ["localcluster: cannot start 'no-such-program': No such file or directory"]


def test_terminate_reaches_the_first_program_only(run):
    pod = run(*bash("trap 'echo stopping; kill $child; exit 143' TERM; sleep 1000 & child=$!; echo ready; wait"))
    pod.wait_for_line("ready")
    pod.process.terminate()
    assert pod.wait() == 143
    assert pod.lines == ["ready", "stopping"]


def test_kill_takes_everything_also_other_sessions(run):
    pod = run(*bash("setsid bash -c 'echo pid=$$; exec sleep 1000' & echo pid=$$; wait"))
    until(lambda: len(pod.lines) == 2)
    processes = [int(line.partition("=")[2]) for line in pod.lines]
    pod.process.kill()
    assert pod.wait() == 137
    assert not any(is_alive(process) for process in processes)


def test_what_a_program_leaves_behind_ends_with_it(run):
    """As in a container: process 1 ends, everything ends."""
    pod = run(*bash("setsid bash -c 'echo pid=$$; exec sleep 1000' & while [ ! -e go ]; do sleep 0.01; done"))
    process = int(pod.wait_for_line("pid=").partition("=")[2])
    (pod.log.parent / "cwd" / "go").touch()
    assert pod.wait() == 0
    assert not is_alive(process)


def test_a_stopped_program_can_be_killed(run):
    pod = run(*bash("echo ready; kill -STOP $$"))
    pod.wait_for_line("ready")
    pod.process.kill()
    assert pod.wait() == 137


def test_its_processes_are_listed_with_their_command_lines(run):
    pod = run(*bash("sleep 1000 & echo ready; wait"))
    pod.wait_for_line("ready")
    until(lambda: any(line == "sleep 1000" for _, line in pod.process.processes()))
    assert pod.process.processes()[0][1].startswith("bash -c")


PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from paddle_cluster.localcluster.pods.node import PodProcess
from paddle_cluster.localcluster.pods.plan import PodPlan
here = sys.argv[1]
script = "trap '' TERM; setsid bash -c 'echo pid=$$; exec sleep 1000' & echo pid=$$; wait"
plan = PodPlan((here,), here, ("bash", "-c", script), {"PATH": "/usr/bin:/bin"}, ())
PodProcess(plan, Path(here, "log"), lambda line: print(line, flush=True), lambda code: None).join()
"""


def test_no_orphan_survives_when_localcluster_is_killed(tmp_path: Path):
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), str(root)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        processes = [int(parent.stdout.readline().partition("=")[2]) for _ in range(2)]
        parent.send_signal(signal.SIGKILL)
        until(lambda: not any(is_alive(process) for process in processes))
    finally:
        parent.kill()
        parent.communicate()


def test_two_clusters_hold_two_networks():
    first, second = Subnet(), Subnet()
    try:
        assert first.prefix != second.prefix
        assert first.take(()) == f"{first.prefix}.2"
        assert second.take({f"{second.prefix}.2"}) == f"{second.prefix}.3"
    finally:
        first.close()
        second.close()


def test_a_cluster_takes_its_addresses_from_the_networks_it_is_given():
    chosen = ("127.201.7", "127.201.8")
    first, second = Subnet(chosen), Subnet(chosen)
    try:
        assert (first.prefix, second.prefix) == chosen
        with pytest.raises(HostError, match=r"127\.201\.7\.0/24"):
            Subnet(chosen)
    finally:
        first.close()
        second.close()


def test_two_clusters_do_not_run_one_job_in_one_directory(job: JobSpec, script: Callable[[str], Path], tmp_path: Path):
    """The second one counted an attempt in the records of the first, and failed because its checkpoint was gone."""
    variables = (*job.container.env, EnvVar("JOB_NAME", "mine"))
    job = dataclasses.replace(job, container=dataclasses.replace(job.container, env=variables))
    entrypoint = script("true")
    (tmp_path / "volume").mkdir()
    (tmp_path / "link").symlink_to("volume")
    with contextlib.closing(Cluster(job, entrypoint=entrypoint, volumes={"mfs": tmp_path / "volume"})):
        with pytest.raises(InUseError, match=f"another localcluster runs the Job j with {tmp_path}/volume/mine; wait"):
            Cluster(job, entrypoint=entrypoint, volumes={"mfs": tmp_path / "link"})
        for other, env in ((dataclasses.replace(job, name="k"), {}), (job, {"JOB_NAME": "yours"})):
            Cluster(other, entrypoint=entrypoint, volumes={"mfs": tmp_path / "volume"}, env=env).close()
    Cluster(job, entrypoint=entrypoint, volumes={"mfs": tmp_path / "volume"}).close()


def test_addresses_are_used_again_only_after_all_others():
    subnet = Subnet()
    try:
        taken = [subnet.take(()) for _ in range(254)]
        assert len(set(taken)) == 253
        assert taken[253] == taken[0]
    finally:
        subnet.close()

"""A job that trains the digits long enough for faults, the faults from outside, and the checks of its results."""

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import requests
from kubernetes_cluster import HERE, Namespace, copy_volume, give, run
from pod_watch import PodWatch

JOB = "paddle-cluster-job"
INDEX = "batch.kubernetes.io/job-completion-index"
# It shuffles and has momentum, a schedule and dropout; a continued job that loses the state of one has other bits.
CONFIG = HERE.parent / "chaos/chaos_config.py"
PROVIDER = HERE / "faults/paced_digits.py"
GATE = "gate"  # file in the job's directory, which holds back the last pass (paced_digits.py)
BATCHES = 120  # batches of every trainer in every pass; there are 3 shards, and a batch has 4 samples
REFERENCE_PASSES = int(os.environ.get("REFERENCE_PASSES", "10"))
FLAGS = (
    f"--config={CONFIG.name}", f"--config_args=provider={PROVIDER.stem}", "--log_period=10",
    "--checkpoint_period_by_batches=40",
)  # fmt: skip
PROGRAMS = {"trainer": "paddle train ", "pserver": "paddle pserver --port", "launcher": "start_paddle.py"}
BATCH_LINE = re.compile(r" Batch=(\d+) samples=")
PASS_LINE = re.compile(r" Pass=(\d+) Batch=")
RESUMED_LINE = re.compile(r"going on \w+ pass (\d+), of which (\d+) batches are done")
START_PASS = re.compile(r"--start_pass=(\d+)")


class Position(NamedTuple):
    """The progress in the log of trainer 0: the attempt, the number of the pass (from 0), and its batches so far."""

    attempt: int
    number: int
    batch: int


def training(passes: int, *flags: str) -> dict[str, Any]:
    """Return the operation of a JSON patch that sets the number of passes and further flags of `paddle train`."""
    arguments = [*FLAGS, f"--num_passes={passes}", *flags]
    return {"op": "add", "path": "/spec/template/spec/containers/0/args", "value": arguments}


def variable(name: str, value: str) -> dict[str, Any]:
    """Return the operation of a JSON patch that sets a variable of the launcher; it overrides an earlier value."""
    return {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": name, "value": value}}


class LongJob:
    """The Job that users get, in its own namespace, and a watch on its pods.

    overlay: directory of its kustomization. passes: number of passes that it trains; a pass has 120 batches and takes
    at least 3 seconds. reference: output of the undisturbed run; None for that run itself.

    The last pass does not begin before let_end() or wait_for_success(), so that no job is faster than its fault.
    """

    def __init__(
        self, space: Namespace, overlay: Path, passes: int, reference: Path | None, watch: PodWatch, name: str = JOB
    ):
        self.space, self.overlay, self.passes, self.reference, self.watch = space, overlay, passes, reference, watch
        self.name = name
        self.tree = space.volume / name
        self.output = self.tree / "output"

    # ----- commands and faults -----

    def create(self) -> None:
        """Create only the training Job with kubectl; its rights and its volume exist already."""
        self.space.kubectl("create", "-k", self.overlay, "-l", "app.kubernetes.io/component=training")

    def let_end(self) -> None:
        """Let the last pass begin; call it when the fault has come."""
        (self.tree / GATE).unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete the Job with kubectl as a user does, and wait until the Job and its pods are gone."""
        self.space.kubectl("delete", "job", self.name, "--timeout=120s")
        self.wait("end of all pods", lambda: not self.watch.pods())

    def kill(self, index: int, program: str, signum: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the trainer, pserver or launcher in a pod; return its program's pid on this machine."""
        found = [pid for pid, line in self.processes(index).items() if PROGRAMS[program] in line]
        assert len(found) == 1, f"not one {program} in the pod of index {index}: {self.processes(index)}"
        os.kill(found[0], signum)
        return found[0]

    def execute(self, index: int, *command: str) -> str:
        """Run a program as root inside the pod's container, with the container's files, network and pids."""
        pid = next(pid for pid, line in self.processes(index).items() if PROGRAMS["launcher"] in line)
        return run("nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--", *command)

    # ----- observation -----

    def pod(self, index: int) -> dict[str, Any]:
        """The newest pod of a completion index."""
        return self.pods_of(index)[-1]

    def pods_of(self, index: int) -> list[dict[str, Any]]:
        """Return all pods that an index ever had, the oldest first.

        A pod without an owner does not belong to the job, even if it has the labels of the job.
        """
        own = [pod for pod in self.watch.pods(gone=True) if "ownerReferences" in pod["metadata"]]
        return [pod for pod in own if pod["metadata"]["labels"].get(INDEX) == str(index)]

    def node(self, index: int) -> str:
        """Return the number of the node of an index's pod, in the form of the command `cluster cut`."""
        return self.pod(index)["spec"]["nodeName"].removeprefix("node-")

    def processes(self, index: int) -> dict[int, str]:
        """Return pid on this machine -> command line, for every process in the pod of an index."""
        uid, found = self.pod(index)["metadata"]["uid"], {}
        for path in Path("/proc").glob("[0-9]*/cgroup"):
            with contextlib.suppress(OSError):
                if uid in path.read_text():
                    line = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(path.parent.name)] = line
        return found

    def uid(self) -> str:
        return self.space.job(self.name)["metadata"]["uid"]

    def failed(self) -> int:
        """Return the number of failures that the Job has counted against its backoffLimit."""
        return int(self.space.job(self.name)["status"].get("failed", 0))

    def log(self, index: int) -> str:
        """Return the output of all pods of an index, the oldest first."""
        return "\n".join(self.watch.log(pod) for pod in self.pods_of(index))

    def logs(self) -> str:
        """Return the output of all pods, also of deleted ones."""
        return "\n".join(self.watch.log(pod) for pod in self.watch.pods(gone=True))

    def attempt(self) -> int:
        """Return the number of the newest attempt, or 0 before the first attempt."""
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads((self.output / "job.json").read_text())["attempt"])
        return 0

    def position(self) -> Position | None:
        """Return the progress of the newest attempt, or None before its first line about a batch."""
        attempt = self.attempt()
        try:
            content = (self.output / "node_0/train.log").read_text(errors="replace")
        except OSError:
            return None
        number = batch = seen = 0
        if match := START_PASS.search(content):
            number = int(match[1])
        for line in content.splitlines():
            if match := RESUMED_LINE.search(line):
                number, batch = int(match[1]), int(match[2])
            elif match := PASS_LINE.search(line):
                number, batch = int(match[1]) + 1, 0
            elif match := BATCH_LINE.search(line):
                batch, seen = int(match[1]), 1
        return Position(attempt, number, batch) if seen and attempt == self.attempt() else None

    # ----- waiting -----

    def wait(self, what: str, condition: Callable[[], Any], *, seconds: float = 120) -> Any:
        """Poll until the condition holds, and return its value.

        The wait fails if training does not advance for `seconds`; the message then has the pods and their logs. While
        the API server does not answer, the condition does not hold.
        """
        position, end = self.position(), time.monotonic() + seconds
        while True:
            with contextlib.suppress(requests.ConnectionError, requests.Timeout):
                if value := condition():
                    return value
            if position != (position := self.position()):
                end = time.monotonic() + seconds
            if time.monotonic() > end:
                said = "\n".join(self.watch.log(pod)[-3000:] for pod in self.watch.pods(gone=True))
                raise AssertionError(f"no {what} after {seconds} s\n{self.space.describe(self.name)}\n{said}")
            time.sleep(0.2)

    def wait_for_batch(self, number: int, batch: int, *, attempt: int = 0, seconds: float = 120) -> Position:
        """Wait until a batch of a pass is trained, in the attempt of this number or a later one."""

        def came() -> Position | None:
            here = self.position()
            return here if here and here.attempt >= attempt and here[1:] >= (number, batch) else None

        return self.wait(f"batch {batch} of pass {number}", came, seconds=seconds)

    def wait_for_next_attempt(self, after: int, *, seconds: float = 120) -> Position:
        """Wait for the first batches of an attempt later than attempt `after`."""
        return self.wait_for_batch(0, 0, attempt=after + 1, seconds=seconds)

    def wait_for_log(self, index: int, pattern: str, *, seconds: float = 120) -> re.Match[str]:
        """Wait for a line of a pod of this index, and return the match of `pattern`."""
        search = re.compile(pattern, re.MULTILINE).search
        return self.wait(f"log line {pattern!r}", lambda: search(self.log(index)), seconds=seconds)

    def wait_for_success(self, *, seconds: float = 180) -> None:
        """Let the Job end and wait until it is Complete; fail if training does not advance for `seconds`."""
        self.let_end()
        conditions: dict[str, Any] = self.wait(
            "end of the Job",
            lambda: (found := self.space.conditions(self.name)) and {"Complete", "Failed"} & found.keys() and found,
            seconds=seconds,
        )
        assert "Complete" in conditions, f"{conditions}\n{self.space.describe(self.name)}\n{self.logs()[-6000:]}"

    # ----- checks -----

    def check_end(self, *, lost: tuple[int, ...] = ()) -> None:
        """Wait for the success of the Job, and check its pods and the bits of its passes."""
        self.wait_for_success()
        self.check_pods(lost=lost)
        self.check_bits()

    def check_bits(self) -> None:
        """Check that the last pass was saved, and that all passes equal those of the undisturbed run, byte by byte."""
        assert self.reference, "the reference is not compared with itself"
        assert (self.output / f"pass-{self.passes - 1:05d}/done").is_file()
        for number in range(min(self.passes, REFERENCE_PASSES)):
            name = f"pass-{number:05d}"
            ours, theirs = read_files(self.output / name), read_files(self.reference / name)
            assert "done" in theirs, f"the undisturbed run has no {name}"
            wrong = sorted(file for file in ours.keys() | theirs.keys() if ours.get(file) != theirs.get(file))
            assert not wrong, f"{name} differs from the undisturbed run's: {', '.join(wrong)}\n{self.logs()[-6000:]}"

    def check_pods(self, *, lost: tuple[int, ...] = ()) -> None:
        """Check that each index has had one pod, and one more for each time that `lost` names the index."""
        had = {index: len(self.pods_of(index)) for index in range(3)}
        expected = {index: 1 + lost.count(index) for index in range(3)}
        assert had == expected, f"pods by index {had}, expected {expected}\n{self.space.describe(self.name)}"


def read_files(directory: Path) -> dict[str, bytes]:
    """Return name -> content of the files of a directory; empty if the directory does not exist."""
    return {path.name: path.read_bytes() for path in directory.glob("*") if path.is_file()}


def terminated(pod: dict[str, Any]) -> dict[str, Any]:
    """Return how the container of a pod ended (exitCode, reason, finishedAt); empty while it runs."""
    statuses = pod["status"].get("containerStatuses", [])
    return statuses[0]["state"].get("terminated", {}) if statuses else {}


def fill_volume(shards: Path, volume: Path, passes: int, edit: Callable[[Path], None] = lambda tree: None) -> None:
    """Fill a volume with the digits of the data job and the config of this test, and call `edit(job's tree)`."""
    copy_volume(shards, volume)
    for file in (CONFIG, PROVIDER):
        shutil.copy(file, volume / JOB / "digits")
    (volume / JOB / GATE).write_text(str(passes - 1))
    edit(volume / JOB)
    give(volume)


Runner = Callable[..., contextlib.AbstractContextManager[LongJob]]
StartJob = Callable[..., LongJob]

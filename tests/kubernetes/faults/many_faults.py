"""Twenty faults in one job, from a seed: which, to whom, at which batch; and doing them."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kubernetes_cluster import HERE
from long_job import BATCHES, PROGRAMS, LongJob, Position

COUNT, PODS = 20, 3
POD_ENDERS = ("delete", "force-delete", "kill-launcher")
OTHERS = ("kill-trainer", "kill-pserver", "kill-both", "freeze-trainer", "cut-node", "api-and-trainer")
ENDING_PODS = 4  # the back-off of a Job doubles with every pod that it loses, to ten minutes
SPACING = 48  # batches between two faults: all of them before the undisturbed run's last pass, or not long after
# Many more than the faults take: training goes on while the moment of a fault is looked for, and a kubelet that had
# lost the API server may hear of a deleted pod a minute and a half late, by the back-off of its watch.
PASSES = 40
LINES = 10  # batches between two lines of the log


@dataclass(frozen=True)
class Fault:
    """One fault. batch: of the whole run, from 0, when it is done or soon after. seconds: that a cut or stop lasts."""

    number: int
    kind: str
    pod: int
    batch: int
    seconds: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.kind in ("freeze-trainer", "cut-node", "api-and-trainer") else ""
        return f"fault {self.number}: {self.kind} of pod {self.pod}{lasts}, due at batch {self.batch}"


def make_plan(seed: int) -> list[Fault]:
    """Every kind that ends no pod comes at least twice; pods and moments are as the seed has them."""
    rng = random.Random(seed)
    kinds = [rng.choice(POD_ENDERS) for _ in range(ENDING_PODS)]
    kinds += (OTHERS * COUNT)[: COUNT - ENDING_PODS]
    rng.shuffle(kinds)
    return [
        Fault(number, kind, rng.randrange(PODS), SPACING * number + rng.randrange(SPACING // 2), rng.uniform(2.0, 20.0))
        for number, kind in enumerate(kinds, 1)
    ]


def strike(job: LongJob, fault: Fault) -> None:
    """Do a fault to its end, and wait until the job trains again."""
    before = job.attempt()
    actions = {
        "delete": lambda: _delete(job, fault.pod),
        "force-delete": lambda: _delete(job, fault.pod, "--force", "--grace-period=0"),
        "kill-launcher": lambda: _signal(job, fault.pod, "launcher"),
        "kill-trainer": lambda: _signal(job, fault.pod, "trainer"),
        "kill-pserver": lambda: _signal(job, fault.pod, "pserver"),
        "kill-both": lambda: _signal(job, fault.pod, "trainer", "pserver"),
        "freeze-trainer": lambda: _freeze(job, fault.pod, fault.seconds),
        "cut-node": lambda: _away(job, fault.seconds, ("cut", job.node(fault.pod)), ("join", job.node(fault.pod))),
        # training alone would not notice; who has lost a program needs the API server to meet again
        "api-and-trainer": lambda: _away(
            job, fault.seconds, ("stop-api",), ("start-api",), lambda: _signal(job, fault.pod, "trainer")
        ),
    }
    actions[fault.kind]()
    if fault.kind in ("freeze-trainer", "cut-node"):
        job.wait("training after the fault", _moves(job), seconds=300)
    else:
        job.wait_for_next_attempt(before, seconds=300)


def wait_until_due(job: LongJob, fault: Fault) -> Position:
    """Wait for the batch of a fault; returns where training is then."""

    def due() -> Position | None:
        here = job.position()
        return here if here and here.number * BATCHES + here.batch >= fault.batch else None

    return job.wait(f"batch {fault.batch} of the run", due, seconds=300)


def _moves(job: LongJob) -> Callable[[], bool]:
    """Whether training has gone on since now, in this attempt or in a later one.

    An attempt that forms just now has no position yet; training has then gone on from its first one.
    """
    number, start = job.attempt(), job.position()

    def later() -> bool:
        nonlocal start
        here = job.position()
        if here is None:
            return False
        start = start or here
        return here.attempt > number or _batch(here) > _batch(start) + LINES or here.number >= job.passes

    return later


def _batch(position: Position) -> int:
    return position.number * BATCHES + position.batch


def _delete(job: LongJob, pod: int, *options: str) -> None:
    job.space.kubectl("delete", "pod", job.pod(pod)["metadata"]["name"], "--wait=false", *options)


def _find(job: LongJob, pod: int, program: str) -> int:
    """Return the pid of a program of a pod, once it runs."""

    def pids() -> Iterator[int]:
        return (pid for pid, line in job.processes(pod).items() if PROGRAMS[program] in line)

    return int(job.wait(f"{program} in pod {pod}", lambda: next(pids(), 0)))


def _signal(job: LongJob, pod: int, *programs: str) -> None:
    # all found before the first is killed: its launcher ends the others
    for pid in [_find(job, pod, program) for program in programs]:
        os.kill(pid, signal.SIGKILL)


def _freeze(job: LongJob, pod: int, seconds: float) -> None:
    pid = _find(job, pod, "trainer")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    if pid in job.processes(pod):  # its launcher may have ended it meanwhile
        os.kill(pid, signal.SIGCONT)


def _away(
    job: LongJob,
    seconds: float,
    harm: tuple[str, ...],
    cure: tuple[str, ...],
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    script = HERE / "cluster"
    job.space.cluster.run(script, *harm)
    try:
        meanwhile()
        time.sleep(seconds)
    finally:
        job.space.cluster.run(script, *cure)

"""Twenty faults in one job: a seed chooses the kind, the pod and the batch of each fault. Also injects the faults."""

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
ENDING_PODS = 4  # only so many, because the back-off of a Job doubles with every lost pod, up to ten minutes
SPACING = 48  # batches between two faults, so that almost all faults come before the end of the undisturbed run
# Many more passes than the faults take: training continues while the test waits for the moment of a fault. Also, a
# kubelet that had lost the API server may notice a deleted pod 90 seconds late, because its watch backs off.
PASSES = 40
LINES = 10  # batches between two lines of the log


@dataclass(frozen=True)
class Fault:
    """A fault. batch: batch of the whole run (from 0) at which it is due. seconds: length of a cut, freeze or stop."""

    number: int
    kind: str
    pod: int
    batch: int
    seconds: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.kind in ("freeze-trainer", "cut-node", "api-and-trainer") else ""
        return f"fault {self.number}: {self.kind} of pod {self.pod}{lasts}, due at batch {self.batch}"


def make_plan(seed: int) -> list[Fault]:
    """Return the faults of a seed; each kind of fault that ends no pod occurs at least twice."""
    rng = random.Random(seed)
    kinds = [rng.choice(POD_ENDERS) for _ in range(ENDING_PODS)]
    kinds += (OTHERS * COUNT)[: COUNT - ENDING_PODS]
    rng.shuffle(kinds)
    return [
        Fault(number, kind, rng.randrange(PODS), SPACING * number + rng.randrange(SPACING // 2), rng.uniform(2.0, 20.0))
        for number, kind in enumerate(kinds, 1)
    ]


def strike(job: LongJob, fault: Fault) -> None:
    """Inject a fault, repair it if necessary, and wait until the job trains again."""
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
        # Training alone does not need the API server. A job whose trainer was killed needs it to form an attempt.
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
    """Wait for the batch of a fault; return the position of training at that time."""

    def due() -> Position | None:
        here = job.position()
        return here if here and here.number * BATCHES + here.batch >= fault.batch else None

    return job.wait(f"batch {fault.batch} of the run", due, seconds=300)


def _moves(job: LongJob) -> Callable[[], bool]:
    """Return a function that says whether training has advanced since this call, in this attempt or a later one.

    If the current attempt has no position yet, the advance is counted from its first position.
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
    """Wait until a program of a pod runs, and return its pid."""

    def pids() -> Iterator[int]:
        return (pid for pid, line in job.processes(pod).items() if PROGRAMS[program] in line)

    return int(job.wait(f"{program} in pod {pod}", lambda: next(pids(), 0)))


def _signal(job: LongJob, pod: int, *programs: str) -> None:
    # All pids are found before the first kill, because the launcher then ends the other programs.
    for pid in [_find(job, pod, program) for program in programs]:
        os.kill(pid, signal.SIGKILL)


def _freeze(job: LongJob, pod: int, seconds: float) -> None:
    pid = _find(job, pod, "trainer")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    if pid in job.processes(pod):  # the launcher may have ended the trainer meanwhile
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

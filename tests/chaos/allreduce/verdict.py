"""Checks of an all-reduce job that has ended: pure functions of its files; each returns a list of faults."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from chaos.allreduce.allreduce_model import GAMMA, MOMENTUM, replay
from chaos.allreduce.ledger import Commit, WorkerRecord
from chaos.tasks.verdict import WORST
from paddle_cluster.localcluster.deployment import DeployedPod

TOLERANCE = 1e-10  # maximum difference of weights: sums over other divisions of a batch are rounded differently
KILLED, STOPPED, LOST = 137, 143, 75
IS_DONE = re.compile(r" is the last one: \d+ of \d+ workers have succeeded")
BLAMED = re.compile(r"\] (\S+)\[\d+\] (?:ended with status|was ended by signal) \d+, as the first of")
SHOWN = re.compile(r"^\[\d+\]<std(?:out|err)>:")
# errors with which a worker may end: its driver is gone, or its generation cannot form
EXPECTED = ("PeerUnreachableError", "HorovodInternalError")
RAISED = re.compile(r"^\[\d+\]<stderr>:(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt))\b", re.M)


def is_late(log: str, struck: Collection[str]) -> bool:
    """Return whether a driver ended because a harmed worker failed after other workers had finished the work.

    Args: struck: hosts whose workers were harmed.
    """
    blamed = BLAMED.search(log)
    return bool(IS_DONE.search(log)) and blamed is not None and blamed[1] in struck


def check_ends(
    pods: Mapping[str, Iterable[DeployedPod]], logs: Mapping[str, str], struck: Collection[str]
) -> list[str]:
    """Name the programs that ended neither with 0 nor by a signal; a driver may also end with 75.

    75 is right if the driver has lost its lease, or if a worker was harmed after other workers had finished the work.
    """
    faults = []
    for its in pods.values():
        for pod in its:
            for start, end in enumerate(pod.ends):
                name = f"{pod.name}.{start}.log"
                log = logs.get(name, "")
                is_right = end == LOST and ("lost its claim" in log or is_late(log, struck))
                if end not in (0, KILLED, STOPPED) and not is_right:
                    faults.append(f"{pod.name} ended with {end}: see {name}")
    return faults


def check_logs(logs: Mapping[str, str]) -> list[str]:
    """Name the logs of agents and drivers with a traceback or crash, and the workers with an unexpected error."""
    faults = []
    for name, log in logs.items():
        own = "\n".join(line for line in log.splitlines() if not SHOWN.match(line))
        if found := WORST.search(own):
            faults.append(f"{name} has {found[0]!r}")
        odd = sorted(set(RAISED.findall(log)) - set(EXPECTED))
        faults += [f"a worker ended with {error}: see {name}" for error in odd]
    return faults


def list_committed(workers: Iterable[WorkerRecord]) -> dict[int, Commit]:
    """Return step -> its last commit; together these commits make the final state."""
    steps: dict[int, Commit] = {}
    for worker in workers:
        for commit in worker.commits:
            if commit.step not in steps or commit.generation > steps[commit.step].generation:
                steps[commit.step] = commit
    return steps


def check_agreement(workers: Iterable[WorkerRecord]) -> list[str]:
    """Name the steps for which ranks of the same generation have committed different states."""
    versions: dict[tuple[int, int], set[tuple[object, ...]]] = defaultdict(set)
    batches: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for worker in workers:
        for one in worker.commits:
            versions[one.generation, one.step].add((one.size, one.epoch, one.batch, one.weights))
            batches[one.step].add(one.batch)
    faults = [
        f"step {step} of generation {generation} has {len(some)} versions"
        for (generation, step), some in sorted(versions.items())
        if len(some) > 1
    ]
    return faults + [
        f"step {step} has other samples in another generation" for step, some in batches.items() if len(some) > 1
    ]


def check_samples(steps: Mapping[int, Commit], epochs: int, samples: int, batch: int) -> list[str]:
    """Name the samples of an epoch that are in no committed step, or in more than one."""
    missing = sorted(set(range(1, epochs * samples // batch + 1)) - steps.keys())
    faults = [f"the steps {missing[:10]} were not committed"] if missing else []
    for epoch in range(epochs):
        counts = Counter(sample for one in steps.values() if one.epoch == epoch for sample in one.batch)
        lost = sorted(set(range(samples)) - counts.keys())
        double = sorted(sample for sample, count in counts.items() if count > 1)
        faults += [f"epoch {epoch}: the samples {lost[:10]} were lost"] if lost else []
        faults += [f"epoch {epoch}: the samples {double[:10]} count more than once"] if double else []
    return faults


def check_generations(workers: Sequence[WorkerRecord]) -> list[str]:
    """Name the generations that did not begin with the state of their rank 0, or that lost the state of the job."""
    firsts: dict[int, tuple[int, WorkerRecord]] = {}  # generation -> (first step, rank 0)
    for worker in workers:
        for before, one in zip([None, *worker.commits], worker.commits, strict=False):
            if before is not None and before.generation == one.generation and one.step != before.step + 1:
                return [f"{worker.name} committed step {one.step} after {before.step} of generation {one.generation}"]
            if one.rank == 0 and one.step < firsts.get(one.generation, (1 << 30, worker))[0]:
                firsts[one.generation] = one.step, worker
    faults = []
    newest = 0
    for generation, (step, worker) in sorted(firsts.items()):
        kept = max((one.step for one in worker.commits if one.generation < generation), default=0)
        if step != kept + 1 and kept:
            faults.append(f"generation {generation} began with step {step}, and its rank 0 had committed {kept}")
        if not kept and step != newest + 1 and newest:
            faults.append(f"generation {generation} began with step {step} of a new worker: the state was lost")
        if not kept and newest:
            faults.append(f"rank 0 of generation {generation}, {worker.name}, is a new worker: the state was lost")
        newest = max(newest, max(one.step for one in worker.commits if one.generation == generation))
    return faults


def check_model(
    workers: Iterable[WorkerRecord], steps: Mapping[int, Commit], samples: int, *, is_torch: bool = False
) -> list[str]:
    """Say whether the ranks ended with different bits, or with a model that does not follow from their steps."""
    ends = [worker.end for worker in workers if worker.end is not None]
    if not ends:
        return ["no worker has come to its end"]
    faults = []
    models = {tuple(end["weights"]) for end in ends}
    if len(models) > 1:
        faults.append(f"{len(ends)} ranks ended with {len(models)} models")
    if any(count != 1 for end in ends for row in end["seen"] for count in row):
        faults.append("the state itself counts a sample twice, or not at all")
    chosen = [steps[step] for step in sorted(steps)]
    how = (MOMENTUM, [0.05 * GAMMA**one.epoch for one in chosen]) if is_torch else ()
    expected = replay([list(one.batch) for one in chosen], samples, *how)
    for model in models:
        distance = float(np.max(np.abs(np.array([float.fromhex(text) for text in model]) - expected)))
        if not distance <= TOLERANCE:
            faults.append(f"the model differs by {distance:.3g} from that of an undisturbed run of the same steps")
    return faults

"""Checks of a task job that has ended: pure functions of its files; each returns a list of faults."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paddle_cluster.localcluster.deployment import DeployedPod

ERROR_TOLERANCE = 0.01  # one percentage point
# exit statuses that a harm to a program or to its peers may cause: killed, stopped, lost peer or lease, no answer
ALLOWED_ENDS = frozenset({137, 143, 75, 69})
ENDLESS = frozenset({"etcd"})  # programs that do not end by themselves
WORST = re.compile(r"^(?:Traceback \(most recent call last\):|.*(?:Segmentation fault|Fatal Python error).*)$", re.M)
SHOWN = 4000  # maximum characters of a traceback in a report
BATCH = re.compile(r"\]  Batch=(\d+) samples=(\d+) ")


def read_account(output: Path) -> dict[str, Any]:
    """Return the content of output/tasks.json; it is empty if there is no file."""
    try:
        return dict(json.loads((output / "tasks.json").read_text()))
    except (OSError, ValueError):
        return {}


def count_lines(data: Path) -> dict[str, int]:
    """Return the number of samples of every file of train.list."""
    names = (data / "train.list").read_text().split()
    return {name: (data.parent / name).read_bytes().count(b"\n") for name in names}


def count_trained(logs: Mapping[str, str]) -> int:
    """Return the number of samples of all batches that trainers have trained, from their logs.

    A trainer logs a line when every server has acknowledged the batch; the line has the samples since the pass began.
    """
    trained = 0
    for name, log in logs.items():
        before = 0
        for batch, samples in BATCH.findall(log) if name.startswith("trainer-") else ():
            trained += int(samples) - (0 if batch == "1" else before)
            before = int(samples)
    return trained


def check_ends(pods: Mapping[str, Iterable[DeployedPod]]) -> list[str]:
    """Name the programs that ended with a status that neither a harm to them nor a harm to their peers explains."""
    faults = []
    for kind, its in pods.items():
        for pod in its:
            allowed = ALLOWED_ENDS | {0}
            faults += [f"{pod.name} ended with {end}: see {pod.log.name}" for end in pod.ends if end not in allowed]
            if kind not in ENDLESS and pod.is_over and not pod.is_leaving and pod.ends[-1:] != [0]:
                faults.append(f"{pod.name} ended with {pod.ends} and was not started again")
    return faults


def check_logs(logs: Mapping[str, str]) -> list[str]:
    """Name the logs that contain a traceback or crash."""
    found = {name: one.start() for name, log in logs.items() if (one := WORST.search(log))}
    return [f"{name} has {logs[name][begin : begin + SHOWN]!r}" for name, begin in found.items()]


def check_account(account: Mapping[str, Any], tasks: int, passes: int, samples: int) -> list[str]:
    """Name the passes in which, by the master's account, not every task was finished exactly once."""
    if account.get("phase") != "done":
        return [f"the account's phase is {account.get('phase')!r}, not 'done'"]
    found = {one["pass"]: one for one in account["passes"]}
    faults = [f"the account has no pass {number}" for number in range(passes) if number not in found]
    for number, one in sorted(found.items()):
        if (one["done"], one["discarded"]) != (tasks, 0):
            faults.append(f"pass {number}: {one['done']} tasks done and {one['discarded']} discarded of {tasks}")
        if one["samples"] != samples:
            faults.append(f"pass {number}: {one['samples']} samples of {samples} were trained by account")
        if one["dispatches"] < one["done"]:
            faults.append(f"pass {number}: {one['dispatches']} dispatches of {one['done']} tasks that are done")
    return faults


def check_samples(account: Mapping[str, Any], trained: int, samples: int, most: int) -> list[str]:
    """Say whether the number of trained samples differs from that of the data set in every pass plus repeated samples.

    If the trainer of a task was killed, frozen or cut off, it may have trained any part of the task without a report.

    Args: trained: number of trained samples, from the trainers' logs.  samples: number in the data set.  most: number
    in the largest task.
    """
    passes = account.get("passes", [])
    least = sum(samples + one["repeated"] for one in passes)
    unreported = sum(one["unreported"] for one in passes)
    if least <= trained <= least + unreported * most:
        return []
    known = f"{least} and what {unreported} dispatches of at most {most} have not reported"
    return [f"trainers have trained {trained} samples; the account says {known}"]


def check_ledger(ledger: str, passes: int, files: int) -> list[str]:
    """Name the files that were not read in every pass. ledger: a line for each complete reading of a file."""
    counts = Counter(ledger.split())
    faults = [f"{name} was read {count} times in {passes} passes" for name, count in counts.items() if count < passes]
    return faults + ([f"{len(counts)} of {files} files were read"] if len(counts) != files else [])


def check_error(error: float | None, reference: float | None) -> list[str]:
    """Say whether the test error is more than a percentage point above that of the static job."""
    if error is None:
        return ["the model of the last pass cannot be tested: see test.log"]
    if reference is not None and error > reference + ERROR_TOLERANCE:
        return [f"the test error is {error:.2%}, that of the static job {reference:.2%}"]
    return []

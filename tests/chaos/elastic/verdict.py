"""What must be true of an elastic job when it has ended: pure functions over its files; each returns complaints."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from localcluster.deployment import DeployedPod

ERROR_TOLERANCE = 0.01  # one percentage point
# statuses of programs that were harmed, or whose peers were: killed, told to stop, a peer or a lease is lost, no answer
ALLOWED_ENDS = frozenset({137, 143, 75, 69})
ENDLESS = frozenset({"etcd"})  # programs that serve for ever
WORST = re.compile(r"^(?:Traceback \(most recent call last\):|.*(?:Segmentation fault|Fatal Python error).*)$", re.M)
FINISHED = re.compile(r"\btask (\d+) of pass (\d+) is finished: (\d+) samples")
GIVEN_BACK = re.compile(r"\btask (\d+) of pass (\d+) is given back after (\d+) samples")
REFUSED = re.compile(r"\btask (\d+) of pass (\d+) was refused after (\d+) samples")


def read_account(output: Path) -> dict[str, Any]:
    """Return output/tasks.json, empty where there is none."""
    try:
        return dict(json.loads((output / "tasks.json").read_text()))
    except (OSError, ValueError):
        return {}


def count_lines(data: Path) -> dict[str, int]:
    """Return the number of samples of every file of train.list."""
    names = (data / "train.list").read_text().split()
    return {name: (data.parent / name).read_bytes().count(b"\n") for name in names}


def count_trained(logs: Mapping[str, str]) -> int:
    """Return the samples that trainers say they have trained, whatever became of their tasks."""
    text = "\n".join(log for name, log in logs.items() if name.startswith("trainer-"))
    return sum(int(found[2]) for kind in (FINISHED, GIVEN_BACK, REFUSED) for found in kind.findall(text))


def check_ends(pods: Mapping[str, Iterable[DeployedPod]]) -> list[str]:
    """Say which programs have ended in another way than is right for one that was harmed, or whose peers were."""
    faults = []
    for kind, its in pods.items():
        for pod in its:
            allowed = ALLOWED_ENDS | {0}
            faults += [f"{pod.name} ended with {end}: see {pod.log.name}" for end in pod.ends if end not in allowed]
            if kind not in ENDLESS and pod.is_over and not pod.is_leaving and pod.ends[-1:] != [0]:
                faults.append(f"{pod.name} ended with {pod.ends} and was not started again")
    return faults


def check_logs(logs: Mapping[str, str]) -> list[str]:
    """Say which logs have the end of an interpreter in them."""
    return [f"{name} has {found[0]!r}" for name, log in logs.items() if (found := WORST.search(log))]


def check_account(account: Mapping[str, Any], tasks: int, passes: int, samples: int) -> list[str]:
    """Say where the master's account is not that every task of every pass was finished once."""
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


def check_samples(account: Mapping[str, Any], trained: int, samples: int) -> list[str]:
    """Say whether trainers have trained other samples than the data set in every pass, and what is named as repeated.

    A dispatch that ended without a word, because its trainer was killed, may have been trained in part. Its samples
    stand in no line of a log.
    """
    passes = account.get("passes", [])
    expected = samples * len(passes) + sum(one["repeated"] for one in passes)
    return [] if trained == expected else [f"trainers have trained {trained} samples; the account says {expected}"]


def check_ledger(ledger: str, passes: int, files: int) -> list[str]:
    """Say which files were not read in every pass. ledger: a line for each time that a file was read to its end."""
    counts = Counter(ledger.split())
    faults = [f"{name} was read {count} times in {passes} passes" for name, count in counts.items() if count < passes]
    return faults + ([f"{len(counts)} of {files} files were read"] if len(counts) != files else [])


def check_error(error: float | None, reference: float | None) -> list[str]:
    """Say whether the model is worse than the static job's by more than a percentage point."""
    if error is None:
        return ["the model of the last pass cannot be tested: see test.log"]
    if reference is not None and error > reference + ERROR_TOLERANCE:
        return [f"the test error is {error:.2%}, that of the static job {reference:.2%}"]
    return []

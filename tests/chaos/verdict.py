"""Checks of a job that has ended: pure functions of its files and results; each returns a list of faults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from chaos.plan import PASSES, Trial

MARKER = "done"
COST_TOLERANCE = 0.10  # relative difference of the last test cost, for asynchronous training
TEST_COST = re.compile(r" Test samples=\d+ cost=(\S+) ")
LOST = r"(?:is lost|is leaving|gave up|was lost|ended|does not answer)"


def read_parameters(directory: Path) -> dict[str, bytes]:
    """Return file name -> content of a saved pass."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def pass_directories(output: Path) -> dict[str, dict[str, bytes]]:
    """Return the contents of all pass directories of a job, except a save during a pass, which SIGTERM causes."""
    return {path.name: read_parameters(path) for path in sorted(output.glob("pass-[0-9][0-9][0-9][0-9][0-9]"))}


def last_state(output: Path) -> dict[str, dict[str, bytes]]:
    """Return the complete state after the last pass, as one name with its contents (path -> bytes)."""
    state = output / "state" / f"pass-{PASSES - 1:05d}"
    if not (state / MARKER).exists():
        return {}
    return {f"state/{state.name}": {str(path.relative_to(state)): path.read_bytes() for path in state.rglob("*.bin")}}


def compare_passes(ours: Mapping[str, Mapping[str, bytes]], theirs: Mapping[str, Mapping[str, bytes]]) -> list[str]:
    """Name the passes and parameters that are missing or differ from those of the undisturbed run."""
    faults = []
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs:
            faults.append(f"{name} is only in the {'disturbed' if name in ours else 'undisturbed'} run")
            continue
        files = {*ours[name], *theirs[name]}
        wrong = sorted(file for file in files if ours[name].get(file) != theirs[name].get(file))
        if wrong:
            faults.append(f"{name} differs from the undisturbed run's: {', '.join(wrong)}")
    return faults


def check_whole(passes: Mapping[str, Mapping[str, bytes]], reference: Mapping[str, Mapping[str, bytes]]) -> list[str]:
    """Name the passes that are missing or incomplete, whatever their values are."""
    faults = []
    for name in (f"pass-{number:05d}" for number in range(PASSES)):
        lacking = sorted({*reference[name]} - {*passes.get(name, {})})
        if lacking:
            faults.append(f"{name} lacks {', '.join(lacking)}")
    return faults


def last_test_cost(train_log: Path) -> float | None:
    """Return the cost of the last test that a log reports."""
    found = TEST_COST.findall(train_log.read_text(errors="replace")) if train_log.exists() else []
    return float(found[-1]) if found else None


def compare_costs(ours: float | None, theirs: float) -> list[str]:
    """Say whether the last test cost differs by more than a tenth from that of the undisturbed run."""
    if ours is None:
        return ["there is no test cost in trainer 0's log"]
    if abs(ours - theirs) > COST_TOLERANCE * theirs:
        return [f"last test cost {ours:g}, undisturbed {theirs:g}: more than {COST_TOLERANCE:.0%} away"]
    return []


def check_pods(trial: Trial, names: Sequence[str], failed: Sequence[str], count: int) -> list[str]:
    """Say whether pods other than the harmed pod were lost. names: all pods; failed: the failed pods."""
    allowed = 1 if trial.ends_pod else 0
    if len(names) - count == allowed and len(failed) == allowed:
        return []
    return [f"{len(names)} pods, {len(failed)} failed ({', '.join(failed)}); expected {count + allowed} and {allowed}"]


def named_lost(trial: Trial, addresses: Mapping[int, str]) -> re.Pattern[str]:
    """Return a pattern that some log of another pod must contain about the harmed program."""
    trainer = rf"trainer {trial.pod} at \S+"
    server = rf"pserver {re.escape(addresses[trial.pod])}:\d+"
    # when a program is killed, its launcher also stops the other program of the pod, whose end may be noticed first
    kind = trial.role.partition("-")[0] if trial.harm == "stop" else "pod"
    who = {"trainer": trainer, "pserver": server}.get(kind, f"(?:{trainer}|{server})")
    return re.compile(rf"{who}[^\n]*{LOST}[^\n]*")


def check_named(trial: Trial, addresses: Mapping[int, str], logs: Iterable[Path]) -> list[str]:
    """Say whether no log of another pod names the lost program."""
    pattern = named_lost(trial, addresses)
    if any(pattern.search(log.read_text(errors="replace")) for log in logs):
        return []
    return [f"no log of another pod says who was lost: nothing like {pattern.pattern!r}"]


def complete_states(output: Path) -> list[Path]:
    """Return the state directories that are marked as complete."""
    return sorted(path.parent for path in (output / "state").glob(f"pass-*/{MARKER}"))


def read_job(output: Path) -> dict[str, object]:
    """Return the content of output/job.json; it is empty while there is no file."""
    try:
        return dict(json.loads((output / "job.json").read_text()))
    except (OSError, ValueError):
        return {}


def is_finished(record: Mapping[str, object]) -> bool:
    """Whether a job.json says that every pass is trained; from then on no peer notices the loss of a program."""
    return record.get("finished") is True


def check_named_state(output: Path, record: Mapping[str, object]) -> list[str]:
    """Say whether the checkpoint from which an attempt starts is incomplete."""
    name = str(record.get("checkpoint") or "")
    if name and not (output / "state" / Path(name).name / MARKER).exists():
        return [f"attempt {record.get('attempt')} starts from {name}, which has no marker"]
    return []

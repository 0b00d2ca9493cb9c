"""Checks of a job that has ended: pure functions of its files and results; each returns a list of faults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.plan import PASSES, PODS, Trial

MARKER = "done"
COST_TOLERANCE = 0.10  # relative difference of the last test cost, for asynchronous training
TEST_COST = re.compile(r" Test samples=\d+ cost=(\S+) ")
KILLED = 137  # exit status of a pod whose first program was killed
FIRST_FAILURE = re.compile(r"start_paddle: first failure reported: trainer (\d+) on ")
ATTEMPT_LINE = re.compile(r"start_paddle: trainer (\d+) of \d+, attempt (\d+)\.")
OF_SHARD = re.compile(r"start_paddle: (?:copied \d+ files of )?shard (\d+) (?:to|is still in) \./data")
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


# ----- what the launchers record and say: output/job.json, and the outputs of the pods -----


def harmed_program(trial: Trial) -> tuple[str, str]:
    """Return the program and the signal of the first failure that job.json must contain after a kill."""
    kind = trial.role.partition("-")[0]
    return ("pod", "") if trial.ends_pod else (kind, "SIGKILL")


def first_failure(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first failure of the first attempt of a job.json; it is empty if there is none."""
    attempts = record.get("attempts") or [{}]
    return attempts[0].get("failure") or {}


def check_record(trial: Trial, record: Mapping[str, Any]) -> list[str]:
    """Say whether job.json is not that of a job that has trained everything, and has lost what the trial has harmed.

    Nothing is recorded of a harm that nobody had to notice. If pod 0 is lost together with its launcher, the next
    launcher 0 may know of no failure. After a loss of power no connection closes, so a program that gives up is heard
    before its lost peer is missed.
    """
    faults = []
    if record.get("finished") is not True or record.get("given_up") or record.get("absent"):
        faults.append("job.json does not say that the job has finished with all its pods")
    attempts = record.get("attempts") or []
    if [str(one["name"]).partition(".")[0] for one in attempts] != [str(n + 1) for n in range(len(attempts))]:
        faults.append(f"job.json has the attempts {[one['name'] for one in attempts]}")
    if len(attempts) != record.get("attempt"):
        faults.append(f"job.json has attempt {record.get('attempt')} and a list of {len(attempts)}")
    failure = first_failure(record)
    if trial.harm == "kill" and failure:
        found = failure["trainer_id"], failure["program"], failure["signal"]
        expected = trial.pod, *harmed_program(trial)
        if found != expected:
            faults.append(f"the first failure in job.json is {found}, not {expected}")
    elif trial.harm == "kill" and not trial.ends_pod and len(attempts) > 1:
        faults.append("job.json has no failure of the attempt whose program was killed")
    return faults


def check_origin(trial: Trial, record: Mapping[str, Any]) -> list[str]:
    """Say whether the last attempt trains again what had been saved before the harm."""
    least = {"pass-end": trial.number, "last-batch": PASSES - 1, "mid-pass": trial.number - 1}.get(trial.moment, -1)
    attempts = record.get("attempts") or []
    origin = str(attempts[-1]["origin"]) if attempts else ""
    if len(attempts) < 2 or least < 0 or origin[:10] >= f"pass-{least:05d}":
        return []
    return [f"the last attempt begins from {origin or 'the beginning'}, though pass-{least:05d} had been saved"]


def check_codes(trial: Trial, codes: Sequence[tuple[int | None, int | None]]) -> list[str]:
    """Name the pods that ended with another status than the harm explains. codes: (index, exit status) of all pods."""
    faults = [f"a pod of index {index} ended with {code}" for index, code in codes if code and index != trial.pod]
    own = [code for index, code in codes if index == trial.pod]
    if trial.harm in ("kill", "power") and own != ([KILLED, 0] if trial.ends_pod else [0]):
        faults.append(f"the pods of index {trial.pod} ended with {own}")
    return faults


def check_identities(outputs: Mapping[int, Sequence[str]]) -> list[str]:
    """Name the pods that had another trainer id, or the shard of another. outputs: index -> the outputs of its pods."""
    faults = []
    for index, texts in outputs.items():
        told = {name for text in texts for name, _ in ATTEMPT_LINE.findall(text)}
        shards = {name for text in texts for name in OF_SHARD.findall(text)}
        if told != {str(index)} or shards != {str(index)}:
            faults.append(f"the pods of index {index} were trainers {sorted(told)} with shards {sorted(shards)}")
    return faults


def check_told(trial: Trial, record: Mapping[str, Any], outputs: Mapping[int, Sequence[str]]) -> list[str]:
    """Name the pods that blame a bystander, or blame nobody though they have begun another attempt after a kill.

    The launcher that lost a program itself names that program in another way, and a launcher 0 that was lost knows of
    nothing.
    """
    faults = []
    if trial.harm != "kill":
        return []
    must_tell = bool(first_failure(record)) and record.get("attempt", 0) > 1
    for index, texts in outputs.items():
        named = FIRST_FAILURE.findall("".join(texts))[:1]
        if (named and named != [str(trial.pod)]) or (must_tell and not named and index != trial.pod):
            faults.append(f"pod {index} names {named or 'nobody'}, not trainer {trial.pod}, as the first failure")
    return faults


def check_staged(trial: Trial, outputs: Mapping[int, Sequence[str]]) -> list[str]:
    """Name the pods that have copied their shard again for another attempt, though they had it already."""
    faults = []
    for index, texts in outputs.items():
        attempts = [number for _, number in ATTEMPT_LINE.findall(texts[-1])]
        if trial.moment != "start" and len(attempts) > 1 and f"shard {index} is still in ./data" not in texts[-1]:
            faults.append(f"pod {index} was in the attempts {attempts}, and does not say that its shard is still there")
    return faults


def check_old_logs(trial: Trial, record: Mapping[str, Any], output: Path) -> list[str]:
    """Name the trainers' logs of the first attempt that the next one has not kept."""
    if trial.moment == "start" or record.get("attempt", 0) < 2:
        return []
    lost = [node for node in range(PODS) if not (output / f"node_{node}" / "train.log.1").exists()]
    return [f"node_{node} has no train.log.1" for node in lost]

"""Where an attempt goes on from, and what its record says. All of it is pure: no input and no output."""

from __future__ import annotations

import dataclasses
import math
import re

from launcher.attempts import JobRecord, pass_name

KEPT_ATTEMPTS = 100  # attempts of a Job that job.json lists
LONGEST_PAUSE_S = 60.0  # seconds between two attempts without progress


def position(name: str) -> tuple[int, float]:
    """Returns how far training was when a pass or state directory was saved: the pass, and which save inside it.

    pass-00003 comes after every pass-00003-<k>, since it is the end of that pass; anything else comes first.
    """
    match = re.fullmatch(r"pass-([0-9]{5})(?:-([0-9]{3,}))?", name)
    return (int(match[1]), float(match[2] or math.inf)) if match else (-1, 0.0)


@dataclasses.dataclass(frozen=True)
class Saved:
    """What is complete in the save directory, ascending: numbers of the passes, names of the checkpoints."""

    passes: tuple[int, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """The newest checkpoint, or ""."""
        return self.states[-1] if self.states else ""

    @property
    def following(self) -> int:
        """The pass after the last one that is saved."""
        return self.passes[-1] + 1 if self.passes else 0

    @property
    def newer(self) -> list[str]:
        """Names of the passes that were saved after the newest checkpoint."""
        return [name for name in map(pass_name, self.passes) if position(name) > position(self.state)]

    @property
    def trained(self) -> int:
        """The number of passes that are trained to their end."""
        number, part = position(self.state)
        return max(self.following, number + (part == math.inf))


def is_finished(record: JobRecord | None, saved: Saved, job_uid: str, passes: int) -> bool:
    """Tells whether this Job has trained all its passes. A pod that is replaced afterwards has nothing to do."""
    if record is None or record.job_uid != job_uid:
        return False
    return (record.finished and record.passes >= passes) or saved.following >= passes


@dataclasses.dataclass(frozen=True)
class Decision:
    """What becomes of the output that was found."""

    start_pass: int = 0
    checkpoint: str = ""
    archive: bool = False  # move pass-*, state and node_* to run-<k>/ first
    archive_state: bool = False  # move state only: this layout cannot go on from it
    done: bool = False  # nothing left to train
    message: str = ""

    @property
    def origin(self) -> str:
        """Name of the state or pass directory to go on from; "" from the beginning."""
        return self.checkpoint or (pass_name(self.start_pass - 1) if self.start_pass else "")


def decide_start(record: JobRecord | None, saved: Saved, has_output: bool, wanted: JobRecord, resume: bool) -> Decision:
    """Decides whether to start afresh, to go on, or that all is done.

    Args: has_output: there are pass-*, state or node_* entries. wanted: Job, passes, config and layout of now.
    """
    passes = wanted.passes
    same_job = record is not None and record.job_uid == wanted.job_uid
    if not has_output:
        return Decision()
    if record is None:
        return Decision(archive=True, message="output/ has no job.json, so it is not known whose it is")
    if same_job and saved.following >= passes:
        return Decision(saved.following, done=True, message=f"all {passes} passes are saved already")
    if not same_job and not resume:
        return Decision(archive=True, message="RESUME=0: output of an earlier Job")
    if not same_job and record.config != wanted.config:
        return Decision(archive=True, message=f"output of an earlier Job with another config, {record.config!r}")
    # with --saving_period=2 the last pass of a finished Job may not be saved
    trained = max(saved.trained, record.passes if record.finished else 0)
    if not same_job and passes <= trained:
        return Decision(archive=True, message=f"an earlier Job has trained {trained} passes, and {passes} are wanted")
    return choose_origin(record, saved, wanted)


def choose_origin(record: JobRecord, saved: Saved, wanted: JobRecord) -> Decision:
    """Decides from which checkpoint or pass to go on.

    A checkpoint holds all, so that with the same numbers of trainers and pservers the bits are those of an undisturbed
    run. With other numbers trainer 0 divides its state anew, and the pass that it lies in begins again; the ports of a
    pserver must be as many as before. A pass directory holds the parameters. With pservers a checkpoint follows each
    saved pass at once. If only the last pass lacks one, the attempt ended between the two, and that pass is trained
    again.
    """
    same_job = record.job_uid == wanted.job_uid
    whose = "an earlier attempt" if same_job else "an earlier Job"
    is_foreign = bool(saved.state) and record.layout != wanted.layout
    again = f": {saved.newer[0]} has no checkpoint and is trained again" if saved.newer else ""
    if saved.state and (not is_foreign or may_divide(record, wanted)) and len(saved.newer) <= 1:
        divided = describe_division(record, saved, wanted) if is_foreign else ""
        message = f"going on from state/{saved.state} of {whose}{again}{divided}"
        return Decision(checkpoint=saved.state, message=message)
    is_begun_anew = same_job and record.layout == wanted.layout and not record.start_pass
    if not saved.state and len(saved.newer) == 1 and is_begun_anew and wanted.pserver_num:
        return Decision(message=f"starting from the beginning{again}")
    reason = f"state/{saved.state} is of {record.layout}, and now there are {wanted.layout}: " if is_foreign else ""
    if not saved.passes:
        none = f"{reason}{whose if is_foreign else 'an unfinished attempt'} saved no pass: starting from the beginning"
        return Decision(archive_state=is_foreign, message=none)
    warning = "only the parameters are carried over; optimiser state, learning rate schedule and shuffling start anew"
    message = f"{reason}going on after {pass_name(saved.passes[-1])} of {whose}. WARNING: {warning}"
    return Decision(saved.following, archive_state=is_foreign, message=message)


def may_divide(record: JobRecord, wanted: JobRecord) -> bool:
    """Tells whether a checkpoint's state can be divided anew: servers have it, with as many ports each as now."""
    ports = [(one.ports_num, one.ports_num_sparse) for one in (record, wanted)]
    return bool(record.pserver_num and wanted.pserver_num) and ports[0] == ports[1]


def describe_division(record: JobRecord, saved: Saved, wanted: JobRecord) -> str:
    """Says what becomes of a checkpoint of other numbers."""
    number, part = position(saved.state)
    begins = "" if part == math.inf else f"; pass {number}, in which it lies, begins again"
    return (
        f". The checkpoint is of {record.layout}, and now there are {wanted.layout}: parameters and optimiser state "
        f"are divided anew{begins}"
    )


def count_without_progress(record: JobRecord | None, origin: str, is_forgiven: bool) -> int:
    """Returns how many attempts in a row left nothing newer to go on from than they began with.

    Args: record: of this Job's last attempt, None before the first. origin: from where the next goes on.
        is_forgiven: the last does not count: the set of pods changed before it began to train, or what it was to go on
        from was damaged and has been set aside.
    """
    if record is None or position(origin) > position(record.origin):
        return 0
    return record.fruitless + (not is_forgiven)


def pause_after(record: JobRecord, saved: Saved, restarts: int) -> float:
    """Returns the seconds before the next attempt: none at first, then 1, 2, 4 ... while nothing new is saved."""
    count = count_without_progress(record, choose_origin(record, saved, record).origin, is_forgiven=False)
    if not 1 < count <= restarts:
        return 0.0
    return min(LONGEST_PAUSE_S, 2.0 ** min(count - 2, 10))


def next_record(
    wanted: JobRecord, last: JobRecord | None, decision: Decision, *, is_forgiven: bool, restarts: int, started: str
) -> JobRecord:
    """Returns the record of the next attempt; one that has given up when too many before it left nothing new.

    Args: wanted: the next attempt from the beginning. last: this Job's attempt before. decision: where it goes on from.
        is_forgiven: as of count_without_progress. restarts: further attempts without progress that are allowed.
        started: now.
    """
    record = dataclasses.replace(
        wanted,
        finished=decision.done,
        start_pass=decision.start_pass,
        checkpoint=decision.checkpoint,
        fruitless=count_without_progress(last, decision.origin, is_forgiven),
        attempts=last.attempts if last else [],
    )
    if record.fruitless > restarts and not record.finished:
        return dataclasses.replace(record, given_up=True)
    attempt = {"name": record.name, "started": started, "origin": record.origin}
    return dataclasses.replace(record, attempts=[*record.attempts, attempt][-KEPT_ATTEMPTS:])

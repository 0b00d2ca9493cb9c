"""Decide from which save an attempt resumes, and make its record. No I/O."""

from __future__ import annotations

import dataclasses
import math

from paddle_base.runtime.saves import order_of, pass_name
from paddle_cluster.launcher.attempts import JobRecord

KEPT_ATTEMPTS = 100  # number of attempts of a Job that job.json lists
LONGEST_PAUSE_S = 60.0  # maximum seconds between two attempts without progress


def position(name: str) -> tuple[int, float]:
    """Return the training position of a saved pass or checkpoint (see `order_of`). Another name sorts first."""
    return order_of(name) or (-1, 0.0)


@dataclasses.dataclass(frozen=True)
class Saved:
    """The complete saves in the save directory in ascending order: numbers of passes, and names of checkpoints."""

    passes: tuple[int, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """Name of the newest checkpoint, or "" if there is no checkpoint."""
        return self.states[-1] if self.states else ""

    @property
    def newest(self) -> str:
        """Name of the newest save of both kinds, or "" if there is none."""
        return self.newer[-1] if self.newer else self.state

    @property
    def following(self) -> int:
        """The number of the pass after the last saved pass."""
        return self.passes[-1] + 1 if self.passes else 0

    @property
    def newer(self) -> list[str]:
        """Names of the saved passes that are newer than the newest checkpoint."""
        return [name for name in map(pass_name, self.passes) if position(name) > position(self.state)]

    @property
    def trained(self) -> int:
        """The number of passes that are completely trained."""
        number, part = position(self.state)
        return max(self.following, number + (part == math.inf))


def is_finished(record: JobRecord | None, saved: Saved, job_uid: str, passes: int) -> bool:
    """Return whether this Job has trained all its passes; a pod that starts later has nothing to do."""
    if record is None or record.job_uid != job_uid:
        return False
    if record.is_program:  # only the program knows how many passes it wants
        return record.finished
    return (record.finished and record.passes >= passes) or saved.following >= passes


@dataclasses.dataclass(frozen=True)
class Decision:
    """The start of the next attempt, and the treatment of existing output."""

    start_pass: int = 0
    checkpoint: str = ""
    archive: bool = False  # whether to move pass-*, state and node_* to run-<k>/ first
    # whether to move only state/, because an attempt with the current numbers of trainers, pservers or ports cannot
    # resume from the checkpoints in state/
    archive_state: bool = False
    done: bool = False  # whether all passes are trained already
    message: str = ""

    @property
    def origin(self) -> str:
        """Name of the checkpoint or pass directory to resume from, or ""."""
        return self.checkpoint or (pass_name(self.start_pass - 1) if self.start_pass else "")


def decide_start(record: JobRecord | None, saved: Saved, has_output: bool, wanted: JobRecord, resume: bool) -> Decision:
    """Decide whether the next attempt starts from the beginning, resumes, or has nothing left to train.

    Args: has_output: whether output/ contains pass-*, state or node_*. wanted: the record that the next attempt has if
        it starts from the beginning.
    """
    passes = wanted.passes
    same_job = record is not None and record.job_uid == wanted.job_uid
    if not has_output:
        return Decision()
    if record is None:
        return Decision(archive=True, message="output/ has no job.json, so the Job that wrote it is unknown")
    if same_job and not wanted.is_program and saved.following >= passes:
        return Decision(saved.following, done=True, message=f"all {passes} passes are saved already")
    if not same_job and not resume:
        return Decision(archive=True, message="RESUME is 0, and output/ is from an earlier Job")
    if not same_job and record.config != wanted.config:
        return Decision(archive=True, message=f"output/ is from an earlier Job with another config, {record.config!r}")
    if record.is_program != wanted.is_program:
        return Decision(archive=True, message="only one of this Job and the earlier Job runs a program of ENTRY")
    if wanted.is_program and not same_job and record.finished:
        return Decision(archive=True, message="the program of an earlier Job has finished")
    # with --saving_period=2 a finished Job may not have saved its last pass
    trained = max(saved.trained, record.passes if record.finished else 0)
    if not same_job and not wanted.is_program and passes <= trained:
        return Decision(archive=True, message=f"an earlier Job has trained {trained} passes, and {passes} are wanted")
    return choose_origin(record, saved, wanted)


def choose_save_of_program(saved: Saved, whose: str) -> Decision:
    """Choose the newest save of a program of ENTRY, which decides itself what to do with the save of other pods."""
    if not saved.newest:
        return Decision(message=f"{whose} saved nothing with a mark: starting from the beginning")
    if saved.newest == saved.state:
        return Decision(checkpoint=saved.state, message=f"going on from state/{saved.state} of {whose}")
    return Decision(saved.following, message=f"going on from {saved.newest} of {whose}")


def choose_origin(record: JobRecord, saved: Saved, wanted: JobRecord) -> Decision:
    """Choose the checkpoint or pass to resume from.

    A checkpoint contains the full state. If the numbers of trainers and pservers are unchanged, the result is bit-equal
    to the result of an uninterrupted run. If these numbers change, trainer 0 divides the state again, and the
    checkpoint's pass restarts. The number of ports of a pserver must not change.

    A pass directory contains only the parameters. With pservers, a checkpoint follows each saved pass. If the last pass
    has no checkpoint, the attempt ended before the checkpoint was saved, and the pass is trained again.
    """
    same_job = record.job_uid == wanted.job_uid
    whose = "an earlier attempt" if same_job else "an earlier Job"
    if wanted.is_program:
        return choose_save_of_program(saved, whose)
    is_foreign = bool(saved.state) and record.layout != wanted.layout
    again = f": {saved.newer[0]} has no checkpoint and is trained again" if saved.newer else ""
    if saved.state and (not is_foreign or may_divide(record, wanted)) and len(saved.newer) <= 1:
        divided = describe_division(record, saved, wanted) if is_foreign else ""
        message = f"going on from state/{saved.state} of {whose}{again}{divided}"
        return Decision(checkpoint=saved.state, message=message)
    is_begun_anew = same_job and record.layout == wanted.layout and not record.start_pass
    if not saved.state and len(saved.newer) == 1 and is_begun_anew and wanted.pserver_num:
        return Decision(message=f"starting from the beginning{again}")
    changed = f"was saved by {record.layout}, and now there are {wanted.layout}"
    reason = f"state/{saved.state} {changed}: " if is_foreign else ""
    if not saved.passes:
        none = f"{reason}{whose if is_foreign else 'an unfinished attempt'} saved no pass: starting from the beginning"
        return Decision(archive_state=is_foreign, message=none)
    warning = "only the parameters are carried over; optimiser state, learning rate schedule and shuffling start anew"
    message = f"{reason}going on after {pass_name(saved.passes[-1])} of {whose}. WARNING: {warning}"
    return Decision(saved.following, archive_state=is_foreign, message=message)


def may_divide(record: JobRecord, wanted: JobRecord) -> bool:
    """Return whether a checkpoint's state can be divided again, which needs pservers and unchanged numbers of ports."""
    ports = [(one.ports_num, one.ports_num_sparse) for one in (record, wanted)]
    return bool(record.pserver_num and wanted.pserver_num) and ports[0] == ports[1]


def describe_division(record: JobRecord, saved: Saved, wanted: JobRecord) -> str:
    """Describe how an attempt resumes from a checkpoint of a job with other numbers of trainers or pservers."""
    number, part = position(saved.state)
    begins = "" if part == math.inf else f"; pass {number}, in which it was saved, begins again"
    return (
        f". The checkpoint was saved by {record.layout}, and now there are {wanted.layout}: parameters and optimiser "
        f"state are divided anew{begins}"
    )


def count_without_progress(record: JobRecord | None, origin: str, is_forgiven: bool) -> int:
    """Return the number of consecutive attempts that saved nothing newer than the save from which they resumed.

    Args: record: this Job's last attempt, or None. origin: the save that the next attempt resumes from.
        is_forgiven: whether the last attempt is not counted. An attempt is not counted if its set of pods changed
        before the training, or if the save from which it should have resumed was damaged.
    """
    if record is None or position(origin) > position(record.origin):
        return 0
    return record.fruitless + (not is_forgiven)


def pause_after(record: JobRecord, saved: Saved, restarts: int) -> float:
    """Return the pause before the next attempt in seconds: 0, then 1, 2, 4 and so on while nothing new is saved."""
    count = count_without_progress(record, choose_origin(record, saved, record).origin, is_forgiven=False)
    if not 1 < count <= restarts:
        return 0.0
    return min(LONGEST_PAUSE_S, 2.0 ** min(count - 2, 10))


def next_record(
    wanted: JobRecord, last: JobRecord | None, decision: Decision, *, is_forgiven: bool, restarts: int, started: str
) -> JobRecord:
    """Return the record of the next attempt, with given_up set after too many attempts without progress.

    Args: wanted: the record that the attempt has if it starts from the beginning. last: this Job's previous attempt.
        decision: the save to resume from. is_forgiven: see count_without_progress. restarts: maximum number of
        consecutive attempts without progress. started: the current time, in the format of the logs.
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

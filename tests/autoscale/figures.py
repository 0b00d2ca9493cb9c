"""What is recorded of a run of the experiment, the columns of 2017, and the figures of the table."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """The cluster at a moment. `seconds`: since the begin of the case."""

    seconds: float
    utilisation: float  # %, requests of all Running pods over the sum of allocatable
    trainers: list[int]  # Running trainers of each job
    shares: list[float]  # utilisation by each job, %
    states: list[str]  # of each job: "", pending, running, done
    service: int  # Running pods of nginx
    wanted: int  # replicas of nginx
    is_full: bool  # no node has room for one more trainer that a job may have

    def columns(self) -> str:
        """The line of 2017's log (shared data, edl)."""
        counts = [sum(state == kind for state in self.states) for kind in ("", "pending", "running", "done")]
        numbers = [f"{self.seconds:g}", f"{self.utilisation:.2f}", sum(self.trainers), *counts, self.service]
        trainers = "|".join(map(str, self.trainers))
        return ",".join([*map(str, numbers), trainers, "|".join(f"{share:.2f}" for share in self.shares)])


@dataclass
class Record:
    """A run of a case."""

    case: int
    elastic: bool
    samples: list[Sample] = field(default_factory=list)
    first_pod: dict[int, float] = field(default_factory=dict)  # job -> seconds
    first_trainer: dict[int, float] = field(default_factory=dict)
    steps: list[tuple[float, int, int]] = field(default_factory=list)  # seconds, replicas before, after
    changes: list[tuple[float, str, int, int, str]] = field(default_factory=list)  # seconds, job, before, after, why
    end: float = 0.0
    begin: float = 0.0  # seconds since the epoch
    load: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, load of a minute, CPUs busy
    machine: dict[str, Any] = field(default_factory=dict)

    def columns(self) -> list[str]:
        """The log of 2017. A line that only repeats the one before is left out."""
        lines: list[str] = []
        for sample, after in itertools.zip_longest(self.samples, self.samples[1:]):
            line = sample.columns()
            if not after or not lines or line.partition(",")[2] != lines[-1].partition(",")[2]:
                lines.append(line)
        return lines

    def observe(self, sample: Sample, pods: dict[int, int]) -> None:
        """Take a sample; `pods`: of each job, in any phase."""
        for job, count in pods.items():
            if count:
                self.first_pod.setdefault(job, sample.seconds)
        for job, count in enumerate(sample.trainers):
            if count:
                self.first_trainer.setdefault(job, sample.seconds)
        self.samples.append(sample)
        self.end = sample.seconds

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "samples": [sample._asdict() for sample in self.samples]}

    @classmethod
    def from_json(cls, made: dict[str, Any]) -> Record:
        numbered = {name: {int(k): v for k, v in made[name].items()} for name in ("first_pod", "first_trainer")}
        return cls(**{**made, **numbered, "samples": [Sample(**one) for one in made["samples"]]})


def pending_times(record: Record) -> list[float]:
    """Seconds from a job's first pod, in any phase, to its first trainer Running; one that never ran: to the end."""
    return [record.first_trainer.get(job, record.end) - since for job, since in record.first_pod.items()]


def mean_over(record: Record, begin: float, end: float, value: Any) -> float:
    """The mean over time of a value of the samples in a part of the run."""
    found = [(sample, after.seconds - sample.seconds) for sample, after in itertools.pairwise(record.samples)]
    inside = [(value(sample), length) for sample, length in found if begin <= sample.seconds < end]
    return sum(amount * length for amount, length in inside) / max(sum(length for _, length in inside), 1e-9)


def utilisation(record: Record, begin: float, end: float) -> float:
    return mean_over(record, begin, end, lambda sample: sample.utilisation)


def growth(record: Record) -> list[tuple[float, int, int]]:
    """The steps up: (seconds, before, after)."""
    return [step for step in record.steps if step[2] > step[1] > 0]


def recoveries(record: Record) -> list[float | None]:
    """Seconds from each step up until all of the service's pods were Running; None: not before the next step."""
    found: list[float | None] = []
    for number, (begin, _, wanted) in enumerate(growth(record)):
        ends = [step[0] for step in growth(record)[number + 1 :]]
        inside = [s for s in record.samples if begin <= s.seconds <= (ends[0] if ends else record.end)]
        found.append(next((s.seconds - begin for s in inside if s.service >= wanted), None))
    return found


def missing(record: Record) -> float:
    """Pod-seconds that the service lacked from the first step up to the end."""
    begin = min((step[0] for step in growth(record)), default=record.end)
    length = record.end - begin
    return mean_over(record, begin, record.end, lambda sample: max(sample.wanted - sample.service, 0)) * length


def taken_back(record: Record, within: float = 30.0) -> int:
    """Changes of a job that another one took back within so many seconds, other than for a job's least."""
    count = 0
    latest: dict[str, tuple[float, bool]] = {}
    for moment, job, before, after, reason in record.changes:
        since, rose = latest.get(job, (-1e9, after > before))
        if rose != (after > before) and moment - since < within - 0.01 and "lacks its minimum" not in reason:
            count += 1
        latest[job] = (moment, after > before)
    return count


def summarise(record: Record) -> dict[str, Any]:
    """The figures of the table."""
    waits = pending_times(record)
    found: dict[str, Any] = {"pending time of a job, s": round(statistics.mean(waits), 1) if waits else None}
    found["longest pending time, s"] = round(max(waits), 1) if waits else None
    if record.case == 1:
        running = mean_over(record, 300, 500, lambda sample: sum(state == "running" for state in sample.states))
        found |= {"jobs running, 300 to 500 s": round(running, 1)}
        found |= {"utilisation, 300 to 500 s, %": round(utilisation(record, 300, 500), 1)}
        full = [round(100 * mean_over(record, *span, lambda s: s.is_full), 1) for span in ((0, 1e9), (300, 500))]
        found |= {"no room for a trainer, % of the time": full[0], "the same, 300 to 500 s": full[1]}
    else:
        found |= {"utilisation, 0 to 700 s, %": round(utilisation(record, 0, 700), 1)}
        found |= {"utilisation off-peak, 300 to 370 s, %": round(utilisation(record, 300, 370), 1)}
        found |= {
            "service whole after each step up, s": [None if r is None else round(r, 1) for r in recoveries(record)]
        }
        found |= {"pod-seconds missing": round(missing(record))}
    found |= {"changes": len(record.changes), "taken back within 30 s": taken_back(record)}
    return found

"""The section with the time of each trainer by phase, as bars. It names the trainer for which all others wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.records.progress_files import sum_last_pass
from trainer.records.records import Record
from trainer.report.facts import Facts
from trainer.report.html.markup import Markup, join, tag
from trainer.report.html.tables import make_table
from trainer.report.html.text import NONE, count, number, seconds, whole

PHASES = ("compute", "data", "exchange", "test", "save", "other")
MOST = 40  # maximum number of trainers that are shown; they are the slowest trainers
NEAR = 1.05  # the slowest trainer is called slow if its own work takes over this many times the median of the others


@dataclass(frozen=True)
class TrainerTime:
    """The time of a trainer by phase, in seconds."""

    trainer: str
    host: str
    samples: int
    phases: tuple[float, ...]

    @property
    def own(self) -> float:
        """The seconds of computing and of waiting for data, in which the trainer does not wait for other trainers."""
        return self.phases[0] + self.phases[1]

    @property
    def total(self) -> float:
        """The sum of all phases."""
        return sum(self.phases)


def add_times(facts: Facts) -> list[TrainerTime]:
    """Return the time that each trainer has spent in all attempts. The slowest trainer comes first.

    The time of the newest attempt is all time since its beginning. The time of an earlier attempt ends with its last
    pass that no later attempt has repeated.
    """
    attempts: dict[str, Record] = {}
    for one in facts.history.passes:
        attempts[str(one.get("attempt", ""))] = _records(one.get("usage"))
    latest = newest_times(facts)
    if latest:
        attempts[facts.attempt] = {trainer: one["usage"] for trainer, one in latest.items()}
    sums: dict[str, list[float]] = {}
    for times in attempts.values():
        for trainer, usage in _records(times).items():
            total = sums.setdefault(trainer, [0.0] * (1 + len(PHASES)))
            for place, key in enumerate(("samples", *(f"{phase}_seconds" for phase in PHASES))):
                total[place] += max(number(usage.get(key)) or 0.0, 0.0)
    found = [
        TrainerTime(trainer, str(latest.get(trainer, {}).get("host") or ""), whole(samples), tuple(phases))
        for trainer, (samples, *phases) in sums.items()
    ]
    return sorted((one for one in found if one.total > 0), key=lambda one: (-one.own, one.trainer))


def newest_times(facts: Facts) -> dict[str, Record]:
    """Return the newest progress of each trainer in the newest attempt.

    The progress is in a file of the trainer itself, and in the progress.json that trainer 0 writes for the job.
    """
    found: dict[str, Record] = {}
    if str(facts.progress.get("attempt", "")) == facts.attempt:
        found = _records(facts.progress.get("trainers"))
    for trainer, own in facts.listing.trainers.items():
        recorded = number(found.get(trainer, {}).get("time")) or -math.inf
        if own.get("attempt") == facts.attempt and (number(own.get("time")) or 0.0) >= recorded:
            found[trainer] = own
    return {trainer: one for trainer, one in found.items() if isinstance(one.get("usage"), dict)}


def last_cost(facts: Facts) -> tuple[Any, str]:
    """Return the newest cost, and a text that names its pass and its samples.

    The newest cost is that of the last pass. Before the end of the first pass, it is that of the last log line. Each
    trainer reports the cost of its own samples, so the cost of all samples is known if all trainers have reported.
    """
    if not facts.history.passes:
        return facts.progress.get("cost"), ""
    newest, count = facts.history.passes[-1], whole(facts.history.start.get("trainers"), 1)
    own = {key: newest.get(key) for key in ("pass", "samples", "cost")}
    trainers = {**newest_times(facts), "0": {"last_pass": own}}
    found = sum_last_pass(trainers, count) if count > 1 else None
    if found is None:
        return newest.get("cost"), ", last pass"
    whose = "all" if found["trainers"] == count else "trainer 0's"
    return found["cost"], f", last pass, of {whose} {found['samples']} samples"


def _records(value: object) -> dict[str, Record]:
    return {str(key): one for key, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def is_first_slow(trainers: Sequence[TrainerTime]) -> bool:
    """Return whether the first trainer, which is the slowest, is slow in comparison with the median of the others."""
    others = trainers[1:]
    return bool(others) and trainers[0].own > NEAR * others[len(others) // 2].own


def name_slowest(trainers: Sequence[TrainerTime]) -> str:
    """Return sentences about the trainer for which all other trainers wait, or "" for a single trainer."""
    if len(trainers) < 2:
        return ""
    slowest, others = trainers[0], trainers[1:]
    usual = others[len(others) // 2]
    if not is_first_slow(trainers):
        spent = seconds(slowest.own)
        return f"No trainer is much slower than the others: the slowest has spent {spent} in compute and data."
    part = "data" if slowest.phases[1] - usual.phases[1] > slowest.phases[0] - usual.phases[0] else "compute"
    factor = f", {slowest.own / usual.own:.2f} times as long as" if usual.own > 0 else ", longer than"
    where = f" on {slowest.host}" if slowest.host else ""
    return (
        f"Trainer {slowest.trainer}{where} is the slowest: it has spent {seconds(slowest.own)} in compute and data"
        f"{factor} trainer {usual.trainer}, the median of the others. "
        f"Most of the difference is in the phase {part}."
    )


def draw_times(facts: Facts) -> Markup | None:
    """Return the section; None if no times are known."""
    times = add_times(facts)
    if not times:
        return None
    longest = max(one.total for one in times)
    shown = times[:MOST]
    # the slowest trainers are shown, but in the order of their ids
    shown.sort(key=lambda one: (not one.trainer.isdigit(), whole(number_of(one.trainer)), one.trainer))
    slowest = times[0].trainer if is_first_slow(times) else ""
    rows = [
        [
            f"{one.trainer}{' (slowest)' if one.trainer == slowest else ''}",
            one.host or NONE,
            _bar(one, longest),
            *(seconds(value) for value in one.phases),
            count(one.samples),
        ]
        for one in shown
    ]
    legend = tag(
        "p",
        *(
            tag("span", tag("span", class_=f"mark phase-{name}", aria_hidden="true"), name, class_="entry")
            for name in PHASES
        ),
        class_="legend",
    )
    heads = ["trainer", "host", "time", *PHASES, "samples"]
    caption = "Time by phase, of all attempts"
    if len(times) > MOST:
        caption += f"; the {MOST} slowest of {len(times)} trainers"
    return join(
        [tag("p", name_slowest(times)) if len(times) > 1 else "", legend, make_table(caption, heads, rows, words=3)]
    )


def number_of(trainer: str) -> int:
    """Return a trainer's id as a number, for sorting; 0 if the id is not a number."""
    return int(trainer) if trainer.isdigit() and trainer.isascii() and len(trainer) < 10 else 0


def _bar(usage: TrainerTime, longest: float) -> Markup:
    parts = [
        tag("span", class_=f"phase-{phase}", style=f"width:{100 * value / longest:.2f}%")
        for phase, value in zip(PHASES, usage.phases, strict=True)
        if value > 0
    ]
    text = ", ".join(f"{phase} {seconds(value)}" for phase, value in zip(PHASES, usage.phases, strict=True))
    return tag("span", *parts, class_="bar", role="img", aria_label=text, title=text)

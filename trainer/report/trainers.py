"""Where the time of each trainer went, as bars; and which one the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.report.facts import Facts
from trainer.report.history import Json
from trainer.report.markup import Markup, join, tag
from trainer.report.tables import make_table
from trainer.report.text import NONE, count, number, seconds, whole

PHASES = ("compute", "data", "exchange", "test")
MOST = 40  # trainers shown; of more, the slowest
NEAR = 1.05  # the slowest's own work over the median's, up to which no one is the slowest


@dataclass(frozen=True)
class Usage:
    """The time of a trainer by phase, in seconds."""

    trainer: str
    host: str
    samples: int
    phases: tuple[float, ...]

    @property
    def own(self) -> float:
        """What nobody else makes it wait for."""
        return self.phases[0] + self.phases[1]

    @property
    def total(self) -> float:
        """All phases."""
        return sum(self.phases)


def add_usage(facts: Facts) -> list[Usage]:
    """Return what every trainer spent in all passes, or else in those of the newest progress; the slowest first."""
    now = facts.progress.get("trainers")
    latest = now if isinstance(now, dict) else {}
    recorded = [one["usage"] for one in facts.history.passes if isinstance(one.get("usage"), dict)] or [latest]
    sums: dict[str, list[float]] = {}
    for usages in recorded:
        for trainer, usage in usages.items():
            if isinstance(usage, dict):
                total = sums.setdefault(str(trainer), [0.0] * (1 + len(PHASES)))
                for place, key in enumerate(("samples", *(f"{phase}_seconds" for phase in PHASES))):
                    total[place] += max(number(usage.get(key)) or 0.0, 0.0)
    found = [
        Usage(trainer, _host(latest.get(trainer)), whole(samples), tuple(phases))
        for trainer, (samples, *phases) in sums.items()
    ]
    return sorted((one for one in found if one.total > 0), key=lambda one: (-one.own, one.trainer))


def name_slowest(usages: Sequence[Usage]) -> str:
    """Return a sentence about the trainer that the others wait for."""
    if len(usages) < 2:
        return ""
    slowest, others = usages[0], usages[1:]
    usual = others[len(others) // 2]
    if slowest.own <= NEAR * usual.own:
        return f"No trainer is much slower than the others: the most own work is {seconds(slowest.own)}."
    part = "data" if slowest.phases[1] - usual.phases[1] > slowest.phases[0] - usual.phases[0] else "compute"
    times = f", {slowest.own / usual.own:.2f} times" if usual.own > 0 else ","
    where = f" on {slowest.host}" if slowest.host else ""
    return (
        f"Slowest is trainer {slowest.trainer}{where}: {seconds(slowest.own)} of computing and waiting for data{times} "
        f"that of trainer {usual.trainer} in the middle; most of the difference is {part}."
    )


def draw_usage(facts: Facts) -> Markup | None:
    """Return the bars of the trainers as a table, None if nothing is known."""
    usages = add_usage(facts)
    if not usages:
        return None
    longest = max(one.total for one in usages)
    shown = usages[:MOST]
    shown.sort(key=lambda one: (not one.trainer.isdigit(), whole(number_of(one.trainer)), one.trainer))
    slowest = usages[0].trainer if "Slowest" in name_slowest(usages) else ""
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
    caption = "Seconds by phase, of all passes" if facts.history.passes else "Seconds by phase, so far"
    if len(usages) > MOST:
        caption += f"; the {MOST} slowest of {len(usages)} trainers"
    return join(
        [tag("p", name_slowest(usages)) if len(usages) > 1 else "", legend, make_table(caption, heads, rows, words=3)]
    )


def number_of(trainer: str) -> int:
    """Return an id as a number, for its order."""
    return int(trainer) if trainer.isdigit() and trainer.isascii() and len(trainer) < 10 else 0


def _bar(usage: Usage, longest: float) -> Markup:
    parts = [
        tag("span", class_=f"phase-{phase}", style=f"width:{100 * value / longest:.2f}%")
        for phase, value in zip(PHASES, usage.phases, strict=True)
        if value > 0
    ]
    text = ", ".join(f"{phase} {seconds(value)}" for phase, value in zip(PHASES, usage.phases, strict=True))
    return tag("span", *parts, class_="bar", role="img", aria_label=text, title=text)


def _host(known: object) -> str:
    record: Json = known if isinstance(known, dict) else {}
    return str(record.get("host") or "")

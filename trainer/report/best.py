"""Find the best pass of a run. It has the lowest test cost or, in a run without tests, the lowest training cost."""

from __future__ import annotations

from typing import NamedTuple

from trainer.report.history import History
from trainer.report.html.text import general, number, whole


class Best(NamedTuple):
    """The best pass: its number, its cost, and whether this cost is a test cost."""

    number: int
    cost: float
    is_tested: bool

    @property
    def text(self) -> str:
        """The sentence about the best pass that the page shows beside the curves and the table."""
        what = "test cost" if self.is_tested else "cost"
        return f"best is pass {self.number}, with the lowest {what}: {general(self.cost)}"


def find_best(history: History) -> Best | None:
    """Return the best pass, or the first of several best passes; None if there are fewer than two passes."""
    tested = [(whole(one.get("pass")), number(history.test_of(one).get("cost"))) for one in history.passes]
    is_tested = any(cost is not None for _, cost in tested)
    own = [(whole(one.get("pass")), number(one.get("cost"))) for one in history.passes]
    costs = [(cost, place) for place, cost in (tested if is_tested else own) if cost is not None]
    if len(costs) < 2:
        return None
    cost, place = min(costs)
    return Best(place, cost, is_tested)

"""A step of the rules in progress. Each change of the state is also recorded, because it must be stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from paddle_cluster.master.tasks.events import Notice, StepOutcome, Ticket, TicketAnswer, TicketRefusal
from paddle_cluster.master.tasks.records import Change
from paddle_cluster.master.tasks.state import MasterState


@dataclasses.dataclass
class Turn:
    """The state, the time in seconds since the epoch, and the decisions so far."""

    state: MasterState
    now: float
    outcome: StepOutcome = dataclasses.field(default_factory=StepOutcome)

    def change(self, change: Change) -> None:
        """Change the state, and record the change, so that it is stored."""
        self.state.apply(change)
        self.outcome.changes.append(change)

    def answer(self, ticket: Ticket, body: Mapping[str, Any]) -> None:
        """Answer a request after the changes are stored."""
        self.outcome.effects.append(TicketAnswer(ticket, body))

    def refuse(self, ticket: Ticket, code: str, reason: str) -> None:
        """Refuse a request."""
        self.outcome.effects.append(TicketRefusal(ticket, code, reason))

    def join_answers(self, ticket: Ticket) -> None:
        """If a report and its request for the next task have two answers, combine the answers into one."""
        effects = self.outcome.effects
        places = [
            at
            for at, effect in enumerate(effects)
            if isinstance(effect, (TicketAnswer, TicketRefusal)) and effect.ticket == ticket
        ]
        if len(places) < 2:  # the report itself was refused
            return
        wanted, report = effects.pop(places[1]), effects[places[0]]
        if isinstance(wanted, TicketAnswer) and isinstance(report, TicketAnswer):  # a refused member asks again
            effects[places[0]] = TicketAnswer(ticket, {**report.body, "next": wanted.body})

    def note(self, text: str, *, is_warning: bool = False) -> None:
        """Write a log line."""
        self.outcome.effects.append(Notice(text, is_warning))

"""The transfer of a file list to the master: one member sends parts of its list, while other members wait. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.tasks.dataset import digest_of, group_files
from paddle_cluster.master.tasks.events import DatasetGiven, Ticket, TicketAnswer, TicketRefusal

Reaction = DatasetGiven | TicketAnswer | TicketRefusal


@dataclasses.dataclass(frozen=True)
class DatasetOffer:
    """A member offers a file list with this digest and number of files."""

    ticket: Ticket
    member: MemberId
    digest: str
    config: str
    files: int


class DatasetUploads:
    """The list in transfer, and the members that wait. The first member that offers a list sends its list.

    Args: files_per_task: number of files of each task.
    """

    def __init__(self, files_per_task: int) -> None:
        self._files_per_task = files_per_task
        self._sender: DatasetOffer | None = None
        self._files: list[str] = []
        self._waiting: list[DatasetOffer] = []

    def offer(self, offer: DatasetOffer) -> list[Reaction]:
        """Handle an offer, while the job has no data set."""
        if not offer.files:
            return [TicketRefusal(offer.ticket, "empty", "the file list is empty; name at least one file")]
        if self._sender is None or self._sender.member == offer.member:
            if self._sender is None or self._sender.digest != offer.digest:
                self._files = []
            self._sender = offer
            return [self._ask(offer.ticket)]
        self._waiting.append(offer)
        return []

    def take(self, ticket: Ticket, member: MemberId, first: int, names: Sequence[str]) -> list[Reaction]:
        """Handle a part that begins with file number `first`; a repeated part has no effect."""
        sender = self._sender
        if sender is None or sender.member != member:
            return [TicketRefusal(ticket, "offer", "this master does not know this list; offer it again")]
        if first > len(self._files) or first + len(names) > sender.files:
            fault = f"a part begins with file {first}, but {len(self._files)} of {sender.files} files are received"
            return [TicketRefusal(ticket, "dataset", fault)]
        self._files[first:] = names
        if len(self._files) < sender.files:
            return [self._ask(ticket)]
        return self._finish(ticket, sender)

    def forget(self, member: MemberId) -> list[Reaction]:
        """Handle a lost member. If the lost member was the sender, the next waiting member sends its own list."""
        self._waiting = [one for one in self._waiting if one.member != member]
        if self._sender is None or self._sender.member != member:
            return []
        return self._next()

    def settle(self) -> list[Reaction]:
        """Compare the lists of the waiting members with the data set, which the job now has."""
        waiting, self._waiting = self._waiting, []
        return [DatasetGiven(one.ticket, one.digest, one.config, one.files, ()) for one in waiting]

    def _finish(self, ticket: Ticket, sender: DatasetOffer) -> list[Reaction]:
        found = digest_of(self._files)
        if found != sender.digest:
            fault = f"the {sender.files} received files have digest {found[:16]}, not {sender.digest[:16]}"
            return [TicketRefusal(ticket, "dataset", fault), *self._next()]
        tasks = tuple(group_files(self._files, self._files_per_task))
        self._sender, self._files = None, []
        return [DatasetGiven(ticket, sender.digest, sender.config, sender.files, tasks)]

    def _next(self) -> list[Reaction]:
        self._sender, self._files = None, []
        waiting, self._waiting = self._waiting, []
        return [reaction for one in waiting for reaction in self.offer(one)]

    def _ask(self, ticket: Ticket) -> TicketAnswer:
        return TicketAnswer(ticket, {"state": "send", "next": len(self._files), "pass": 0})

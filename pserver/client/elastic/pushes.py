"""How the gradient of a batch comes to count once on every service, whatever is lost meanwhile.

Asynchronous training: every push of a trainer has a number. A service that knows the number answers with values, and
takes no step. So a push is sent again to all services when one of them was lost.

Synchronous training: a round has two phases. The gradients of all members of the view go to all services; each service
says that it has them all. Then every member says COMMIT to all services, the first of which takes the step. When the
view changes, or a server is lost, every member of the new view first settles the round that may be cut in two
(`pserver.aggregate.round_agreement`), before it pushes again.
"""

from __future__ import annotations

from typing import Protocol

from pserver.aggregate.round_agreement import RoundAgreement, agree
from pserver.client.elastic.services import BatchGradient, JoinedServices
from pserver.optim.settings import Array
from pserver.wire.views import EpochChangedError, MembershipView, RoundKey
from runtime import glog


class Pushes(Protocol):
    """Brings gradients to the services; the methods raise what the clients raise, and may be called again then.

    Attributes: pass_number: of the batches to come.
    """

    pass_number: int

    def open(self) -> None:
        """Take note that another batch begins: what was pushed before has counted, or never will."""

    def prepare(self, services: JoinedServices, values: Array) -> bool:
        """Make a push possible; return whether the last push has counted after all. The values come in place."""

    def begin(self, services: JoinedServices, batch: BatchGradient) -> None:
        """Begin to push a gradient that is not complete yet."""

    def finish(self, services: JoinedServices, batch: BatchGradient, *, has_begun: bool) -> None:
        """Push the gradient, or the rest of it, and return when it counts and the values are in place."""


class CountedPushes:
    """Asynchronous training."""

    def __init__(self) -> None:
        self.pass_number = 0
        self._number = 0

    def open(self) -> None:
        """Count a push; all that follows is this one, until the next call."""
        self._number += 1

    def prepare(self, services: JoinedServices, values: Array) -> bool:
        """Return False: the services know which pushes have counted."""
        return False

    def begin(self, services: JoinedServices, batch: BatchGradient) -> None:
        """As of `Pushes`."""
        services.dense.begin_counted_push(batch.gradient, batch.values, batch.samples, self._describe())

    def finish(self, services: JoinedServices, batch: BatchGradient, *, has_begun: bool) -> None:
        """As of `Pushes`."""
        if not has_begun:
            self.begin(services, batch)
        services.finish_push(
            lambda sparse: sparse.begin_counted_rows(batch.rows, batch.row_gradients, batch.samples, self._describe())
        )

    def _describe(self) -> dict[str, int]:
        return {"push": self._number, "pass": self.pass_number}


class MemberViews(Protocol):
    """What a trainer knows of who takes part in rounds."""

    @property
    def newest(self) -> MembershipView:
        """The newest view; never waits."""

    def wait(self, epoch: int) -> MembershipView:
        """Return a view of at least this epoch that this trainer is a member of, as soon as there is one.

        Raises: PaddleError: there is none.
        """


class AgreedPushes:
    """Synchronous training.

    A push that is cut off leaves `_own`: the round of a gradient of which this trainer does not know whether it counts.
    """

    def __init__(self, views: MemberViews) -> None:
        self.pass_number = 0
        self._views = views
        self._entered: tuple[JoinedServices, MembershipView] | None = None
        self._next = RoundKey(0, 1)  # the round of the next push
        self._own: RoundKey | None = None
        self._held: RoundKey | None = None  # the round after which all values here are those of the services
        self._least = 0  # the newest epoch that a service has named

    def open(self) -> None:
        """As of `Pushes`."""
        self._own = None

    def prepare(self, services: JoinedServices, values: Array) -> bool:
        """Enter the newest view, if it is another one than the last, and settle the round before it.

        Raises: as of `MemberViews.wait`.
        """
        is_done = False
        while not self._is_current(services):
            try:
                is_done = self._enter(services, self._views.wait(self._least), values)
            except EpochChangedError as exc:
                self._note(exc)
        return is_done

    def begin(self, services: JoinedServices, batch: BatchGradient) -> None:
        """As of `Pushes`.

        Raises: EpochChangedError: another view is to be entered first.
        """
        if not self._is_current(services):
            raise EpochChangedError("the view has changed before the push")
        self._own = key = self._next

        def is_current() -> bool:
            return self._is_current(services)

        services.dense.begin_round_push(batch.gradient, batch.samples, key, self.pass_number, is_current)

    def finish(self, services: JoinedServices, batch: BatchGradient, *, has_begun: bool) -> None:
        """As of `Pushes`."""
        while True:
            try:
                if not has_begun:
                    if self.prepare(services, batch.values):
                        break
                    self.begin(services, batch)
                has_begun = False  # from here on it begins anew
                self._take_part(services, batch)
                break
            except EpochChangedError as exc:
                self._note(exc)
        self._own = None

    def _take_part(self, services: JoinedServices, batch: BatchGradient) -> None:
        """Push the rest for a round, and commit it."""
        key, number, rows = self._next, self.pass_number, batch.rows

        def is_current() -> bool:
            return self._is_current(services)

        services.finish_push(
            lambda sparse: sparse.begin_round_rows(rows, batch.row_gradients, batch.samples, key, number, is_current)
        )
        self._held = None
        services.commit(key, key.epoch, batch.values)
        self._held, self._next = key, RoundKey(key.epoch, key.number + 1)

    def _enter(self, services: JoinedServices, view: MembershipView, values: Array) -> bool:
        """Enter a view; return whether the push `_own` has counted."""
        if self._entered is not None and self._entered[0] is not services:
            self._held = None
        self._entered = None
        settled = agree(services.enter(view), view.epoch, self._own)
        if settled.services:
            glog.info(f"{settled.key} counts: {len(settled.services)} services take it now, as the others have")
            services.commit(settled.key, view.epoch, values, settled.services)
        self._update(services, settled, values)
        self._entered, self._next = (services, view), RoundKey(view.epoch, settled.next_round)
        return settled.is_own_done

    def _update(self, services: JoinedServices, settled: RoundAgreement, values: Array) -> None:
        """Get the values in place, unless they are here."""
        rounds = set(settled.values)
        if rounds != {self._held}:
            self._held = None
            services.fetch(values, self.pass_number)
            self._held = rounds.pop() if len(rounds) == 1 else None

    def _is_current(self, services: JoinedServices) -> bool:
        if self._entered is None or self._entered[0] is not services:
            return False
        epoch = self._entered[1].epoch
        return epoch >= self._least and epoch == self._views.newest.epoch

    def _note(self, error: EpochChangedError) -> None:
        """Enter anew before the next push: a service may be in another round of the same epoch, too."""
        self._entered = None
        self._least = max(self._least, error.epoch)

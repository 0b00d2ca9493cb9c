"""Push the gradient of a batch so that it counts once on every service, even if services or trainers are lost.

In asynchronous training, every push of a trainer has a number. A service that has already received a push with this
number answers with values and takes no step. The trainer can therefore repeat a push to all services when a service was
lost.

In synchronous training, a round has two phases. First, the members of the view send their gradients to all services,
and each service reports that it has all gradients. Then every member sends COMMIT to all services; a service takes the
step at its first COMMIT. If the view changes or a server is lost, perhaps only some services have completed the round.
Before its next push, every member of the new view therefore completes or drops the round
(`pserver.aggregate.round_agreement`).
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from paddle_base.runtime import glog
from pserver.aggregate.round_agreement import RoundAgreement, agree
from pserver.client.tasks.services import BatchGradient, JoinedServices
from pserver.optim.settings import Array
from pserver.wire.views import EpochChangedError, MembershipView, RoundKey


class Pushes(Protocol):
    """Push gradients to the services. The methods raise the errors of the clients. After an error, a method may be
    called again.

    Attributes: pass_number: number of the pass that the next batches belong to.
    """

    pass_number: int

    def open(self) -> None:
        """Begin another batch. The previous push is not repeated after this call."""

    def prepare(self, services: JoinedServices, values: Array) -> bool:
        """Prepare a push; return whether the previous, interrupted push has counted.

        The values are received in place.
        """

    def begin(self, services: JoinedServices, batch: BatchGradient) -> None:
        """Begin to push a gradient that is still being computed."""

    def finish(self, services: JoinedServices, batch: BatchGradient, *, has_begun: bool) -> None:
        """Push the rest of the gradient; return when the gradient has counted and the new values are in place."""


class CountedPushes:
    """The pushes of asynchronous training, each of which has a number."""

    def __init__(self) -> None:
        self.pass_number = 0
        self._number = 0

    def open(self) -> None:
        """Assign the next number; all pushes until the next call have this number."""
        self._number += 1

    def prepare(self, services: JoinedServices, values: Array) -> bool:
        """Return False: the services themselves detect a repeated push."""
        return False

    def begin(self, services: JoinedServices, batch: BatchGradient) -> None:
        """See `Pushes`."""
        services.begin_counted_push(batch.gradient, batch.values, batch.samples, self._describe())

    def finish(self, services: JoinedServices, batch: BatchGradient, *, has_begun: bool) -> None:
        """See `Pushes`."""
        if not has_begun:
            self.begin(services, batch)
        services.begin_counted_rows(batch, self._describe())
        services.finish_push()

    def _describe(self) -> dict[str, int]:
        return {"push": self._number, "pass": self.pass_number}


class MemberViews(Protocol):
    """The views (sets of members of rounds) that a trainer knows."""

    @property
    def newest(self) -> MembershipView:
        """The newest view; the property never waits."""

    def wait(self, epoch: int) -> MembershipView:
        """Wait for a view of this epoch or of a later epoch that contains this trainer, and return the view.

        Raises: PaddleError: no later view will contain this trainer.
        """


class AgreedPushes:
    """The pushes of synchronous training, each of which belongs to a round.

    `_own` are the rounds for which the gradient of an unfinished push was pushed. If the push was interrupted, this
    trainer does not know whether the gradient has counted in one of them.
    """

    def __init__(self, views: MemberViews) -> None:
        self.pass_number = 0
        self._views = views
        self._entered: tuple[JoinedServices, MembershipView] | None = None
        self._next = RoundKey(0, 1)  # the round that the next push belongs to
        self._own: set[RoundKey] = set()
        self._held: RoundKey | None = None  # the round that the values in this trainer come from
        self._least = 0  # the newest epoch that a service has reported

    def open(self) -> None:
        """See `Pushes`."""
        self._own = set()

    def prepare(self, services: JoinedServices, values: Array) -> bool:
        """Enter the newest view if it has changed, and settle the unfinished round.

        Raises: see `MemberViews.wait`.
        """
        is_done = False
        while not self._is_current(services):
            try:
                is_done = self._enter(services, self._views.wait(self._least), values)
            except EpochChangedError as exc:
                self._note(exc)
        return is_done

    def begin(self, services: JoinedServices, batch: BatchGradient) -> None:
        """See `Pushes`.

        Raises: EpochChangedError: the trainer must enter another view first.
        """
        if not self._is_current(services):
            raise EpochChangedError("the view has changed before the push")
        key = self._next
        self._own.add(key)
        is_current = partial(self._check_current, services)
        services.begin_round_push(batch.gradient, batch.samples, key, self.pass_number, is_current)

    def finish(self, services: JoinedServices, batch: BatchGradient, *, has_begun: bool) -> None:
        """See `Pushes`."""
        while True:
            try:
                if not has_begun:
                    if self.prepare(services, batch.values):
                        break
                    self.begin(services, batch)
                has_begun = False  # an error from here on restarts the push
                self._take_part(services, batch)
                break
            except EpochChangedError as exc:
                self._note(exc)
        self._own = set()

    def _take_part(self, services: JoinedServices, batch: BatchGradient) -> None:
        """Push the rest of the gradients for a round, and commit the round."""
        key = self._next
        services.begin_round_rows(batch, key, self.pass_number, partial(self._check_current, services))
        services.finish_push()
        self._held = None
        services.commit(key, key.epoch, batch.values)
        self._held, self._next = key, RoundKey(key.epoch, key.number + 1)

    def _enter(self, services: JoinedServices, view: MembershipView, values: Array) -> bool:
        """Enter a view; return whether the push of one of the rounds `_own` has counted."""
        if self._entered is not None and self._entered[0] is not services:
            self._held = None
        self._entered = None
        settled = agree(services.enter(view), view.epoch, self._own)
        if settled.services:
            glog.info(
                f"{settled.key} counts; services that complete it now: {len(settled.services)}; "
                "all other services have completed it before"
            )
            services.commit(settled.key, view.epoch, values, settled.services)
        self._update(services, settled, values)
        self._entered, self._next = (services, view), RoundKey(view.epoch, settled.next_round)
        return settled.is_own_done

    def _update(self, services: JoinedServices, settled: RoundAgreement, values: Array) -> None:
        """Fetch the values in place, unless this trainer already has the current values."""
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

    def _check_current(self, services: JoinedServices) -> bool:
        services.check()  # the client that waits for the answers finds only the loss of its own services
        return self._is_current(services)

    def _note(self, error: EpochChangedError) -> None:
        """Enter the view again before the next push, because a service may be in another round of the same epoch."""
        self._entered = None
        self._least = max(self._least, error.epoch)

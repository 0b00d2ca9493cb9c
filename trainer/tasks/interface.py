"""The interface through which training with tasks uses the updater."""

from __future__ import annotations

from typing import Protocol

from trainer.updaters.local import Updater


class TaskUpdater(Updater, Protocol):
    """An updater for trainers that join and leave. No trainer waits for others when a pass begins or ends."""

    def set_pass(self, number: int) -> None:
        """Set the pass of the next steps. All earlier passes are over for all trainers.

        This method is also called before `finish_pass`, which only the trainer that tests or saves the pass calls.
        """

"""Record which trainers have sent their parts of a checkpoint.

In synchronous training the answers to the pushes of a round announce a checkpoint, and all trainers send their parts
after the same batch. In asynchronous training the next answer to each trainer announces the checkpoint. Requests arrive
in a different order at each service, so a trainer may send its part before this service knows of the checkpoint.

No I/O.
"""

from __future__ import annotations

from collections.abc import Collection


class CheckpointBarrier:
    """The checkpoint in progress, if any. Trainer 0 writes the checkpoint, so no checkpoint is made without trainer 0.

    Attributes: given: the trainers that have sent their parts.  due: the trainers that must still be informed.
        is_last: whether a trainer leaves after this checkpoint, so that the attempt ends with this checkpoint.
    """

    def __init__(self) -> None:
        self.given: set[int] = set()
        self.due: set[int] = set()
        self.is_last = False
        self._is_asked_again = False

    def ask(self, trainer: int, in_pass: Collection[int]) -> None:
        """Record that a trainer of the pass requests a checkpoint. All trainers except trainer 0 request a checkpoint
        only before they leave.
        """
        if 0 not in in_pass:
            return
        self.is_last |= trainer != 0
        self._is_asked_again |= trainer in self.given
        self.due = set(in_pass) - self.given

    def tell(self, trainer: int) -> bool:
        """Return whether a trainer must be informed now; each trainer is informed once."""
        if trainer not in self.due:
            return False
        self.due.discard(trainer)
        return True

    def give(self, trainer: int, in_pass: Collection[int]) -> None:
        """Record that a trainer has sent its part.

        If trainer 0 has sent its part, this service must inform the other trainers.
        """
        self.given.add(trainer)
        self.due.discard(trainer)
        if 0 in self.given:
            self.due |= set(in_pass) - self.given

    def finish(self, awaited: Collection[int]) -> bool:
        """Return whether trainer 0 and all awaited trainers have sent their parts of the checkpoint. If so, reset the
        barrier.
        """
        if 0 not in self.given or not self.given.issuperset(awaited):
            return False
        is_asked_again = self._is_asked_again
        self.clear()
        if is_asked_again:
            self.due = set(awaited)
        return True

    def clear(self) -> None:
        """Reset the barrier to its state without a checkpoint in progress."""
        self.given, self.due = set(), set()
        self.is_last = self._is_asked_again = False

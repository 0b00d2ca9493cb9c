"""Which trainers have given their parts of a checkpoint (pure).

In synchronous rounds one answer tells all trainers of a checkpoint, and all give their parts after the same batch.
In asynchronous training each is told once, with its next answer. Requests reach trainers and services in different
orders, so a trainer may give its part before this service knows that a checkpoint is wanted.
"""

from __future__ import annotations

from collections.abc import Collection


class CheckpointBarrier:
    """The checkpoint that is being made, if one is. Trainer 0 writes it, so there is none without trainer 0.

    Attributes: given: the trainers that gave their parts.  due: the trainers that are still to be told.
    """

    def __init__(self) -> None:
        self.given: set[int] = set()
        self.due: set[int] = set()
        self._is_asked_again = False

    def ask(self, trainer: int, in_pass: Collection[int]) -> None:
        """Note that a trainer of those in the pass asks for a checkpoint."""
        if 0 not in in_pass:
            return
        self._is_asked_again |= trainer in self.given
        self.due = set(in_pass) - self.given

    def tell(self, trainer: int) -> bool:
        """Return whether a trainer is to be told now; it is told once."""
        if trainer not in self.due:
            return False
        self.due.discard(trainer)
        return True

    def give(self, trainer: int, in_pass: Collection[int]) -> None:
        """Note that a trainer gave its part. When trainer 0 has, the others must hear of it from here."""
        self.given.add(trainer)
        self.due.discard(trainer)
        if 0 in self.given:
            self.due |= set(in_pass) - self.given

    def finish(self, awaited: Collection[int]) -> bool:
        """Return whether trainer 0 and all that are awaited gave their parts; then the next one may begin."""
        if 0 not in self.given or not self.given.issuperset(awaited):
            return False
        is_asked_again = self._is_asked_again
        self.clear()
        if is_asked_again:
            self.due = set(awaited)
        return True

    def clear(self) -> None:
        """Forget what there is, as the end of trainer 0's pass does."""
        self.given, self.due = set(), set()
        self._is_asked_again = False

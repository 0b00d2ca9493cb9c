"""Threads that share the work on a shard. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

Task = Callable[[], object]
Piece = TypeVar("Piece")


def run_in_turn(tasks: Sequence[Task]) -> None:
    """Do one task after the other."""
    for task in tasks:
        task()


@dataclass(frozen=True)
class Crew:
    """`run` does up to `count` tasks at the same time and returns when all are done; it raises what a task raised."""

    count: int = 1
    run: Callable[[Sequence[Task]], None] = run_in_turn

    def share(self, pieces: Sequence[Piece], work: Callable[[int, Piece], None]) -> None:
        """Call work(number of the thread, piece) for each piece; a thread that is free takes the next."""
        waiting = deque(pieces)

        def work_on(number: int) -> None:
            while True:
                try:
                    piece = waiting.popleft()
                except IndexError:
                    return
                work(number, piece)

        self.run([partial(work_on, number) for number in range(min(self.count, len(pieces)))])


ALONE = Crew()

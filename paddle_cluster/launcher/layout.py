"""The ids of the pods that run a trainer and of the pods that run a pserver. No I/O."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PodLayout:
    """The numbers of trainers and pservers, and whether pservers run in separate pods.

    Trainers run in the pods with the lowest ids. Pservers also run in the pods with the lowest ids, together with the
    trainers. If pservers run in separate pods, the ids of these pods follow the ids of the trainers' pods.
    """

    trainers: int
    pservers: int
    is_apart: bool = False

    @property
    def pods(self) -> int:
        """The number of pods that the job needs."""
        return self.trainers + self.pservers if self.is_apart else max(self.trainers, self.pservers)

    @property
    def pserver_ids(self) -> range:
        """The ids of the pods with a pserver."""
        first = self.trainers if self.is_apart else 0
        return range(first, first + self.pservers)

    def runs_trainer(self, number: int) -> bool:
        """Return whether the pod with this id has a trainer."""
        return number < self.trainers

    def runs_pserver(self, number: int) -> bool:
        """Return whether the pod with this id has a pserver."""
        return number in self.pserver_ids

    def shrunk(self, pods: int, least: int) -> PodLayout | None:
        """Return the layout for fewer pods, or None if too few pods remain.

        A pod with a trainer and a pserver keeps both programs. If pservers run in separate pods, the number of trainers
        is reduced first, down to `least`.
        Args: least: minimum number of trainers.
        """
        if not self.is_apart:
            found = PodLayout(min(self.trainers, pods), min(self.pservers, pods))
            return found if found.trainers >= least else None
        pservers = min(self.pservers, pods - least)
        return PodLayout(pods - pservers, pservers, True) if pservers > 0 else None

    def name_pod(self, number: int) -> str:
        """Return a pod's name for messages, which is `trainer <id>`, or `pserver pod <id>` without a trainer."""
        is_alone = self.runs_pserver(number) and not self.runs_trainer(number)
        return f"pserver pod {number}" if is_alone else f"trainer {number}"

    def __str__(self) -> str:
        if self.pods == self.trainers:
            return f"CONF_PADDLE_GRADIENT_NUM is {self.trainers}"
        apart = " in separate pods" if self.is_apart else ""
        return (
            f"CONF_PADDLE_GRADIENT_NUM = {self.trainers} and CONF_PADDLE_PSERVER_NUM = {self.pservers}{apart} "
            f"need {self.pods} pods"
        )

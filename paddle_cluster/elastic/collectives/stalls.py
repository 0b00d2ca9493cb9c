"""Waits for other ranks; a warning names the ranks that are missing for long, and a longer wait ends the group."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from paddle_base.runtime import glog
from paddle_cluster.elastic.collectives.mesh import SILENCE_S, Mesh
from paddle_cluster.elastic.collectives.requests import Ledger, Request, describe_stall
from paddle_cluster.elastic.collectives.waiting import WaitingRequests

STALL_S = 60.0  # seconds of a wait after which a warning names the missing ranks (Horovod's default)
STALL_END_S = 1800.0  # seconds of a wait after which a stalled group ends


@dataclass(frozen=True)
class Patience:
    """Time limits of a group in seconds.

    Attributes: stall: wait after which a warning names the missing ranks.  end: wait after which the group ends.
        silence: time without any message or heartbeat after which a rank counts as lost.
    """

    stall: float = STALL_S
    end: float = STALL_END_S
    silence: float = SILENCE_S


class StallWatch:
    """Waits for the other ranks of a group.

    Args: ledger: the requests that wait for ranks.
    Attributes: needs_news: whether the thread that drives the rounds waits for a new request of any rank.
    Raises (wait_for_all, wait_for_news): HorovodInternalError: the group has ended.
    """

    def __init__(self, mesh: Mesh, ledger: Ledger, patience: Patience) -> None:
        self.patience = patience
        self.needs_news = False
        self._mesh, self._ledger, self._others = mesh, ledger, list(mesh.peers)
        mesh.silence = patience.silence

    def wait_for_all(self, own: Sequence[Request]) -> None:
        """Wait until a message of every other rank has arrived. Args: own: the new requests of this rank."""
        began = time.monotonic()
        until = began + self.patience.stall
        while missing := self._mesh.wait_until(self._others, until):
            until = self._complain([() if rank in missing else own for rank in range(self._mesh.size)], began)

    def wait_for_news(self, waiting: WaitingRequests) -> None:
        """Wait until this rank has a new request, or another rank has announced requests."""
        self.needs_news = True  # before the first look, so that a request after the look wakes this thread
        try:
            self._wait_for_news(waiting)
        finally:
            self.needs_news = False

    def _wait_for_news(self, waiting: WaitingRequests) -> None:
        began = time.monotonic()
        until = began + self.patience.stall
        while not waiting.new and len(self._mesh.missing(self._others)) == len(self._others):
            self._mesh.check()
            self._mesh.turn(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                until = self._complain([()] * self._mesh.size, began)

    def _complain(self, new: Sequence[Sequence[Request]], began: float) -> float:
        """Log the ranks for which this rank waits, or end the group if the wait has been too long.

        Args: new: by rank, requests that the rank has announced in this round.
        Returns: time of the next log line, in seconds of `time.monotonic`.
        """
        now = time.monotonic()
        announced = [[*self._ledger.list_pending(rank), *new[rank]] for rank in range(self._mesh.size)]
        text = describe_stall(announced, self._mesh.rank, now - began)
        if now - began >= self.patience.end:
            self._mesh.fail(text)
        glog.warning(f"{text}; every rank has to call the same collectives")
        return now + self.patience.stall

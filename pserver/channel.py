"""One service as its client sees it: the data connection, and which elements of the flat vector lie there."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import zmq

from pserver.blocks import Run
from pserver.protocol import Buffer
from pserver.rules import Array


class Channel:
    """The data connection to one service, and what of the flat vector lies there."""

    def __init__(self, socket: zmq.Socket[bytes], host: str, port: int, runs: Sequence[Run]) -> None:
        self.socket = socket
        self.name = f"pserver {host}:{port}"
        self.runs = runs
        self.size = sum(run.length * run.count for run in runs)
        self.buffer = np.empty(self.size, np.float32) if len(runs) > 1 or (runs and runs[0].count > 1) else None
        self.nonce = secrets.token_hex(16)
        self.last = "said nothing yet"
        self.waits_for = ""
        self._views: dict[int, tuple[Array, list[Array]]] = {}

    def gather(self, flat: Array) -> Buffer:
        """Return this service's elements of the flat vector: the vector's own memory where they lie together."""
        if self.buffer is None:
            part = flat[self.runs[0].flat : self.runs[0].flat + self.size] if self.runs else flat[:0]
            return part.view("B").data
        for run, view in zip(self.runs, self._view(flat), strict=True):
            np.copyto(self.buffer[run.local : run.local + run.length * run.count].reshape(view.shape), view)
        return self.buffer.view("B").data

    def scatter(self, part: Array, flat: Array) -> None:
        """Write this service's elements into the flat vector."""
        for run, view in zip(self.runs, self._view(flat), strict=True):
            np.copyto(view, part[run.local : run.local + run.length * run.count].reshape(view.shape))

    def _view(self, flat: Array) -> list[Array]:
        """Return one strided view for each run; those of the last few arrays are kept."""
        known = self._views.get(id(flat))
        if known is None or known[0] is not flat:
            if len(self._views) >= 8:
                self._views.clear()
            views = [
                np.lib.stride_tricks.as_strided(flat[run.flat :], (run.count, run.length), (run.stride * 4, 4))
                for run in self.runs
            ]
            known = self._views[id(flat)] = (flat, views)
        return known[1]

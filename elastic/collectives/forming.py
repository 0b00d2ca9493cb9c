"""The forming of a group from a plan: its connections, and the path of its arrays."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

from elastic.collectives import joining
from elastic.collectives.frames import Frame, FrameKind
from elastic.collectives.fusion import Batch
from elastic.collectives.group import Patience, RankGroup
from elastic.collectives.joining import AddressStore, GroupPlan
from elastic.collectives.memory import SLOT_BYTES, MemoryPath
from elastic.collectives.mesh import Mesh
from elastic.collectives.requests import CollectiveKind
from elastic.collectives.sockets import SocketPath
from pserver.wire.shared_memory import SharedMemory
from runtime.bounded_json import BoundedJsonError, parse_bounded


class AlonePath:
    """The path of a group with a single rank, which sends nothing."""

    def announce(self, note: bytes, batch: Batch) -> int:
        """Announce nothing."""
        return 0

    def take_announcements(self) -> list[Frame]:
        """Return an empty list."""
        return []

    def run(self, batch: Batch, frames: list[Frame] | None) -> None:
        """Copy the arrays."""
        for entry in batch.entries:
            if batch.kind != CollectiveKind.BARRIER and entry.source is not entry.target:
                entry.target[...] = entry.source


def form(
    plan: GroupPlan, store: AddressStore | None, patience: Patience | None = None, *, with_memory: bool = True
) -> RankGroup:
    """Wait until all ranks have connected, and return the group.

    Args: store: store of the ranks' addresses; a group with a single rank needs no store.  with_memory: False: use only
        connections, and no shared memory.
    Raises: HorovodInternalError: a rank has not connected in time, or is lost.
    """
    if plan.size == 1 or store is None:
        return RankGroup(Mesh(0, {}), AlonePath(), patience)
    deadline = time.monotonic() + plan.timeout
    mesh = joining.join(plan, store)
    memories = _share(mesh, with_memory, deadline)
    if memories is not None:
        return RankGroup(mesh, MemoryPath(mesh, memories, plan.timeout), patience)
    return RankGroup(mesh, SocketPath(mesh, plan.timeout), patience)


def _share(mesh: Mesh, with_memory: bool, deadline: float) -> Mapping[int, SharedMemory] | None:
    """Return the memories of all ranks by rank, or None if not every rank can open all of them."""
    own: SharedMemory | None = None
    if with_memory:
        with contextlib.suppress(OSError):
            own = SharedMemory.make(SLOT_BYTES)
    offers = _exchange(mesh, 0, {"memory": own and own.offer}, deadline)
    memories = {} if own is None else {mesh.rank: own}
    if own is not None:
        for number, offer in offers.items():
            memory = offer.get("memory")
            if isinstance(memory, dict) and memory.get("length") == SLOT_BYTES:
                opened = SharedMemory.open(memory)
                if opened is not None:
                    memories[number] = opened
    has_all = len(memories) == mesh.size
    answers = _exchange(mesh, 1, {"opened": has_all}, deadline)
    if own is not None:
        own.close()  # every rank has opened the memory by now, or never will
    return memories if has_all and all(one.get("opened") is True for one in answers.values()) else None


def _exchange(mesh: Mesh, number: int, note: Mapping[str, Any], deadline: float) -> dict[int, dict[str, Any]]:
    for rank in mesh.peers:
        mesh.send(rank, FrameKind.HELLO, number, json.dumps(note).encode())
    ranks = list(mesh.peers)
    frames = mesh.collect(FrameKind.HELLO, number, ranks, deadline)
    answers = {}
    for rank, frame in zip(ranks, frames, strict=True):
        try:
            answers[rank] = parse_bounded(frame.note, depth=4, values=64)
        except BoundedJsonError as exc:
            mesh.fail(f"rank {rank} said hello by a note {exc}")
    return answers

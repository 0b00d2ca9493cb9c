"""Forms a group of ranks from a plan: connects the ranks, and chooses the path on which their arrays are sent."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paddle_base.runtime.bounded_json import BoundedJsonError, is_integer, parse_bounded
from paddle_base.runtime.errors import ConfigError
from paddle_cluster.elastic.collectives import joining
from paddle_cluster.elastic.collectives.frames import FrameKind
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.joining import AddressStore, GroupPlan
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.paths import SLOT_BYTES, ArrayPath, HostsPath, MemoryPath, SocketPath
from paddle_cluster.elastic.collectives.stalls import Patience
from pserver.wire.shared_memory import SharedMemory


def form(
    plan: GroupPlan,
    store: AddressStore | None,
    patience: Patience | None = None,
    *,
    near: Collection[int] | None = None,
    beside: RankGroup | None = None,
) -> RankGroup:
    """Wait until all ranks have connected, and return the group.

    Args: store: contains the addresses of the ranks; a group with a single rank needs no store.  near: the other ranks
        that may share memory with this rank; None: all ranks of this host.  beside: the group of all ranks, if this one
        is that of a process set.
    Raises: HorovodInternalError: a rank has not connected in time, or is lost.  ConfigError: the ranks have different
        terms.
    """
    if plan.size == 1 or store is None:
        mesh = Mesh(0, {})
        return RankGroup(mesh, ArrayPath(mesh), patience, beside)
    deadline = time.monotonic() + plan.timeout
    mesh = joining.join(plan, store) if beside is None else joining.join(plan, store, beside.check)
    try:
        memories, hosts = _share(mesh, plan.terms, mesh.peers.keys() if near is None else near, deadline)
    except BaseException:
        mesh.leave()  # closes the connections if no failure has closed them
        raise
    path: ArrayPath = SocketPath(mesh, plan.timeout)
    if len(hosts) == 1:
        path = MemoryPath(mesh, memories, plan.timeout)
    elif len(hosts) < mesh.size:
        path = HostsPath(mesh, hosts, memories, plan.timeout)
    return RankGroup(mesh, path, patience, beside)


def find_hosts(opened: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the ranks of each host.

    A set of ranks is on one host if each of its ranks can open the memory of exactly this set.

    Args: opened: for each rank, the ranks whose memory it can open, including the rank itself.
    """
    sets = [frozenset(one) for one in opened]
    hosts: dict[frozenset[int], list[int]] = {}
    for rank, one in enumerate(sets):
        is_mutual = rank in one and all(number < len(sets) and sets[number] == one for number in one)
        hosts.setdefault(one if is_mutual else frozenset([rank]), []).append(rank)
    return list(hosts.values())


def _share(
    mesh: Mesh, terms: str, near: Collection[int], deadline: float
) -> tuple[Mapping[int, SharedMemory], list[list[int]]]:
    """Open the shared memory of the near ranks; return the opened memories by rank, and the ranks of each host."""
    own: SharedMemory | None = None
    if near:
        with contextlib.suppress(OSError):
            own = SharedMemory.make(SLOT_BYTES)
    try:
        return _open_all(mesh, terms, own, near, deadline)
    finally:
        if own is not None:
            own.close()  # no other rank opens the memory from now on


def _open_all(
    mesh: Mesh, terms: str, own: SharedMemory | None, near: Collection[int], deadline: float
) -> tuple[Mapping[int, SharedMemory], list[list[int]]]:
    digest = hashlib.sha256(terms.encode()).hexdigest()
    offers = _exchange(mesh, 0, {"memory": own and own.offer, "terms": digest}, deadline)
    others = [str(number) for number, offer in offers.items() if offer.get("terms") != digest]
    if others:  # every rank finds a difference, because all have got the same offers
        raise ConfigError(
            f"rank {mesh.rank} has other settings than rank {', '.join(others[:8])}: {terms[:200]}; let every rank "
            "call hvd.init with the same process_sets"
        )
    memories = {} if own is None else {mesh.rank: own}
    if own is not None:
        for number, offer in offers.items():
            memory = offer.get("memory")
            if number in near and isinstance(memory, dict) and memory.get("length") == SLOT_BYTES:
                opened = SharedMemory.open(memory)
                if opened is not None:
                    memories[number] = opened
    answers = _exchange(mesh, 1, {"opened": sorted(memories)}, deadline)
    sets = {rank: _read_ranks(one.get("opened"), mesh.size) for rank, one in answers.items()} | {mesh.rank: memories}
    return memories, find_hosts([sets[rank] for rank in range(mesh.size)])


def _read_ranks(found: Any, size: int) -> Collection[int]:
    is_list = isinstance(found, list) and all(is_integer(one, 0, size - 1) for one in found)
    return found if is_list else ()


def _exchange(mesh: Mesh, number: int, note: Mapping[str, Any], deadline: float) -> dict[int, dict[str, Any]]:
    for rank in mesh.peers:
        mesh.send(rank, FrameKind.HELLO, number, json.dumps(note).encode())
    ranks = list(mesh.peers)
    frames = mesh.collect(FrameKind.HELLO, number, ranks, deadline)
    answers = {}
    for rank, frame in zip(ranks, frames, strict=True):
        try:
            answers[rank] = parse_bounded(frame.note, depth=4, values=64 + mesh.size)
        except BoundedJsonError as exc:
            mesh.fail(f"rank {rank} sent a HELLO message with a note {exc}")
    return answers

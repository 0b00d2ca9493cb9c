"""Collectives in about log2(size) steps: reductions of small arrays, and broadcasts of arrays of any size.

All-reduce uses recursive doubling. In every step two ranks exchange their partial results. Both ranks reduce the two
results in the order of the ranks, so both get the same bits. If the number of ranks is not a power of two, the surplus
ranks first send their arrays to a neighbour, which sends the result back at the end.

Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005.
"""

from __future__ import annotations

import time

import numpy as np

from paddle_cluster.elastic.collectives import arithmetic
from paddle_cluster.elastic.collectives.algorithms.ring import cut
from paddle_cluster.elastic.collectives.arithmetic import Flat
from paddle_cluster.elastic.collectives.frames import FrameKind
from paddle_cluster.elastic.collectives.mesh import AnyMesh
from paddle_cluster.elastic.collectives.requests import Reduction


def reduce(mesh: AnyMesh, sequence: int, work: Flat, reduction: int, timeout: float) -> None:
    """Replace the array of every rank by the reduction of all arrays; an array must fit into a single message."""
    rank, size = mesh.rank, mesh.size
    power = 1 << (size.bit_length() - 1)
    extra = size - power
    is_paired = rank < 2 * extra
    if is_paired and rank % 2:
        _send(mesh, rank - 1, sequence, work)
        work[...] = _receive(mesh, rank - 1, sequence, work, timeout)
        return
    if is_paired:
        arithmetic.fold(work, work, _receive(mesh, rank + 1, sequence, work, timeout), reduction)
    place = rank // 2 if is_paired else rank - extra
    distance = 1
    while distance < power:
        other = place ^ distance
        partner = 2 * other if other < extra else other + extra
        _send(mesh, partner, sequence, work)
        theirs = _receive(mesh, partner, sequence, work, timeout)
        first, second = (work, theirs) if rank < partner else (theirs, work)
        mesh.flush(time.monotonic() + timeout)  # the sent message refers to this array, which changes now
        arithmetic.fold(work, first, second, reduction)
        distance *= 2
    if reduction == Reduction.AVERAGE:
        arithmetic.divide(work, size)
    if is_paired:
        _send(mesh, rank + 1, sequence, work)
    mesh.flush(time.monotonic() + timeout)


def broadcast(mesh: AnyMesh, sequence: int, work: Flat, root: int, timeout: float) -> None:
    """Send the array of the root to every rank by a binomial tree, piece by piece."""
    size = mesh.size
    place = (mesh.rank - root) % size
    lowest = place & -place if place else 1 << size.bit_length()
    steps = [1 << bit for bit in range(size.bit_length()) if 1 << bit < lowest and place + (1 << bit) < size]
    children = [(place + step + root) % size for step in reversed(steps)]
    parent = (place - lowest + root) % size
    view = work.view(np.uint8).data
    pieces = cut(0, len(view), 1)
    if place:
        for number, (begin, end) in enumerate(pieces):
            mesh.peers[parent].expected[sequence, number] = view[begin:end]
    for number, (begin, end) in enumerate(pieces):
        if place:
            mesh.wait([parent], time.monotonic() + timeout)
            payload = mesh.take(parent, FrameKind.DATA, sequence, number).payload
            if payload.nbytes != end - begin:
                mesh.fail(f"rank {parent} sent a piece of {payload.nbytes} bytes in place of {end - begin}")
            if mesh.peers[parent].expected.pop((sequence, number), None) is not None:
                view[begin:end] = payload
        for child in children:
            mesh.send(child, FrameKind.DATA, sequence, b"", [view[begin:end]], number)
    mesh.flush(time.monotonic() + timeout)


def _send(mesh: AnyMesh, rank: int, sequence: int, work: Flat) -> None:
    mesh.send(rank, FrameKind.DATA, sequence, b"", [work.view(np.uint8).data])


def _receive(mesh: AnyMesh, rank: int, sequence: int, work: Flat, timeout: float) -> Flat:
    mesh.wait([rank], time.monotonic() + timeout)
    payload = mesh.take(rank, FrameKind.DATA, sequence).payload
    if payload.nbytes != work.nbytes:
        mesh.fail(f"rank {rank} sent {payload.nbytes} bytes in place of {work.nbytes}")
    return np.frombuffer(payload, work.dtype)

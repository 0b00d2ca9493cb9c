"""Lay out a directed graph in rows. Edges lead downwards and seldom cross (Sugiyama, Tagawa, Toda 1981).

The rank of a node is the length of the longest path to the node. Each rank is a row. The nodes of a row are ordered by
the mean place of their neighbours. A node is placed as close to the mean place of its neighbours as the other nodes
allow. Only the edges that close a cycle lead upwards.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Edge = tuple[str, str]
Node = str | tuple[Edge, int]  # a node stands for a layer, or for the point where a long edge passes through a rank
SWEEPS = 8  # number of times that all rows are ordered, and that all rows are placed
GAP_X, GAP_Y = 22.0, 24.0  # distances between nodes of a row, and between rows


@dataclass
class Layout:
    """The centre of each node, measured from the upper left corner, and the points through which each edge leads."""

    places: dict[str, tuple[float, float]]
    ways: dict[Edge, list[tuple[float, float]]]
    turned: set[Edge]
    width: float
    height: float


@dataclass
class _Rows:
    """The nodes of each rank, including the points at which long edges pass through the rank."""

    rows: list[list[Node]]
    above: dict[Node, list[Node]] = field(default_factory=lambda: defaultdict(list))
    below: dict[Node, list[Node]] = field(default_factory=lambda: defaultdict(list))


def lay_out(
    widths: Mapping[str, float], edges: Sequence[Edge], back: set[Edge], groups: Mapping[str, str], height: float
) -> Layout:
    """Return the layout of a graph.

    Args: widths: the width of each node; nodes keep this order if no other rule determines their order. edges: pairs
        (from, to) of distinct nodes. back: the edges that lead upwards. groups: the group of each node that belongs to
        a group; the nodes of a group are placed together. height: the height of every node.
    """
    turned = back | find_circles(list(widths), [edge for edge in edges if edge not in back])
    down = {edge: edge[::-1] if edge in turned else edge for edge in edges}
    forward = list(dict.fromkeys(down.values()))
    ranks = rank(list(widths), forward)
    graph = _fill_rows(list(widths), forward, ranks)
    _order(graph, groups)
    xs = _place(graph, widths)
    sides = {node: widths[node] / 2 if isinstance(node, str) else 0.0 for node in xs}
    left = min((xs[node] - side for node, side in sides.items()), default=0.0)
    right = max((xs[node] + side for node, side in sides.items()), default=0.0)
    ys = [index * (height + GAP_Y) + height / 2 for index in range(len(graph.rows))]
    spots = {node: (xs[node] - left, ys[index]) for index, row in enumerate(graph.rows) for node in row}
    ways: dict[Edge, list[tuple[float, float]]] = {}
    for edge, (start, end) in down.items():
        passed = [spots[((start, end), index)] for index in range(ranks[start] + 1, ranks[end])]
        way = [spots[start], *passed, spots[end]]
        ways[edge] = way[::-1] if edge in turned else way
    places = {node: spot for node, spot in spots.items() if isinstance(node, str)}
    return Layout(places, ways, turned, right - left, max(len(ys) * (height + GAP_Y) - GAP_Y, 0.0))


def find_circles(nodes: Sequence[str], edges: Sequence[Edge]) -> set[Edge]:
    """Return edges without which the graph has no cycle. They are the back edges of a depth-first search."""
    following: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        following[start].append(end)
    found: set[Edge] = set()
    state: dict[str, int] = {}  # 1 for a node on the path from the root, 2 for a node that the search has left
    for root in nodes:
        stack = [(root, iter(following[root]))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            node, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                state[node] = 2
                stack.pop()
            elif step not in state:
                state[step] = 1
                stack.append((step, iter(following[step])))
            elif state[step] == 1:
                found.add((node, step))
    return found


def rank(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the rank of each node. A node without incoming edges gets the rank directly above its first use."""
    above: dict[str, list[str]] = defaultdict(list)
    below: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        below[start].append(end)
        above[end].append(start)
    waiting = {node: len(above[node]) for node in nodes}
    ready = [node for node in nodes if not waiting[node]]
    ranks: dict[str, int] = {}
    for node in ready:  # the loop appends further nodes to this list
        ranks[node] = max((ranks[one] + 1 for one in above[node]), default=0)
        for one in below[node]:
            waiting[one] -= 1
            if not waiting[one]:
                ready.append(one)
    for node in nodes:
        if not above[node] and below[node]:
            ranks[node] = min(ranks[one] for one in below[node]) - 1
    return ranks


def _fill_rows(nodes: Sequence[str], edges: Sequence[Edge], ranks: Mapping[str, int]) -> _Rows:
    graph = _Rows([[] for _ in range(max(ranks.values(), default=-1) + 1)])
    for node in nodes:
        graph.rows[ranks[node]].append(node)
    for start, end in edges:
        way: list[Node] = [start]
        for index in range(ranks[start] + 1, ranks[end]):
            passing = ((start, end), index)
            graph.rows[index].append(passing)
            way.append(passing)
        way.append(end)
        for upper, lower in itertools.pairwise(way):
            graph.below[upper].append(lower)
            graph.above[lower].append(upper)
    return graph


def _order(graph: _Rows, groups: Mapping[str, str]) -> None:
    """Sort each row by the mean place of the neighbours, alternately downwards and upwards. Keep groups together."""
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        neighbours = graph.above if is_down else graph.below
        rows = graph.rows if is_down else graph.rows[::-1]
        for fixed, row in itertools.pairwise(rows):
            index = {node: place for place, node in enumerate(fixed)}
            means = {
                node: _mean([index[one] for one in neighbours[node]], default=place) for place, node in enumerate(row)
            }
            members: dict[str, list[float]] = defaultdict(list)
            for node in row:
                members[_group(node, groups)].append(means[node])
            shared = {group: _mean(values, 0.0) for group, values in members.items() if group}
            row.sort(
                key=lambda node: (shared.get(_group(node, groups), means[node]), _group(node, groups), means[node])
            )


def _group(node: Node, groups: Mapping[str, str]) -> str:
    if isinstance(node, str):
        return groups.get(node, "")
    start, end = (groups.get(one, "") for one in node[0])
    return start if start == end else ""


def _place(graph: _Rows, widths: Mapping[str, float]) -> dict[Node, float]:
    """Return the horizontal centre of each node, in the order of its row."""
    xs: dict[Node, float] = {}

    def half(node: Node) -> float:
        return widths[node] / 2 if isinstance(node, str) else 4.0

    def settle(row: list[Node], wanted: Sequence[float]) -> None:
        """Place the nodes of a row as close to the wanted places as the order and the widths of the nodes allow."""
        placed: list[float] = []
        for node, x in zip(row, wanted, strict=True):
            least = placed[-1] + half(row[len(placed) - 1]) + GAP_X + half(node) if placed else x
            placed.append(max(x, least))
        shift = _mean([x - y for x, y in zip(wanted, placed, strict=True)], 0.0)
        xs.update({node: x + shift for node, x in zip(row, placed, strict=True)})

    for row in graph.rows:
        settle(row, [0.0] * len(row))
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        neighbours = graph.above if is_down else graph.below
        for row in graph.rows if is_down else graph.rows[::-1]:
            settle(row, [_mean([xs[one] for one in neighbours[node]], xs[node]) for node in row])
    return xs


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default

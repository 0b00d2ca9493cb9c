"""Draw the layers of a configuration as a graph. If there are too many layers, the page has only a table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.records.records import Record
from trainer.report.charts.layout import Edge, Layout, lay_out
from trainer.report.html.markup import Markup, tag
from trainer.report.html.text import count, shorten, whole

MOST = 150  # maximum number of layers in a picture
HIGH = 36.0  # height of the box of a layer, in units of the SVG
NAME, KIND = 7.0, 6.1  # widths of a letter in the first line and in the second line of a box, in units of the SVG
LONGEST = 30  # maximum number of letters in a line of a box
MARGIN = 10.0
BESIDE = 12.0  # distance of an upward edge from the downward edges, in units of the SVG


@dataclass(frozen=True)
class GraphLayer:
    """A layer in a start record.

    `memory_of` is the name of the layer whose output of the previous step this layer passes on, or "".
    """

    name: str
    type: str
    size: int
    inputs: list[str]
    parameters: list[str]
    active_type: str
    memory_of: str = ""

    @property
    def group(self) -> str:
        """The recurrent group of the layer, which is the part of its name after the @, or ""."""
        return self.name.partition("@")[2]

    @property
    def shown(self) -> str:
        """The name of the layer without the group."""
        return self.name.partition("@")[0] or self.name

    @property
    def kind(self) -> str:
        """The layer's type, size and activation as text."""
        parts = [self.type, count(self.size) if self.size else "", self.active_type]
        return " · ".join(part for part in parts if part)


def read_layers(start: Record) -> list[GraphLayer]:
    """Return the layers that a start record names; skip entries that are not layers."""
    layers = start.get("layers")
    found: dict[str, GraphLayer] = {}
    for one in layers if isinstance(layers, list) else []:
        if isinstance(one, dict) and one.get("name"):
            name = str(one["name"])
            found[name] = GraphLayer(
                name,
                str(one.get("type", "")),
                whole(one.get("size")),
                _names(one.get("inputs")),
                _names(one.get("parameters")),
                str(one.get("active_type") or ""),
                str(one.get("memory_of") or ""),
            )
    return list(found.values())


def connect(layers: Sequence[GraphLayer]) -> tuple[list[Edge], set[Edge]]:
    """Return all edges between layers, and those edges that lead to the next step of a recurrent group."""
    known = {layer.name for layer in layers}
    edges = [(source, layer.name) for layer in layers for source in layer.inputs]
    memories = [(layer.memory_of, layer.name) for layer in layers]
    valid = [edge for edge in dict.fromkeys([*edges, *memories]) if edge[0] in known and edge[0] != edge[1]]
    return valid, {edge for edge in memories if edge in set(valid)}


def draw_graph(layers: Sequence[GraphLayer]) -> Markup | None:
    """Return the picture of the layers, or None if there is no layer or there are more than MOST layers."""
    edges, memories = connect(layers)
    linked = {name for edge in edges for name in edge}
    shown = [layer for layer in layers if layer.type != "recurrent_layer_group" or layer.name in linked]
    if not shown or len(shown) > MOST:
        return None
    widths = {layer.name: _width(layer) for layer in shown}
    groups = {layer.name: layer.group for layer in shown if layer.group}
    layout = lay_out(widths, edges, memories, groups, HIGH)
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    box = f"{-MARGIN:g} {-MARGIN:g} {width:.0f} {height:.0f}"
    return tag(
        "svg",
        *_frames(layout, widths, groups),
        *(_draw_edge(layout, edge) for edge in edges),
        *(_draw_node(layer, layout.places[layer.name], widths[layer.name]) for layer in shown),
        class_="graph",
        viewBox=box,
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        aria_label=f"graph of {len(shown)} layers; the table below has them as text",
    )


def _names(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _width(layer: GraphLayer) -> float:
    name, kind = min(len(layer.shown), LONGEST), min(len(layer.kind), LONGEST)
    return max(name * NAME, kind * KIND, 40.0) + 18


def _draw_node(layer: GraphLayer, place: tuple[float, float], width: float) -> Markup:
    x, y = place
    style = "data" if layer.type == "data" else "weights" if layer.parameters else "plain"
    full = f"{layer.name}: {layer.kind}" + (f"; parameters {', '.join(layer.parameters)}" if layer.parameters else "")
    return tag(
        "g",
        tag("title", full),
        tag(
            "rect", x=f"{x - width / 2:.1f}", y=f"{y - HIGH / 2:.1f}", width=f"{width:.1f}", height=f"{HIGH:g}", rx="5"
        ),
        tag("text", shorten(layer.shown, LONGEST), x=f"{x:.1f}", y=f"{y - 3:.1f}", class_="name"),
        tag("text", shorten(layer.kind, LONGEST), x=f"{x:.1f}", y=f"{y + 11:.1f}", class_="kind"),
        class_=f"node {style}{' inside' if layer.group else ''}",
    )


def _draw_edge(layout: Layout, edge: Edge) -> Markup:
    way = layout.ways[edge]
    is_back = edge in layout.turned
    sign = -1.0 if is_back else 1.0
    if is_back:  # an upward edge is drawn beside the downward edges of its nodes
        way = [(x + BESIDE, y) for x, y in way]
    x, y = way[0][0], way[0][1] + sign * HIGH / 2
    path = [f"M{x:.1f} {y:.1f}"]
    for index, (next_x, next_y) in enumerate(way[1:], 1):
        ends = index == len(way) - 1
        next_y -= sign * HIGH / 2
        middle = (y + next_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
        if not ends:  # the edge crosses the row vertically
            y += sign * HIGH
            path.append(f"V{y:.1f}")
    path.append(f"m-3 {-5 * sign:g}l3 {5 * sign:g}l3 {-5 * sign:g}")
    return tag("path", d="".join(path), class_="edge back" if is_back else "edge")


def _frames(layout: Layout, widths: Mapping[str, float], groups: Mapping[str, str]) -> list[Markup]:
    """Return a frame around each group. A group has no frame if the frame would enclose other layers."""
    frames = []
    for group in dict.fromkeys(groups.values()):
        inside = [name for name in groups if groups[name] == group]
        left = min(layout.places[name][0] - widths[name] / 2 for name in inside) - 7
        right = max(layout.places[name][0] + widths[name] / 2 for name in inside) + 7
        top = min(layout.places[name][1] for name in inside) - HIGH / 2 - 9
        bottom = max(layout.places[name][1] for name in inside) + HIGH / 2 + 9
        is_alone = not any(
            left < x + widths[name] / 2 and x - widths[name] / 2 < right and top < y < bottom
            for name, (x, y) in layout.places.items()
            if groups.get(name) != group
        )
        if is_alone:
            frames.append(
                tag(
                    "g",
                    tag("title", f"recurrent group {group}"),
                    tag(
                        "rect",
                        x=f"{left:.1f}",
                        y=f"{top:.1f}",
                        width=f"{right - left:.1f}",
                        height=f"{bottom - top:.1f}",
                        rx="8",
                    ),
                    class_="group",
                )
            )
    return frames

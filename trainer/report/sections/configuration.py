"""The section of a job's configuration: the graph of layers, the sizes of parameters, the settings and the flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.records.records import Record
from trainer.report.charts.graph import MOST, draw_graph, read_layers
from trainer.report.html.markup import Markup, join, tag
from trainer.report.html.tables import make_pairs, make_table
from trainer.report.html.text import count, general, number, shorten, size, whole

MOST_ROWS = 1000  # maximum number of rows in the tables of layers and of parameters
VALUE_BYTES = 4  # float32


def show_configuration(start: Record) -> Markup | None:
    """Return the section of the configuration in a start record; None if the record describes no configuration."""
    beside = [tag("div", part) for part in (_show_settings(start), _show_flags(start)) if part]
    parts = [_show_graph(start), _show_parameters(start), tag("div", *beside, class_="beside") if beside else ""]
    shown = [part for part in parts if part]
    return join(shown) if shown else None


def _show_graph(start: Record) -> Markup:
    layers = read_layers(start)
    if not layers:
        return Markup("")
    graph = draw_graph(layers)
    rows = [
        [one.name, one.type, count(one.size), one.active_type, ", ".join(one.inputs), ", ".join(one.parameters)]
        for one in layers[:MOST_ROWS]
    ]
    heads = ["layer", "type", "size", "activation", "inputs", "parameters"]
    left_out = f", the first {MOST_ROWS}" if len(layers) > MOST_ROWS else ""
    table = make_table(f"Layers{left_out}", heads, rows, words=6)
    title = tag("h3", f"{len(layers)} layers")
    if graph is None:
        return join([title, tag("p", f"A graph of more than {MOST} layers is not drawn; see the table."), table])
    picture = tag("div", graph, class_="scroll tall", tabindex="0", role="region", aria_label="Graph of layers")
    words = ["blue: has parameters", "grey: data"]
    if any(layer.group for layer in layers):
        words += ["dashed border: in a recurrent group", "orange: leads to the next step"]
    legend = tag("p", "; ".join(words), class_="quiet")
    return join([title, picture, legend, tag("details", tag("summary", "the layers as a table"), table)])


def _show_parameters(start: Record) -> Markup:
    parameters = [one for one in _list(start.get("parameters")) if isinstance(one, dict)]
    if not parameters:
        return Markup("")
    sizes = [whole(one.get("size")) for one in parameters]
    trained = sum(each for each, one in zip(sizes, parameters, strict=True) if not one.get("is_static"))
    rows = [
        [
            str(one.get("name", "")),
            " × ".join(general(each) for each in _list(one.get("dims"))),
            ", ".join(word for word in ("static", "sparse") if one.get(f"is_{word}")) or "dense",
            count(each),
            size(each * VALUE_BYTES),
        ]
        for one, each in list(zip(parameters, sizes, strict=True))[:MOST_ROWS]
    ]
    total = ["total", "", "", count(sum(sizes)), size(sum(sizes) * VALUE_BYTES)]
    title = tag("h3", f"{count(sum(sizes))} values in {len(parameters)} parameters")
    fixed = sum(sizes) - trained
    left_out = f", the first {MOST_ROWS}" if len(parameters) > MOST_ROWS else ""
    return join(
        [
            title,
            tag("p", f"{count(trained)} are trained, {count(fixed)} are static.") if fixed else "",
            make_table(
                f"Parameters{left_out}",
                ["parameter", "dimensions", "kind", "values", "bytes"],
                rows,
                words=3,
                total=total,
            ),
        ]
    )


def _show_settings(start: Record) -> Markup:
    method = start.get("method")
    if not isinstance(method, dict) or not method:
        return Markup("")
    pairs = [(str(name), _spell(value)) for name, value in method.items()]
    return join([tag("h3", "Settings"), make_pairs("Settings of the config", pairs)])


def _show_flags(start: Record) -> Markup:
    flags = start.get("flags")
    pairs: list[tuple[object, object]] = []
    if start.get("config"):
        pairs.append(("config", _spell(start["config"])))
    if number(start.get("trainers")) is not None:
        pairs.append(("trainers", count(start["trainers"])))
    if isinstance(flags, dict):
        pairs += [(f"--{name}", _spell(value)) for name, value in sorted(flags.items())]
    return join([tag("h3", "Flags"), make_pairs("Flags of the trainer", pairs)]) if pairs else Markup("")


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return general(value) if isinstance(value, int | float) else shorten(value, 2000)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []

"""Tables that scroll within their own area. A page with wide tables then fits on a phone."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.report.html.markup import Markup, breakable, tag


class HiddenCaption(str):
    """A caption that only screen readers read. All other readers see the same words in the heading."""


def make_table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    words: int = 1,
    total: Sequence[object] = (),
    style: str | None = None,
    marked: int | None = None,
) -> Markup:
    """Return a table.

    Args: words: the number of leading columns that hold text; all further columns hold numbers. total: the cells of an
        additional last row, or (). marked: the index of the row to highlight, or None.
    """
    styles = ["word" if place < words else None for place in range(len(heads))]

    def row(cells: Sequence[object], is_marked: bool = False) -> Markup:
        first = tag("th", cells[0], scope="row", class_=styles[0])
        others = (tag("td", cell, class_=style) for cell, style in zip(cells[1:], styles[1:], strict=True))
        return tag("tr", first, *others, class_="marked" if is_marked else None)

    head = tag(
        "tr",
        *(tag("th", breakable(text), scope="col", class_=style) for text, style in zip(heads, styles, strict=True)),
    )
    parts = [
        tag("caption", caption, class_="unseen" if isinstance(caption, HiddenCaption) else None),
        tag("thead", head),
        tag("tbody", *(row(cells, place == marked) for place, cells in enumerate(rows))),
    ]
    if total:
        parts.append(tag("tfoot", row(total)))
    return tag(
        "div",
        tag("table", *parts, class_=style or (None if words else "steady")),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=f"table: {caption}",  # without "table: " the label could equal the section's heading
    )


def make_pairs(caption: str, pairs: Sequence[tuple[object, object]]) -> Markup:
    """Return a table of names and values."""
    return make_table(HiddenCaption(caption), ["name", "value"], pairs, words=2, style="pairs")

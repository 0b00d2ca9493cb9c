"""Tables that scroll in their own place, so that a page of them fits on a phone."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.report.markup import Markup, breakable, tag


def make_table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    words: int = 1,
    total: Sequence[object] = (),
    is_titled: bool = False,
    style: str | None = None,
) -> Markup:
    """Return a table.

    Args: words: how many of the first columns are text; the others are numbers.  total: a last row.
        is_titled: a heading says what the caption says, which is then only for those who cannot see it.
    """
    styles = ["word" if place < words else None for place in range(len(heads))]

    def row(cells: Sequence[object]) -> Markup:
        first = tag("th", cells[0], scope="row", class_=styles[0])
        others = (tag("td", cell, class_=style) for cell, style in zip(cells[1:], styles[1:], strict=True))
        return tag("tr", first, *others)

    head = tag(
        "tr",
        *(tag("th", breakable(text), scope="col", class_=style) for text, style in zip(heads, styles, strict=True)),
    )
    parts = [
        tag("caption", caption, class_="unseen" if is_titled else None),
        tag("thead", head),
        tag("tbody", *(row(cells) for cells in rows)),
    ]
    if total:
        parts.append(tag("tfoot", row(total)))
    return tag(
        "div", tag("table", *parts, class_=style), class_="scroll", tabindex="0", role="region", aria_label=caption
    )


def make_pairs(caption: str, pairs: Sequence[tuple[object, object]]) -> Markup:
    """Return a table of names and values."""
    return make_table(caption, ["name", "value"], pairs, words=2, is_titled=True, style="pairs")

"""The parts of pages that are made from the code: `make docs` writes them, a test compares them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import export_table
from autoscale import published

from docpages import measures, options, series
from docpages.blocks import ROOT

BEGIN, END = "<!-- made by: make docs -->", "<!-- end -->"
MAKERS: dict[str, Callable[[], str]] = {
    "docs/autoscaler.md": published.make_table,
    "docs/evaluators.md": measures.make_list,
    "docs/export.md": export_table.make_table,
    "docs/flags.md": options.make_flags,
    "docs/localcluster.md": options.make_localcluster,
    "docs/metrics.md": series.make_list,
    "docs/variables.md": options.make_variables,
}


def current(page: str) -> str:
    """The page with its generated part. Raises: ValueError: the page has no place for it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return f"{text[: text.index(BEGIN) + len(BEGIN)]}\n{MAKERS[page]()}\n{text[text.index(END) :]}"


def write_all() -> list[Path]:
    """Writes every page that is not current; returns them."""
    written = []
    for page in MAKERS:
        path, text = ROOT / page, current(page)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written

"""Writes the report beside the files that it is made of."""

from __future__ import annotations

import os
from pathlib import Path

from trainer.report.facts import Reader
from trainer.report.links import Links
from trainer.report.page import make_page

NAME = "report.html"
_readers: dict[Path, Reader] = {}  # of the last output: a trainer writes the report of one job at each pass end


def write_report(output: Path, target: Path | None = None) -> Path:
    """Write the report of a job's output and return its path; whoever looks at it sees a whole one, old or new.

    Args: target: by default report.html in the output.
    Raises: OSError: it cannot be written.
    """
    output = Path(os.path.abspath(output))  # noqa: PTH100 - links on the way to a volume stay as they are
    if output not in _readers:
        _readers.clear()
        _readers[output] = Reader(output)
    page = output / NAME if target is None else Path(os.path.abspath(target))  # noqa: PTH100
    text = make_page(_readers[output].read(), Links(output, page))
    staging = page.with_name(f".{page.name}.{os.getpid()}")
    try:
        staging.write_bytes(text.encode("utf-8", "replace"))
        staging.replace(page)
    finally:
        staging.unlink(missing_ok=True)
    return page

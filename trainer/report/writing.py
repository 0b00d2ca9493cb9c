"""Writes the report beside the files that it is made of."""

from __future__ import annotations

import os
from pathlib import Path

from trainer.records import Record
from trainer.report.configuration import show_configuration
from trainer.report.facts import Reader
from trainer.report.links import Links
from trainer.report.markup import Markup
from trainer.report.page import make_page

NAME = "report.html"


class Report:
    """The report of an output, which may be made many times; what has not changed is kept."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._reader = Reader(output)
        self._configuration: tuple[Record, Markup | None] | None = None

    def make(self, links: Links) -> str:
        """Return the page as it is now."""
        facts = self._reader.read()
        start = facts.history.start
        if self._configuration is None or self._configuration[0] is not start:
            self._configuration = (start, show_configuration(start))
        return make_page(facts, links, self._configuration[1])


_reports: list[Report] = []  # the last one: a trainer writes the report of its job at each pass end


def write_report(output: Path, target: Path | None = None) -> Path:
    """Write the report of a job's output and return its path; whoever looks at it sees a whole one, old or new.

    Args: target: by default report.html in the output.
    Raises: OSError: it cannot be written.
    """
    output = Path(os.path.abspath(output))  # noqa: PTH100 - links on the way to a volume stay as they are
    if not _reports or _reports[0].output != output:
        _reports[:] = [Report(output)]
    page = output / NAME if target is None else Path(os.path.abspath(target))  # noqa: PTH100
    text = _reports[0].make(Links(output, page))
    staging = page.with_name(f".{page.name}.{os.getpid()}")
    try:
        staging.write_bytes(text.encode("utf-8", "replace"))
        staging.replace(page)
    finally:
        staging.unlink(missing_ok=True)
    return page

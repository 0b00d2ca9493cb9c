"""Write the page of a report or of a comparison, by default into the job's output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paddle_base.runtime.durable_files import find_output
from trainer.records.records import Record
from trainer.report.comparison import make_comparison
from trainer.report.facts import Reader
from trainer.report.html.markup import Markup
from trainer.report.links import Links
from trainer.report.page import make_page
from trainer.report.sections.configuration import show_configuration

NAME, COMPARISON = "report.html", "comparison.html"


class Report:
    """The report of an output. When the page is made again, the parts that have not changed are reused."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._reader = Reader(output)
        self._configuration: tuple[Record, Markup | None] | None = None

    def make(self, links: Links) -> str:
        """Return the current page."""
        facts = self._reader.read()
        start = facts.history.start
        if self._configuration is None or self._configuration[0] is not start:
            self._configuration = (start, show_configuration(start))
        return make_page(facts, links, self._configuration[1])


# the report that was made last; one is enough, because a trainer makes only the report of its own job
_reports: list[Report] = []


def write_report(output: Path, target: Path | None = None) -> Path:
    """Write the report of a job's output, and return the path of the page.

    The page is replaced as a whole, so no reader sees an incomplete page.

    Args: target: the file to write; by default report.html in the output. An existing file is replaced.
    Raises: OSError: the report cannot be written.  See `find_output` for errors of the target.
    """
    output = Path(os.path.abspath(output))  # noqa: PTH100 - Path.resolve would replace symbolic links
    if not _reports or _reports[0].output != output:
        _reports[:] = [Report(output)]
    page = output / NAME if target is None else Path(os.path.abspath(target))  # noqa: PTH100
    place = page if target is None else find_output(page)
    _replace_page(place, _reports[0].make(Links(output, page)))
    return page


def write_comparison(outputs: Sequence[Path], target: Path | None = None) -> Path:
    """Write the page that compares two runs, and return the path of the page.

    Args: target: the file to write; by default comparison.html in the first output. An existing file is replaced.
    Raises: OSError: the page cannot be written.  See `find_output` for errors of the target.
    """
    paths = [Path(os.path.abspath(output)) for output in outputs]  # noqa: PTH100
    page = paths[0] / COMPARISON if target is None else Path(os.path.abspath(target))  # noqa: PTH100
    place = page if target is None else find_output(page)
    _replace_page(place, make_comparison([Reader(path).read() for path in paths], [Links(p, page) for p in paths]))
    return page


def _replace_page(page: Path, text: str) -> None:
    staging = page.with_name(f".{page.name}.{os.getpid()}")
    try:
        staging.write_bytes(text.encode("utf-8", "replace"))
        staging.replace(page)
    except OSError as error:
        error.filename = str(page)  # not the temporary file
        raise
    finally:
        staging.unlink(missing_ok=True)

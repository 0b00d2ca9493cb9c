"""Make links from a report to the files of its job. They are relative, so they work at every mount point."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from trainer.report.facts import Facts, File
from trainer.report.html.markup import Markup, join, tag
from trainer.report.html.tables import HiddenCaption, make_table
from trainer.report.html.text import NONE, size

MOST_PASSES, MOST_FILES = 20, 60


class Links:
    """Make the links of a page to the files of an output.

    Args: output: the directory with the files. page: the path of the page.
    """

    def __init__(self, output: Path, page: Path) -> None:
        self._output = output
        self._prefix = Path(os.path.relpath(output, page.parent)).as_posix()

    def to(self, name: str, text: str = "") -> Markup:
        """Return a link to a path below the output."""
        whole = name if self._prefix == "." else f"{self._prefix}/{name}"
        # "./" precedes the name, because a browser would take the text before a colon for a URL scheme
        first = "./" if ":" in whole.partition("/")[0] else ""
        return tag("a", text or name, href=first + quote(whole))

    def to_pass(self, path: str) -> object:
        """Return a link to a directory of saved parameters, or only its name if the directory is not in the output."""
        name = Path(path).name
        if not name:
            return NONE
        is_there = os.path.isdir(self._output / name)  # noqa: PTH112 - Path.is_dir raises an error for a long name
        return self.to(f"{name}/", name) if is_there else name


def show_files(facts: Facts, links: Links) -> Markup:
    """Return the table of logs, checkpoints and saved parameters."""
    listing = facts.listing
    logs = [file for file in listing.files if "/" in file.name.rstrip("/")]
    others = [file for file in listing.files if file not in logs]
    passes = [name for name in sorted(listing.passes) if (facts.output / name / "done").exists()][-MOST_PASSES:]
    own = [File(name, _size(facts.output / name)) for name in ("records.jsonl", "progress.json", "job.json")]
    rows = [[links.to(file.name), size(file.bytes)] for file in [*logs[:MOST_FILES], *others]]
    rows += [[links.to(f"{name}/"), NONE] for name in passes]
    rows += [[links.to(file.name), size(file.bytes)] for file in own if file.bytes is not None]
    notes = []
    if len(logs) > MOST_FILES:
        notes.append(f"{len(logs) - MOST_FILES} more logs are in node_*/.")
    if len(listing.passes) > len(passes):
        notes.append(f"{len(listing.passes) - len(passes)} more passes are in pass-*/.")
    where = tag("p", "In ", tag("code", facts.output), class_="path")
    table = (
        make_table(HiddenCaption("Files of the job"), ["file", "size"], rows)
        if rows
        else tag("p", "There are no files.")
    )
    return join([where, table, *(tag("p", note) for note in notes)])


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None

"""What the reports of all kinds of trials have in common: a file, lines of output, and a table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class SavedReport:
    """A data class with the result of a trial; faults is empty if the trial has passed."""

    directory: str
    faults: list[str]

    def save(self) -> None:
        """Write the report to the trial's directory."""
        content: Any = self
        text = json.dumps(dataclasses.asdict(content), indent=1)
        (Path(self.directory) / "result.json").write_text(text + "\n")

    def describe_end(self, text: str) -> str:
        """Return the lines of output about a trial: whether it has passed, the text, and its faults."""
        if not self.faults:
            return f"passed  {text}"
        return f"FAILED  {text}\n" + "\n".join(f"        {fault}" for fault in [*self.faults, f"see {self.directory}"])


def align(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the rows of a table, the first of which has the heads, with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )

"""The texts in the programs, and the messages that docs/messages.md quotes."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from docpages.blocks import ROOT

ROOMS = ("paddle", "paddle_base", "paddle_cluster", "pserver", "trainer")
PAGE = ROOT / "docs/messages.md"
FILLED_IN = "\0"  # replaces a value that the program fills in
PLACEHOLDER = "..."  # replaces such a value in the page
FEWEST = 9  # minimum characters of a quoted message without placeholders, so that it matches few texts
ROW = re.compile(r"^\| `([^`]+)` \|([^|]+)\|([^|]+)\|$", re.MULTILINE)


def quotes(page: str) -> list[str]:
    """The messages that the first columns of a page's tables quote."""
    return [quote for quote, _, _ in ROW.findall(page)]


def as_pattern(quote: str) -> re.Pattern[str]:
    """A pattern that matches a quoted message with any values in its placeholders."""
    return re.compile(".*".join(re.escape(part.strip()) for part in quote.split(PLACEHOLDER)), re.DOTALL)


def is_said(quote: str) -> bool:
    """Whether a text of the programs has the fixed parts of a quoted message in the same order."""
    fixed = quote.replace(PLACEHOLDER, "").replace(" ", "")
    return len(fixed) >= FEWEST and any(as_pattern(quote).search(text) for text in all_texts())


def texts_of(source: str) -> Iterator[str]:
    """The string literals of a Python source, without docstrings; adjacent literals and an f-string are one text."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) not in inside and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else FILLED_IN for part in node.values)


@functools.cache
def all_texts() -> tuple[str, ...]:
    """All texts of all programs; the texts of start.sh are its lines."""
    paths = [ROOT / "start_paddle.py", *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))]
    found = [text for path in paths for text in texts_of(path.read_text(encoding="utf-8"))]
    script = (ROOT / "start.sh").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return (*found, *(line for line in script if not line.lstrip().startswith("#")))

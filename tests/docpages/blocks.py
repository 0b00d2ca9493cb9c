"""The fenced blocks of a page, and the bash script that runs the commands of the page.

    ```sh                           commands for this machine; tests/e2e/test_docs_commands.py runs them
    ```sh torch                     the same with PyTorch; the test is skipped where torch is not installed
    ```sh cluster                   commands that need a Kubernetes; tests/kubernetes/test_cluster_docs.py runs them
    ```sh ci                        commands that .ci/run contains, word for word
    ```python file=trainer.py       a file that the reader makes; it is written before the next commands run
    ```text, ```yaml, ...           only shown: output, trees, parts of files; commands are not allowed there

All blocks of one kind in a page form one script, in the order of the page. A page whose commands need the results of
another page names this state in its first line (docpages/project.py): `<!-- commands after: digits -->`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWN = frozenset({"text", "yaml", "json", "python", "promql"})  # languages of blocks that are not run
COMMANDS = ("kubectl", "docker", "make", "paddle", "python", "pip", "git", "curl", "cd", "export")
# the beginnings of lines that are commands, with or without a prompt
COMMAND = re.compile(rf"^\s*(?:[$#] )?(?:{'|'.join(re.escape(word) for word in COMMANDS)})\s")
LINES = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is the number of its first line, counted from 1."""

    page: str
    line: int
    info: tuple[str, ...]  # words after the fence: the language, and then the purpose
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    @property
    def file(self) -> str:
        """The name of the file that the reader makes from the block, or ""."""
        return next((word.removeprefix("file=") for word in self.info[1:] if word.startswith("file=")), "")

    @property
    def kind(self) -> str:
        """The kind: `machine`, `torch`, `cluster`, `ci`, `file` or `shown`; "" if the block has none of these."""
        if self.info == ("sh",):
            return "machine"
        if self.language == "sh" and self.info[1:] in {("torch",), ("cluster",), ("ci",)}:
            return self.info[1]
        if self.file and len(self.info) == 2:
            return "file"
        return "shown" if len(self.info) == 1 and self.language in SHOWN else ""


def pages() -> list[Path]:
    """Every page for users and developers, README first."""
    others = [*ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("tests/**/README.md"), *ROOT.glob("*.md")]
    return [ROOT / "README.md", *sorted({path for path in others if path.name != "README.md" or path.parent != ROOT})]


def blocks(page: str, text: str) -> list[Block]:
    """The fenced blocks of a page's text. Raises: ValueError: one has no end."""
    found, fence, begin, info, body = [], "", 0, (), []
    for number, line in enumerate(text.splitlines(), start=1):
        match = LINES.match(line)
        if not fence and match:
            fence, begin, info, body = match["fence"], number, tuple(match["info"].split()), []
        elif match and match["fence"] == fence and not match["info"].strip():
            found.append(Block(page, begin, info, "\n".join(body) + "\n"))
            fence = ""
        elif fence:
            body.append(line)
    if fence:
        raise ValueError(f"{page}:{begin}: a block without an end")
    return found


def blocks_of(path: Path) -> list[Block]:
    """The fenced blocks of a page."""
    return blocks(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))


def faults(page: str, text: str) -> Iterator[str]:
    """The faults of a page: blocks of no kind, commands that no test runs, and indented blocks outside of lists."""
    found = blocks(page, text)
    for block in found:
        if not block.kind:
            yield f"{block.place}: ```{' '.join(block.info)} is no kind of block"
        if block.kind == "ci":
            yield from (f"{block.place}: .ci/run has no line {line!r}" for line in missing_in_ci(block))
        if block.kind == "shown":
            yield from (f"{block.place}: a command that is not run: {line}" for line in hidden_commands(block))
    inside = {number for block in found for number in range(block.line, block.line + block.text.count("\n") + 2)}
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        # in Markdown, an indented block begins after a blank line or a heading; elsewhere it continues an item of a
        # list
        before = lines[number - 2] if number > 1 else ""
        if number not in inside and line.startswith("    ") and (not before.strip() or before.startswith("#")):
            yield f"{page}:{number}: an indented block; fence it, and say what it is"


def hidden_commands(block: Block) -> list[str]:
    """The lines of a shown block that look like commands."""
    return [line for line in block.text.splitlines() if block.language == "text" and COMMAND.match(line)]


def missing_in_ci(block: Block) -> list[str]:
    """The lines of a block, without comments, that .ci/run does not contain."""
    run = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    return [line for line in (line.partition("#")[0].strip() for line in block.text.splitlines()) if line not in run]


def has_commands(found: list[Block], kind: str) -> bool:
    """Whether a page has commands of a kind, `machine`, `torch` or `cluster`."""
    return any(block.kind == kind for block in found)


def script(found: list[Block], kind: str) -> str:
    """The page as a bash script, which writes the files and runs commands of one kind; a failure names the block."""
    lines = ["set -Eeuo pipefail", "block=none", "trap 'echo \"failed: the block at $block\" >&2' ERR"]
    for block in found:
        if block.kind == "file":
            lines += [f"block={block.place}", f"printf %s {shlex.quote(block.text)} > {shlex.quote(block.file)}"]
        elif block.kind == kind:
            lines += [f"block={block.place}", block.text.rstrip("\n")]
    return "\n".join(lines) + "\n"

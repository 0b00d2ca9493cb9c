"""The tables of docs/messages.md: text, cause and cure of every error."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docpages.options import escape
from docpages.sources import Message, read_all

BUG = 70
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("causes.toml").read_text(encoding="utf-8"))
MEANINGS = {
    1: "what was asked for is not there",
    64: "a flag is wrong",
    65: "the data are bad, or your config or provider raised",
    66: "something is missing",
    69: "the API server or another program does not answer",
    74: "the volume is full, read-only or not writable",
    75: "another program of the job is gone, or the port is taken",
    77: "forbidden",
    78: "the environment, the config or the manifest is wrong",
    130: "stopped by Ctrl-C",
    143: "stopped by a signal",
}
# how an advice begins where no semicolon stands before it
VERBS = (
    "set|give|run|make|use|correct|mount|lower|push|check|write|take|go|choose|leave|put|declare|rename|install|start|name|"
    "see|drop|cut|mend|add|kubectl|it must|the data job|This pod|Check"
)
ADVICE = re.compile(rf"; +|[:.] (?=(?:{VERBS})\b)")


class Row(NamedTuple):
    """A line of a table."""

    section: str
    status: int
    text: str
    cause: str
    cure: str


def make_page() -> str:
    """All tables, by section and status."""
    rows = list(rows_of(read_all()))
    lines = []
    for section in TABLE["sections"]:
        lines += [f"## {section}", ""]
        for status in sorted({row.status for row in rows if row.section == section}):
            lines += [
                f"### {section}: status {status}, {MEANINGS[status]}",
                "",
                "| text | cause | cure |",
                "|---|---|---|",
            ]
            chosen = {row for row in rows if (row.section, row.status) == (section, status)}
            lines += [line(row) for row in sorted(chosen, key=lambda row: (sort_key(row.text), row))] + [""]
    return "\n".join(lines).rstrip() + "\n"


def line(row: Row) -> str:
    """The row in Markdown; a cure of the table may have links."""
    cure = row.cure.replace("|", "\\|") if "](" in row.cure else escape(row.cure)
    return f"| {code(row.text)} | {escape(row.cause)} | {cure} |"


def code(text: str) -> str:
    """A text as code in a cell of a table, in which a bar needs a backslash, and an accent another fence."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{' ' * (fence == '``')}{text}{' ' * (fence == '``')}{fence}".replace("|", "\\|")


def sort_key(text: str) -> str:
    """Texts are sorted by their first words that are not filled in."""
    return re.sub(r"^(?:<[^<>]*>|[^\w-])+", "", text).lower() or text


def rows_of(messages: Iterable[Message]) -> Iterator[Row]:
    """The rows of the messages that a user can bring about. Raises: LookupError: some have no cause, or no cure."""
    yield from (Row(**fields) for fields in TABLE["written"])
    used, lacking = set(), []
    for message in messages:
        family = family_of(message)
        if family is not None:
            used.add((family, section_of(message), message.status))
        elif is_shown(message):
            try:
                text, cure = split(message)
                yield Row(section_of(message), message.status, text, cause_of(message), cure)
            except LookupError as error:
                lacking.append(str(error))
    if lacking:
        raise LookupError("\n".join(lacking))
    for number, section, status in used:
        family = TABLE["families"][number]
        yield Row(section, status, family["text"], family["cause"], family["cure"])


def family_of(message: Message) -> int | None:
    """The number of the family of texts that stand in one row together."""
    families = enumerate(TABLE["families"])
    return next(
        (k for k, one in families if message.room.startswith(one["path"]) and message.kind == one["kind"]), None
    )


def is_shown(message: Message) -> bool:
    """Whether a user can bring it about, and its text is whole."""
    subject = f"{message.room} {message.text}"
    return message.status != BUG and not any(re.match(pattern, subject) for pattern in TABLE["left_out"])


def section_of(message: Message) -> str:
    starts = {section: [path] if isinstance(path, str) else path for section, path in TABLE["sections"].items()}
    return next(section for section, paths in starts.items() if message.room.startswith(tuple(paths)))


def cause_of(message: Message) -> str:
    """Where the fault lies. Raises: LookupError."""
    for subject, cause in TABLE["causes"].items():
        path, kind = subject.split()
        if message.room.startswith(path) and message.kind == kind:
            return cause
    raise LookupError(f"{message.place}: docpages/causes.toml has no cause for {message.kind}")


def split(message: Message) -> tuple[str, str]:
    """The text and what to do: the advice in the text itself, or the table's. Raises: LookupError: there is none."""
    subject = f"{message.room} {message.text}"
    instead = first_fit(TABLE["instead"], subject)
    if instead:
        return message.text, instead
    parts = ADVICE.split(message.text, maxsplit=1)
    if len(parts) == 2 and parts[1]:
        return parts[0], parts[1]
    cure = first_fit(TABLE["cures"], subject)
    if not cure:
        raise LookupError(f"{message.place}: no advice in the text, and none in docpages/causes.toml: {message.text}")
    return message.text, cure


def first_fit(table: dict[str, str], subject: str) -> str:
    """What the first pattern that fits stands for, or ""."""
    return next((said for pattern, said in table.items() if re.match(pattern, subject)), "")

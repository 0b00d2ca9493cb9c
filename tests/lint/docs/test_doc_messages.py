"""docs/messages.md quotes messages that the programs have, and each has a cause and a cure."""

import subprocess
import sys
from pathlib import Path

import pytest
from docpages.blocks import ROOT
from docpages.literals import PAGE, ROW, as_pattern, is_said, quotes, texts_of

BIN = Path(sys.executable).parent
QUOTES = quotes(PAGE.read_text(encoding="utf-8"))


def test_every_message_of_the_page_is_in_the_source() -> None:
    gone = [quote for quote in QUOTES if not is_said(quote)]
    assert gone == [], "the text of the message has changed: quote the new one in docs/messages.md"


def test_every_row_has_a_message_a_cause_and_a_cure_and_no_message_stands_twice() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [line for line in lines if not line.startswith(("| message |", "|---"))]
    assert [line for line in rows if not ROW.match(line)] == []
    assert len(rows) == len(QUOTES) == len(set(QUOTES)) > 50


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ([BIN / "paddle", "train", "--num_pases=1"], 64),
        ([BIN / "paddle", "train", "--config=none.py"], 66),
        ([BIN / "paddle", "master", "files.list"], 64),
        ([BIN / "paddle", "prepare"], 78),
        ([ROOT / "start.sh"], 78),
        ([BIN / "python", "start_paddle.py"], 78),
        ([BIN / "python", "-m", "paddle", "localcluster", "run", "k8s/job.yaml", "--volume", "none=."], 64),
    ],
    ids=lambda value: " ".join(Path(word).name for word in value[:2]) if isinstance(value, list) else "",
)
def test_what_a_program_says_is_found_in_the_page(command: list[str | Path], status: int) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == status, said
    assert any(as_pattern(quote).search(said) for quote in QUOTES), said


# ----- the checks themselves


def test_a_message_that_no_program_has_is_found() -> None:
    quotes_there = {
        "the data were split into ... shards for": True,
        "shards for ... the data were split": False,  # in another order
        "the data were torn into": False,
        "... of ...": False,  # too little of it is fixed
    }
    assert {quote: is_said(quote) for quote in quotes_there} == quotes_there


def test_the_texts_of_a_source_are_its_literals_without_docstrings() -> None:
    source = '"""Docs."""\ndef f(x):\n    """More docs."""\n    raise E(f"a {x} is " f"bad {x!r}")\nNAME = "b"\n'
    assert sorted(texts_of(source)) == ["a \0 is bad \0", "b"]

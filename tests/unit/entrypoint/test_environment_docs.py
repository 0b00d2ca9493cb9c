"""docs/environment.md has the table that start.sh --help prints."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def rows_of_help() -> dict[str, list[str]]:
    text = subprocess.run([ROOT / "start.sh", "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    rows = re.findall(r"^([A-Z_]{5,})\s+(\S.*?)\s{2,}(.*)$", text, re.MULTILINE)
    return {name: [default, meaning] for name, default, meaning in rows if name != "VARIABLE"}


def rows_of_docs() -> dict[str, list[str]]:
    rows = re.findall(r"^\| ([A-Z_]+) \| (.*?) \| (.*) \|$", (ROOT / "docs/environment.md").read_text(), re.MULTILINE)
    return {name: [default, meaning] for name, default, meaning in rows}


def test_the_page_and_the_help_have_the_same_table() -> None:
    assert len(rows_of_help()) == 19
    assert rows_of_docs() == rows_of_help()


def test_every_variable_that_the_script_reads_is_in_the_table() -> None:
    read = set(re.findall(r"\$\{?([A-Z][A-Z_]{4,})", (ROOT / "start.sh").read_text()))
    own = {"BASH_SOURCE", "FUNCNAME", "TMPDIR", "EXIT_CONFIG", "EXIT_VOLUME", "EXIT_MISSING_INPUT"}
    assert read - own <= rows_of_help().keys()

"""docs/environment.md has one table of all variables, made from what the programs themselves print and read.

`python tests/unit/entrypoint/test_environment_docs.py` prints it, to be put into the page after a change.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import start_paddle
from prepare.settings import OPTIONS

ROOT = Path(__file__).parents[3]
Row = tuple[str, str, str]  # read by, default, meaning

# pserver and trainer have no table of their own
PROGRAMS = {
    "PADDLE_JOB_NAME": ("empty: stand-alone", "the job's name; the launcher sets it for pserver, probe and trainer"),
    "PADDLE_ATTEMPT": ("empty: stand-alone", "the attempt and its set of pods; set by the launcher, too"),
    "PADDLE_SECRET": ("empty", "as the launcher has it"),
    "PADDLE_SECRET_FILE": ("empty", "as the launcher has it"),
    "PADDLE_PEER_TIMEOUT": ("12", "seconds without a sign of life after which a peer is lost (0.1 to 86400)"),
    "OPENBLAS_NUM_THREADS": ("1", "threads of numpy in a program"),
    "OMP_NUM_THREADS": ("1", "the same, for other builds of numpy"),
}


def rows_of_start_sh() -> dict[str, tuple[str, str]]:
    text = subprocess.run([ROOT / "start.sh", "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    rows = re.findall(r"^([A-Z_]{5,})\s+(\S.*?)\s{2,}(.*)$", text, re.MULTILINE)
    return {name: (default, meaning) for name, default, meaning in rows if name != "VARIABLE"}


def rows_of_launcher() -> dict[str, tuple[str, str]]:
    return {
        one.name: ("required" if one.default is None else one.default or "empty", one.meaning)
        for one in start_paddle.VARIABLES
    }


def rows_of_data_job() -> dict[str, tuple[str, str]]:
    return {one.name.upper(): (one.default or "none", one.help.replace("<", "&lt;")) for one in OPTIONS}


def expected_rows() -> dict[str, Row]:
    """One row for each variable: what its first reader says, and another default of the data job beside that."""
    sources = {
        "start.sh": rows_of_start_sh(),
        "launcher": rows_of_launcher(),
        "programs": PROGRAMS,
        "data job": rows_of_data_job(),
    }
    rows: dict[str, Row] = {}
    for reader, table in sources.items():
        for name, (default, meaning) in table.items():
            if name not in rows:
                rows[name] = (reader, default, meaning)
                continue
            readers, first, said = rows[name]
            other = f"; data job: {default}" if reader == "data job" and default != first else ""
            rows[name] = (f"{readers}, {reader}", first + other, said)
    return rows


def table() -> Iterator[str]:
    yield "| variable | read by | default | meaning |"
    yield "|---|---|---|---|"
    for name, row in expected_rows().items():
        yield f"| {name} | {' | '.join(row)} |"


def rows_of_docs() -> dict[str, Row]:
    text = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z][A-Z0-9_]+) \| (.*?) \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == len({name for name, *_ in rows}), "a variable is listed twice"
    return {name: (readers, default, meaning) for name, readers, default, meaning in rows}


def test_the_help_of_start_sh_is_understood() -> None:
    assert len(rows_of_start_sh()) == 19


def test_the_page_has_every_variable_as_the_programs_say_it() -> None:
    assert rows_of_docs() == expected_rows()


def test_every_variable_that_the_script_reads_is_in_its_help() -> None:
    read = set(re.findall(r"\$\{?([A-Z][A-Z_]{4,})", (ROOT / "start.sh").read_text(encoding="utf-8")))
    own = {"BASH_SOURCE", "FUNCNAME", "TMPDIR", "EXIT_CONFIG", "EXIT_VOLUME", "EXIT_MISSING_INPUT"}
    assert read - own <= rows_of_start_sh().keys()


def test_every_variable_that_the_programs_read_is_in_the_page() -> None:
    read = set()
    for package in ("paddle", "pserver", "trainer", "prepare"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            read |= set(re.findall(r'environ(?:\.get|\.setdefault)?[(\[]"([A-Z][A-Z0-9_]+)"', text))
            read |= set(re.findall(r'"((?:PADDLE|OPENBLAS|OMP)_[A-Z_]+)"', text))
    assert {"PADDLE_JOB_NAME", "OPENBLAS_NUM_THREADS", "CONF_PADDLE_GRADIENT_NUM"} <= read
    assert read - {"PYTHONPATH"} <= rows_of_docs().keys()


if __name__ == "__main__":
    print("\n".join(table()))

"""docs/messages.md has the text of every error that a user can bring about, with a cause and a cure."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docpages import messages, sources
from docpages.blocks import ROOT
from docpages.sources import Message

from launcher import errors as launcher_errors
from localcluster import errors as localcluster_errors
from prepare import errors as prepare_errors
from runtime import errors as pserver_errors

BIN = Path(sys.executable).parent
# classes that stand for all of them, or for our own mistakes
BASES = {"PaddleError", "PrepareError", "LocalClusterError", "LaunchError", "BugError"}


@pytest.fixture(scope="module")
def found() -> tuple[Message, ...]:
    return sources.read_all()


@pytest.mark.parametrize(
    ("module", "section", "elsewhere"),
    [
        (launcher_errors, "The launcher", set()),
        (prepare_errors, "The data job", {64}),  # argparse's own texts
        (pserver_errors, "paddle train", {69, 75, 77, 130, 143}),  # in the section of both programs; of the autoscaler
        (localcluster_errors, "localcluster", {69}),  # the tests' own waits
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_exit_status_of_a_program_is_in_its_section(module: object, section: str, elsewhere: set[int]) -> None:
    statuses = {one.exit_code for name, one in vars(module).items() if hasattr(one, "exit_code") and name not in BASES}
    page = (ROOT / "docs/messages.md").read_text(encoding="utf-8")
    there = {int(status) for status in re.findall(rf"^### {section}: status (\d+),", page, re.MULTILINE)}
    assert statuses - there <= elsewhere


def test_every_class_of_errors_that_is_raised_has_a_cause(found: tuple[Message, ...]) -> None:
    for message in filter(messages.is_shown, found):
        assert messages.family_of(message) is not None or messages.cause_of(message)


def test_a_class_without_a_cause_and_a_text_without_advice_are_errors() -> None:
    with pytest.raises(LookupError, match="has no cause for NewError"):
        messages.cause_of(Message("trainer/a.py", 1, "NewError", 78, "text"))
    with pytest.raises(LookupError, match="no advice in the text"):
        messages.split(Message("trainer/a.py", 1, "DataError", 65, "it is wrong"))
    assert messages.split(Message("trainer/a.py", 1, "DataError", 65, "it is wrong; mend it")) == (
        "it is wrong",
        "mend it",
    )


@pytest.mark.parametrize("table", ["left_out", "cures", "instead"])
def test_every_pattern_fits_a_text_that_is_there(table: str, found: tuple[Message, ...]) -> None:
    subjects = [f"{one.room} {one.text}" for one in found if one.status != messages.BUG]
    assert [one for one in messages.TABLE[table] if not any(re.match(one, subject) for subject in subjects)] == []


def test_most_errors_have_a_row_of_their_own(found: tuple[Message, ...]) -> None:
    rows = set(messages.rows_of(found))
    assert 250 < len(rows) < 650
    assert all(row.text and row.cause and row.cure for row in rows)


@pytest.mark.parametrize(
    ("command", "status", "section"),
    [
        ([BIN / "paddle", "train", "--num_pases=1"], 64, "The programs together"),
        ([BIN / "paddle", "train", "--predict_output_dir=."], 64, "paddle train"),
        ([BIN / "paddle", "train", "--config=none.py"], 66, "paddle train"),
        ([BIN / "paddle", "pserver", "--port=70000"], 64, "The programs together"),
        ([BIN / "prepare"], 78, "The data job"),
        ([BIN / "python", "-m", "localcluster", "run", "k8s/job.yaml"], 64, "localcluster"),
        ([ROOT / "start.sh"], 78, "start.sh"),
        ([BIN / "python", "start_paddle.py"], 78, "The launcher"),
    ],
    ids=lambda value: Path(str(value[-1])).name if isinstance(value, list) else "",
)
def test_what_a_program_says_is_found_in_the_page(command: list[str | Path], status: int, section: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == status, said
    rows = [row for row in messages.rows_of(sources.read_all()) if (row.section, row.status) == (section, status)]
    assert any(re.search(as_regex(row.text), said) for row in rows), said


def as_regex(text: str) -> str:
    """A text of the page as a pattern for what a program says."""
    return "(?:.*)".join(re.escape(part) for part in re.split(r"<[^<>]*>", text))


def test_a_source_is_read_with_what_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    module = tmp_path / "a.py"
    module.write_text(
        'LIMIT = "at most 4"\n'
        "def f(self, x):\n"
        '    where = f"line {self._line}"\n'
        "    if x:\n"
        '        where = "nowhere"\n'
        '    advice = "lower it"\n'
        "    raise DataError(f\"{where}: {x!r} is {len(self.items)} {'big' if x else 'small'}, {LIMIT}; {advice}\")\n"
        "def g(error):\n"
        '    problems.append("a" + f"b {error.strerror}")\n'
        '    return ConfigError("not raised here, "\n'
        '        f"but {error}")\n'
        "def h():\n"
        '    raise BugError("ours")\n'
        '    raise ValueError("a caller\'s")\n'
    )
    read = sources.read_module(module, {"DataError": 65, "ConfigError": 78, "BugError": 70})
    assert [(one.kind, one.status, one.text) for one in read] == [
        ("DataError", 65, "<where>: <x> is <items> <big or small>, at most 4; lower it"),
        ("problems", 78, "ab <reason>"),
        ("ConfigError", 78, "not raised here, but <error>"),
        ("BugError", 70, "ours"),
    ]


def test_a_shell_script_is_read_with_what_is_filled_in(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text(
        'EXIT_VOLUME=74\n[ -w "$d" ] || fail $EXIT_VOLUME "uid $(id -u) cannot write $d" \\\n    "mount ${other:-it}"\n'
    )
    assert [(one.status, one.text) for one in sources.read_script(script)] == [
        (74, "uid <...> cannot write <d>; mount <other>")
    ]

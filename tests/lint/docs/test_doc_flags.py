"""docs/flags.md and docs/variables.md have every flag and variable that the programs read, and nothing else."""

import re

from docpages import options
from docpages.blocks import ROOT
from docpages.generated import MAKERS, current

from trainer.flags import FLAGS


def test_the_generated_part_of_every_page_is_current() -> None:
    stale = [page for page in MAKERS if current(page) != (ROOT / page).read_text(encoding="utf-8")]
    assert stale == [], "run `make docs`"


def test_the_help_of_start_sh_is_understood() -> None:
    text = (ROOT / "start.sh").read_text(encoding="utf-8")
    table = text[text.index("VARIABLE  ") : text.index("EXIT 65")]
    assert options.start_sh_rows().keys() == set(re.findall(r"^([A-Z_]{5,}) ", table, re.MULTILINE)) - {"VARIABLE"}


def test_every_variable_that_the_script_reads_is_in_its_help() -> None:
    script = (ROOT / "start.sh").read_text(encoding="utf-8")
    read = {re.sub(r"^PADDLE_INIT_.*", "PADDLE_INIT_X", name) for name in re.findall(r"\$\{?([A-Z][A-Z_]{4,})", script)}
    own = {"BASH_SOURCE", "FUNCNAME", "SECONDS", "TMPDIR", *re.findall(r"^([A-Z_]+)=[0-9]+", script, re.MULTILINE)}
    assert read - own <= options.start_sh_rows().keys()


def test_every_variable_that_the_programs_read_is_in_the_table() -> None:
    read = set()
    for package in ("paddle", "paddle_base", "paddle_cluster/prepare", "pserver", "trainer"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            read |= set(re.findall(r'environ(?:\.get|\.setdefault)?[(\[]"([A-Z][A-Z0-9_]+)"', text))
            read |= set(re.findall(r'"((?:PADDLE|OPENBLAS|OMP)_[A-Z_]+)"', text))
    assert {"PADDLE_JOB_NAME", "OPENBLAS_NUM_THREADS", "CONF_PADDLE_GRADIENT_NUM", "PADDLE_KERNELS"} <= read
    assert read - {"PYTHONPATH"} <= {row.name for row in options.variables()}


def test_no_variable_and_no_flag_of_a_program_is_listed_twice() -> None:
    variables = [row.name for row in options.variables()]
    flags = [(row.name, row.program) for row in options.trainer_flags()]
    assert len(variables) == len(set(variables))
    assert len(flags) == len(set(flags)) > 80


def test_the_passes_of_a_resumed_run_are_those_of_the_help() -> None:
    """The help of --resume_from said nothing of --num_passes, and the page counted the passes in another way."""
    page = (ROOT / "docs/checkpoints.md").read_text(encoding="utf-8")
    assert "--num_passes of the whole run" in FLAGS["resume_from"].meaning
    assert "the old --start_pass" in FLAGS["resume_from"].meaning
    assert "counted from start_pass" in FLAGS["num_passes"].meaning
    said = "With `--resume_from`, `--num_passes` is the number of passes of the whole run, as `--start_pass` is"
    assert said in " ".join(page.split())
    passes, last = re.search(r"--num_passes=(\d+)[^\n]*\\\n +--resume_from=output/state/pass-(\d+)", page).groups()
    trained = range(int(last) + 1, FLAGS["start_pass"].default + int(passes))
    assert f"the second command trains the passes {' and '.join(map(str, trained))}." in " ".join(page.split())

"""Files of output/ as nobody of ours writes them: status and report tell the rest, without a traceback or a wait."""

import json
import shutil
from pathlib import Path

import crafted
import pytest
from report_jobs import Job

from paddle.command import main
from paddle.utils import status
from paddle_base.runtime.durable_files import MOST_TEXT_BYTES
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.control.job_record import write_record
from paddle_cluster.launcher.failures import write_error
from trainer.records.progress_files import read_job
from trainer.report.facts import Reader
from trainer.report.writing import write_report

FILES = ["job.json", ".job.json", "progress.json", "node_0/progress.json", "node_0/error.json", "records.jsonl"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    output = tmp_path_factory.mktemp("job") / "output"
    Job(output).start().run_pass(0).run_pass(1, until=10)
    node = output / "node_0"
    node.mkdir(exist_ok=True)
    record = JobRecord("job", 10, False, 1, ["a"], 0)
    record.attempts.append({"name": record.name, "started": "2026-01-01 00:00:00", "origin": ""})
    write_record(output, record)
    own = {"time": 1.8e9, "attempt": record.name, "host": "pod-0", "pass": 1, "batch": 3, "samples_per_second": 2.5}
    own["usage"] = {"samples": 64, "data_seconds": 1.0}
    (node / "progress.json").write_text(json.dumps(own))
    told = {**own, "status": "training", "message": "", "passes": 10, "pass_fraction": 0.5, "job_fraction": 0.1}
    told |= {"seconds_left": 60.0, "cost": 0.5, "evaluators": {"error": 0.5}, "pass_samples": 128}
    told["slowest"] = {"trainer": 0, "host": "pod-0", "busy_seconds": 3.5, "mean_busy_seconds": 3.0}
    (output / "progress.json").write_text(json.dumps({**told, "trainers": {"0": own}}))
    outcome = AttemptResult(75, "trainer", "was killed by SIGKILL", "SIGKILL")
    write_error(node, record.name, 0, "pod-0", outcome)
    return output


@pytest.fixture
def output(tmp_path, original):
    return shutil.copytree(original, tmp_path / "output")


def look(output: Path, capsys) -> None:
    """Everything that reads the output of a job."""
    assert status.main([str(output)]) == 0
    said = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in said)
    read_job(output)
    Reader(output).read()
    assert write_report(output, output.parent / "page.html").stat().st_size > 1000


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_something_else_tells_nothing(output, capsys, name):
    for what, text in crafted.TEXTS.items():
        (output / name).write_bytes(text + b"\n")
        try:
            look(output, capsys)
        except Exception as error:
            raise AssertionError(what) from error


def make_sparse(path: Path) -> None:
    """Make a sparse file that is longer than any line of records that is kept."""
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2 * MOST_TEXT_BYTES + 1)


# a gigabyte of records takes 7 s, for all of it is looked through, a line at a time
GIGABYTE = pytest.param("records.jsonl", crafted.make_sparse, marks=pytest.mark.nightly)
PAIRS = [(name, replace) for name in FILES for replace in crafted.REPLACEMENTS.values()]
PAIRS.remove(("records.jsonl", crafted.make_sparse))


@pytest.mark.parametrize(("name", "replace"), [*PAIRS, ("records.jsonl", make_sparse), GIGABYTE])
def test_what_stands_in_place_of_a_file_is_neither_waited_for_nor_read_whole(output, capsys, name, replace):
    """A named pipe held status and report for ever, and a sparse file filled the memory."""
    replace(output / name)
    look(output, capsys)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", [name for name in FILES if name != "records.jsonl"])
def test_a_value_of_any_other_type_is_left_out(output, capsys, name, every):
    """Each value is changed in eight ways; every fifth change meets each value, and each way in some value."""
    whole = json.loads((output / name).read_bytes())
    for what, changed in [*crafted.replace_values(whole)][::every]:
        (output / name).write_bytes(crafted.spell(changed))
        try:
            look(output, capsys)
        except Exception as error:
            raise AssertionError(what) from error


def test_records_of_any_other_type_are_left_out(output, original, capsys):
    lines = (output / "records.jsonl").read_bytes().splitlines()
    kinds = {json.loads(line)["kind"]: line for line in lines}
    assert len(kinds) > 2
    for line in kinds.values():
        changed = [crafted.spell(one) for _, one in crafted.replace_values(json.loads(line))][::3]
        (output / "records.jsonl").write_bytes(b"\n".join([*lines, *changed, *lines]) + b"\n")
        look(output, capsys)
        assert main(["report", str(output), str(original), "-o", str(output.parent / "both.html")]) == 0

"""Recorded runs of the legacy program, done again: initial values bit for bit, the rest within float32's noise."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_runs import (
    KEPT,
    STRICT,
    check_log,
    check_numbers,
    check_parameter,
    lay_out,
    parameter_files,
    read_values,
    shape,
    split_merged,
)

WHOLE = Path(__file__).parents[4] / "shared" / "golden"
CASES = sorted(path.parent.name for path in KEPT.glob("*/case.json"))
INTERFACES = {"--nics=lo": "--nics=127.0.0.1", "--nics=lo:1": "--nics=127.0.0.2"}


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory, paddle_of_module, tools):
    """A recorded run done again: (what its case says, the folder in which it ran)."""
    facts = json.loads((KEPT / request.param / "case.json").read_text())
    folder = tmp_path_factory.mktemp(request.param)
    if "steps" in facts:
        run_steps(facts, folder, paddle_of_module)
    else:
        run_distributed(facts, folder, paddle_of_module, str(tools.free_port(4)))
    return request.param, facts, folder


def run_steps(facts, folder, paddle):
    lay_out(facts, facts["files"], folder)
    for step in facts["steps"]:
        for source, target in step.get("copy", {}).items():
            (folder / target).symlink_to(folder / source)
        process = paddle.start(folder, *step["args"], log=step["log"])
        assert process.wait(60) == 0, (folder / step["log"]).read_text()


def run_distributed(facts, folder, paddle, port):
    """Run servers and trainers on this machine's loopback addresses, at a port of their own."""
    started = []
    for one in [*facts["pservers"], *facts["trainers"]]:
        directory = folder / one["dir"]
        directory.mkdir()
        if "files" in one:
            lay_out(facts, one["files"], directory)
        arguments = [INTERFACES.get(word, word.replace("--port=7164", f"--port={port}")) for word in one["args"]]
        started.append((paddle.start(directory, *arguments, log=one["log"]), directory / one["log"]))
    for process, log in started:
        assert process.wait(60) == 0, log.read_text()


def test_saved_parameters_are_the_legacys(run):
    case, facts, folder = run
    golden = json.loads((KEPT / case / "parameters.json").read_text())
    for path, values in golden.items():
        check_parameter(folder / path, values, facts["tolerance"]["params"])
    for kept in facts["kept"]:
        names = [Path(path).name for path in golden if str(Path(path).parent) == kept["dir"]]
        assert "partial" in kept or parameter_files(folder / kept["dir"]) == sorted(names)
        assert (folder / kept["dir"] / "done").exists()


def test_the_logs_say_what_the_legacys_said(run):
    case, facts, folder = run
    for name in facts["logs"]:
        check_log((folder / name).read_text(), (KEPT / case / name).read_text(), facts["tolerance"]["log"])


@pytest.mark.parametrize("run", ["qs_lr_local"], indirect=True)
def test_predictions_are_the_legacys(run):
    case, _, folder = run
    ours, theirs = ((root / "rank-00000").read_text().splitlines() for root in (folder, KEPT / case))
    for line, golden in zip(ours, theirs, strict=True):
        assert shape(line) == shape(golden)
        check_numbers(line, golden, STRICT)


@pytest.fixture
def merged(tmp_path):
    """The legacy's merged model of the logistic regression after pass 2, beside the data that it names."""
    facts = json.loads((KEPT / "qs_lr_local" / "case.json").read_text())
    path = lay_out(facts, facts["files"], tmp_path / "job") / "merged.paddle"
    path.write_bytes(gzip.decompress((KEPT / "qs_lr_local" / "merged.paddle.gz").read_bytes()))
    return path


@pytest.mark.parametrize("run", ["qs_lr_local"], indirect=True)
def test_merged_models_hold_the_parameters_as_the_legacys_do(run, merged):
    ours, theirs = split_merged((run[2] / "merged.paddle").read_bytes()), split_merged(merged.read_bytes())
    for content, golden in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(read_values(content), read_values(golden), **STRICT)


@pytest.mark.parametrize("form", ["a merged model", "a pass directory"])
def test_what_the_legacy_saved_is_read(merged, paddle, form):
    path = merged
    if form == "a pass directory":
        path = merged.with_name("pass-00002")
        path.mkdir()
        names = ("___fc_layer_0__.w0", "___fc_layer_0__.wbias")
        for name, content in zip(names, split_merged(merged.read_bytes()), strict=True):
            (path / name).write_bytes(content)
    status, log = paddle.train(
        merged.parent, "--job=test", "--config=lr.py", "--test_pass=0", f"--init_model_path={path}"
    )
    assert status == 0, log
    (line,) = re.findall(r" Pass=0 samples=.*", log)
    golden = re.findall(r" Pass=2 samples=.*", (KEPT / "qs_lr_local" / "job_test.log").read_text())[0]
    check_numbers(line.replace("Pass=0", "Pass=2"), golden, STRICT)


@pytest.mark.skipif(
    not WHOLE.exists(), reason="the whole recorded runs (../shared/golden) are not beside this repository"
)
@pytest.mark.parametrize("case", CASES)
def test_the_whole_recorded_run_is_repeated(case, tmp_path):
    command = tmp_path / "paddle"
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom paddle.command import main\nsys.exit(main())\n")
    command.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-B", str(WHOLE / "run_cases.py"), str(command), "--case", case],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if "skipped: needs a network namespace" in done.stdout:
        pytest.skip("this machine allows no network namespace")
    assert done.returncode == 0, done.stdout + done.stderr

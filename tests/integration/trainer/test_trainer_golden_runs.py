"""Recorded runs of the legacy program, done again: initial values bit for bit, the rest within float32's noise.

`make golden` does all of them, and whole where ../shared is; here is one of each kind.
"""

import gzip
import json
import re
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

KINDS = ("qs_lr_local", "qs_lr_dist_2ps", "trace_rec")  # one of a local run, of servers, and of a trace of every batch
CASES = [
    pytest.param(name, marks=() if name in KINDS else pytest.mark.golden)
    for name in sorted(path.parent.name for path in KEPT.glob("*/case.json"))
]
INTERFACES = {"--nics=lo": "--nics=127.0.0.1", "--nics=lo:1": "--nics=127.0.0.2"}


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


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_run_gives_the_legacys_parameters_and_log_lines(case, tmp_path, paddle, tools):
    facts = json.loads((KEPT / case / "case.json").read_text())
    if "steps" in facts:
        run_steps(facts, tmp_path, paddle)
    else:
        run_distributed(facts, tmp_path, paddle, str(tools.free_port(4)))
    golden = json.loads((KEPT / case / "parameters.json").read_text())
    for path, values in golden.items():
        check_parameter(tmp_path / path, values, facts["tolerance"]["params"])
    for kept in facts["kept"]:
        names = [Path(path).name for path in golden if str(Path(path).parent) == kept["dir"]]
        assert "partial" in kept or parameter_files(tmp_path / kept["dir"]) == sorted(names)
        assert (tmp_path / kept["dir"] / "done").exists()
    for name in facts["logs"]:
        check_log((tmp_path / name).read_text(), (KEPT / case / name).read_text(), facts["tolerance"]["log"])
    if case == "qs_lr_local":
        check_predictions(tmp_path, KEPT / case)
        check_merged_models(tmp_path / "merged.paddle", KEPT / case / "merged.paddle.gz")


def check_predictions(folder, golden):
    ours, theirs = ((root / "rank-00000").read_text().splitlines() for root in (folder, golden))
    for line, wanted in zip(ours, theirs, strict=True):
        assert shape(line) == shape(wanted)
        check_numbers(line, wanted, STRICT)


def check_merged_models(path, golden):
    ours, theirs = split_merged(path.read_bytes()), split_merged(gzip.decompress(golden.read_bytes()))
    for content, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(read_values(content), read_values(wanted), **STRICT)


@pytest.fixture
def merged(tmp_path):
    """The legacy's merged model of the logistic regression after pass 2, beside the data that it names."""
    facts = json.loads((KEPT / "qs_lr_local" / "case.json").read_text())
    path = lay_out(facts, facts["files"], tmp_path / "job") / "merged.paddle"
    path.write_bytes(gzip.decompress((KEPT / "qs_lr_local" / "merged.paddle.gz").read_bytes()))
    return path


@pytest.mark.parametrize("form", ["a merged model", "a pass directory"])
def test_what_the_legacy_saved_is_read(merged, paddle, form):
    path = merged
    if form == "a pass directory":
        path = merged.with_name("pass-00002")
        path.mkdir()
        names = ("___fc_layer_0__.w0", "___fc_layer_0__.wbias")
        for name, content in zip(names, split_merged(merged.read_bytes()), strict=True):
            (path / name).write_bytes(content)
    log = paddle.trained(merged.parent, "--job=test", "--config=lr.py", "--test_pass=0", f"--init_model_path={path}")
    (line,) = re.findall(r" Pass=0 samples=.*", log)
    golden = re.findall(r" Pass=2 samples=.*", (KEPT / "qs_lr_local" / "job_test.log").read_text())[0]
    check_numbers(line.replace("Pass=0", "Pass=2"), golden, STRICT)

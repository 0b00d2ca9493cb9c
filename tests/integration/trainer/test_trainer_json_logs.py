"""--log_json of both programs: every line of the log as an object, with role, id, attempt, place and what it says."""

import json
import re

import pytest

from trainer.records.records import read_records

PLAIN = ["--config=config.py", "--save_dir=out", "--num_passes=2", "--log_period=2", "--dot_period=0"]


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def messages(log):
    return re.findall(r"^([IWEF])\d{4} \S+ +\d+ (\S+)\] (.*?) ?$", log, re.MULTILINE)


def test_the_json_log_has_every_line_and_the_records_numbers(job, paddle, monkeypatch):
    monkeypatch.setenv("PADDLE_ATTEMPT", "2.ab12cd34")
    log = paddle.trained(job, *PLAIN, "--config_args=test_list=1", "--report", "--log_json=train.jsonl")
    lines = read(job / "train.jsonl")
    said = messages(log)
    assert "commandline" in said[0][2]  # before the flags are read
    assert [(line["severity"][0], line["at"], line["message"].rstrip()) for line in lines] == said[1:]
    assert all(
        {"time", "severity", "role", "id", "attempt", "pass", "batch", "at", "message"} <= line.keys() for line in lines
    )
    assert {(line["role"], line["id"], line["attempt"]) for line in lines} == {("trainer", 0, "2.ab12cd34")}
    recorded = {
        kind: [line["record"] for line in lines if line.get("record", {}).get("kind") == kind] for kind in KINDS
    }
    kept = read_records(job / "out")
    assert {kind: [one for one in kept if one["kind"] == kind] for kind in KINDS} == recorded
    assert [len(recorded[kind]) for kind in KINDS] == [4, 2, 2]
    (last,) = [line for line in lines if line["message"].lstrip().startswith("Pass=1 ")]
    assert (last["pass"], last["record"]["pass"], last["record"]["samples"]) == (1, 1, 20)


KINDS = ("batch", "pass", "test")


def test_a_server_logs_as_json_too(tmp_path, paddle, tools):
    port = tools.free_port()
    folder = tools.lay_out(tmp_path / "trainer", tools.make_lines(20))
    server = paddle.start(
        folder,
        "pserver",
        "--nics=127.0.0.1",
        f"--port={port}",
        "--log_period_server=2",
        "--log_json=server.jsonl",
        log="s",
    )
    status, log = paddle.train(folder, *PLAIN, "--local=0", "--pservers=127.0.0.1", f"--port={port}")
    assert (status, server.wait(60)) == (0, 0), log
    lines = read(folder / "server.jsonl")
    assert {(line["role"], line["id"], line["attempt"]) for line in lines} == {("pserver", f"127.0.0.1:{port}", "")}
    places = [(line["pass"], line["batch"]) for line in lines if re.match("=+ Batch=[24]=", line["message"])]
    assert places == [(0, 2), (0, 4), (1, 2), (1, 4)]
    assert lines[-1]["message"] == "all trainers have said goodbye"


@pytest.mark.parametrize("program", ["train", "pserver"])
def test_a_json_log_that_cannot_be_written_is_said_at_once(job, paddle, program):
    flags = ["--config=config.py"] if program == "train" else ["--nics=127.0.0.1"]
    process = paddle.start(job, program, *flags, "--log_json=nowhere/log.jsonl")
    assert process.wait(60) == 74
    assert "--log_json=nowhere/log.jsonl: cannot be written: No such file or directory" in (job / "log").read_text()

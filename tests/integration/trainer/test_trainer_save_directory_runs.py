"""The save directory of a run without launcher: one run at a time, and earlier passes are kept apart."""

import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

FLAGS = ["--config=config.py", "--save_dir=out", "--num_passes=2"]
SLOW = [*FLAGS, "--num_passes=100000", "--log_period=1"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def states_of_threads(pid):
    """The letters of /proc/<pid>/task/*/stat: T for a stopped thread."""
    return {path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")}


def test_a_second_run_keeps_the_passes_of_the_first_apart(job, paddle):
    """It overwrote some of them in silence."""
    log = paddle.trained(job, *FLAGS, "--num_passes=3", "--checkpoint_period_by_batches=100", "--report")
    first = {
        path.relative_to(job / "out"): path.read_bytes() for path in (job / "out").rglob("pass-*/*") if path.is_file()
    }
    log = paddle.trained(job, *FLAGS)
    assert log.count("the passes of an earlier run in out have moved to out/run-1") == 1
    assert names(job / "out") == ["pass-00000", "pass-00001", "run-1"]
    assert {path: (job / "out/run-1" / path).read_bytes() for path in first} == first
    assert {"state", "records.jsonl", "progress.json", "report.html"} <= set(names(job / "out/run-1"))
    assert paddle.train(job, *FLAGS)[0] == 0
    assert names(job / "out") == ["pass-00000", "pass-00001", "run-1", "run-2"]


@pytest.mark.parametrize(
    ("flags", "moved"),
    [
        (["--resume_from=out/state/pass-00001", "--num_passes=3"], None),
        (["--init_model_path=out/pass-00001"], ["pass-00000", "pass-00001", "state"]),
        (["--resume_from=out/state/pass-00000"], ["pass-00001", "state"]),
    ],
)
def test_who_goes_on_moves_only_what_it_would_replace(job, paddle, flags, moved):
    """Passes of the same names were replaced in silence."""
    assert paddle.train(job, *FLAGS, "--checkpoint_period_by_batches=100")[0] == 0
    before = (job / "out/pass-00001/done").stat().st_ino
    status, log = paddle.train(job, *FLAGS, *flags)
    assert status == 0 and log.count("earlier run") == bool(moved), log
    assert "pass-00001" in names(job / "out")
    assert (names(job / "out/run-1") if moved else None) == moved
    assert (job / "out" / ("run-1" if moved else ".") / "pass-00001/done").stat().st_ino == before


def test_what_is_not_ours_stays_and_a_run_that_fails_before_moves_nothing(job, paddle):
    (job / "state").mkdir()
    (job / "state" / "mine").touch()
    (job / "run-1").touch()
    flags = [*FLAGS, "--save_dir=.", "--num_passes=1"]
    assert paddle.train(job, *flags)[0] == 0
    status, log = paddle.train(job, *flags, "--config_args=obj=nothing")
    assert status == 78, log
    shutil.rmtree(job / "pass-00000")
    assert paddle.train(job, *flags)[0] == 0
    status, log = paddle.train(job, *flags)
    assert status == 0 and "have moved to ./run-2" in log, log
    assert (job / "state" / "mine").exists() and names(job / "run-2") == ["pass-00000"]


@pytest.mark.parametrize(
    ("flags", "train_list", "said"),
    [
        (["--config_args=no_data=1"], "train.txt\n", (78, "the config has no training data")),
        ([], "\ntrain.txt\n", (66, "")),
        (["--config_args=obj=raising_first"], "train.txt\n", (65, "the first line is odd")),
        ([], "", (65, "delivers no sample")),
    ],
)
def test_a_run_that_cannot_begin_leaves_the_passes_of_an_earlier_one_in_their_place(
    job, paddle, flags, train_list, said
):
    """They had moved to run-1 before the data were looked at."""
    config = (job / "config.py").read_text()
    (job / "config.py").write_text(
        config.replace("'train.list'", "None if get_config_arg('no_data', bool, False) else 'train.list'")
    )
    with (job / "small_provider.py").open("a") as provider:
        provider.write(
            "\n@provider(input_types=TYPES)\ndef raising_first(settings, path):\n"
            "    raise ValueError('the first line is odd')\n    yield\n"
        )
    kept = [*FLAGS, "--checkpoint_period_by_batches=100", "--report"]
    log = paddle.trained(job, *kept)
    before = {path.relative_to(job): path.read_bytes() for path in (job / "out").rglob("*") if path.is_file()}
    (job / "train.list").write_text(train_list)
    status, log = paddle.train(job, *kept, *flags)
    assert status == said[0] and said[1] in log.splitlines()[-1] and "have moved" not in log, log
    assert {path.relative_to(job): path.read_bytes() for path in (job / "out").rglob("*") if path.is_file()} == before
    (job / "train.list").write_text("train.txt\n")
    status, log = paddle.train(job, *kept)
    assert status == 0 and log.count("have moved to out/run-1") == 1, log
    for path, content in before.items():
        assert (job / "out/run-1" / path.relative_to("out")).read_bytes() == content
    records = (job / "out" / "records.jsonl").read_text()
    assert records.count('"kind":"start"') == records.count('"kind":"end"') == 1


def test_a_run_into_the_directory_of_another_one_is_refused_and_changes_nothing(job, paddle, tools):
    assert paddle.train(job, *FLAGS)[0] == 0
    first = paddle.start(job, "train", *SLOW, log="first")
    tools.wait_for(lambda: {"run-1", "pass-00001"} <= set(names(job / "out")))
    status, log = paddle.train(job, *FLAGS)
    assert status == 75 and "Traceback" not in log, log
    line = log.splitlines()[-1]
    assert f"--save_dir=out: another run writes into it (pid {first.pid} on {socket.gethostname()} since " in line
    assert "run-2" not in names(job / "out")
    other = paddle.train(job, *FLAGS, "--trainer_id=1", "--num_passes=1")  # it writes nothing
    assert other[0] == 0, other[1]
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 143
    assert ".lock" not in names(job / "out")
    assert paddle.train(job, *FLAGS)[0] == 0


def test_a_run_that_was_killed_leaves_no_lock(job, paddle, tools):
    first = paddle.start(job, "train", *SLOW, log="first")
    tools.wait_for(lambda: (job / "out").is_dir() and "pass-00001" in names(job / "out"))
    first.kill()
    first.wait(60)
    assert (job / "out" / ".lock").read_text().startswith(f"pid {first.pid} on ")
    status, log = paddle.train(job, *FLAGS)
    assert status == 0 and "have moved to out/run-1" in log, log
    assert ".lock" not in names(job / "out")


def test_status_of_a_run_that_was_killed_says_so_and_not_how_much_is_left(job, paddle, tools):
    """It said "training" and a time that is left for ever."""

    def status_of(seconds_ago):
        progress = json.loads(told.read_text())
        told.write_text(json.dumps({**progress, "time": time.time() - seconds_ago, "seconds_left": 500}))
        assert paddle.start(job, "status", "out", log="status").wait(60) == 0
        return (job / "status").read_text()

    told = job / "out" / "progress.json"
    run = paddle.start(job, "train", *SLOW, "--report", log="run")
    tools.wait_for(lambda: told.exists() and "pass-00001" in names(job / "out"))
    run.send_signal(signal.SIGSTOP)
    # the signal returns at once; a thread that still runs would write its own report over the one of this test
    tools.wait_for(lambda: states_of_threads(run.pid) == {"T"})
    said = status_of(seconds_ago=600)  # it is silent, and holds its lock
    assert said.startswith("training: ") and "0:08:20 left" in said
    run.kill()
    run.wait(60)
    said = status_of(seconds_ago=600).splitlines()
    assert said[0].startswith("the run seems to have been killed: no process holds its lock")
    assert said[1].startswith("last report: training: ") and " left" not in said[1]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_what_stands_in_place_of_the_lock_is_named(job, paddle, make):
    (job / "out").mkdir()
    make(job / "out" / ".lock")
    status, log = paddle.train(job, *FLAGS)
    assert status == 74 and "cannot save to out: " in log.splitlines()[-1], log

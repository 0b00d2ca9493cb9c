"""What a run tells in its middle, after Ctrl-C, SIGTERM and a failure, and at its end: files, commands and metrics."""

import json
import re
import signal

import pytest

PLAIN = ["--config=config.py", "--save_dir=out", "--num_passes=10", "--log_period=1", "--dot_period=0", "--report"]
PAUSING = """
calls = []

@provider(input_types=TYPES, should_shuffle=False)
def pausing(settings, path):
    import threading
    calls.append(path)
    for number, sample in enumerate(samples(path)):
        if len(calls) == 3 and number == 4:  # the first chunk is read
            threading.Event().wait(120)
        yield sample
"""
SAMPLES, PASSES = 20, 10


def log(folder):
    return (folder / "log").read_text()


def told(folder):
    path = folder / "out" / "progress.json"
    return json.loads(path.read_text()) if path.exists() else {}


def check_one_moment(progress):
    """Every number of a progress.json is of the end of the same batch."""
    samples = progress["batch"] * 4
    fraction = samples / SAMPLES
    assert progress["samples"] == samples
    assert progress["pass_samples"] == SAMPLES
    assert progress["pass_fraction"] == pytest.approx(fraction)
    if progress["status"] != "finished":
        assert progress["job_fraction"] == pytest.approx((progress["pass"] + fraction) / PASSES)
    assert progress["trainers"]["0"]["usage"]["samples"] == progress["pass"] * SAMPLES + samples
    assert progress["trainers"]["0"]["batch"] == progress["batch"]


@pytest.fixture
def paused(job, paddle, tools):
    """A run that waits for its data in the middle of its third pass, and its progress there."""
    with (job / "small_provider.py").open("a") as file:
        file.write(PAUSING)
    process = paddle.start(job, "train", *PLAIN, "--config_args=obj=pausing")

    def has_paused():
        progress = told(job)
        return (progress.get("pass"), progress.get("batch")) == (2, 1)

    tools.wait_for(has_paused)
    return process


def test_in_the_middle_of_a_pass_progress_is_of_one_moment(job, paused, paddle):
    """It was "100% of the pass" in the third pass."""
    progress = told(job)
    check_one_moment(progress)
    assert progress["status"] == "training"
    assert progress["seconds_left"] > 0
    assert paddle.start(job, "status", "out", log="status").wait(60) == 0
    said = "training: pass 2 of passes 0 to 9, batch 1, 20% of the pass, 22% of the job, "
    assert (job / "status").read_text().startswith(said)
    paused.kill()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_run_that_was_stopped_says_so_everywhere(job, paused, paddle, signum):
    paused.send_signal(signum)
    assert paused.wait(60) in (-signal.SIGINT, 143)  # a shell says 130 of the first
    progress = told(job)
    check_one_moment(progress)
    assert (progress["status"], progress["pass"]) == ("stopped", 2)
    assert signum.name in progress["message"]
    assert progress["seconds_left"] is None
    assert paddle.start(job, "status", "out", log="status").wait(60) == 0
    assert (job / "status").read_text().startswith("stopped: pass 2 of passes 0 to 9, batch ")
    assert '<span class="state stopped">' in (job / "out" / "report.html").read_text()
    assert paddle.start(job, "report", "out", "-o", "again.html", log="report").wait(60) == 0
    assert '<span class="state stopped">' in (job / "again.html").read_text()


def test_a_run_that_failed_says_so_and_why_everywhere(job, paddle):
    status, text = paddle.train(job, *PLAIN, "--config_args=obj=raising")
    assert status == 65, text
    progress = told(job)
    assert progress["status"] == "failed"
    assert progress["samples"] == 4 * progress["batch"]
    assert progress["seconds_left"] is None
    assert paddle.start(job, "status", "out", log="status").wait(60) == 0
    for told_by in (progress["message"], (job / "status").read_text(), (job / "out" / "report.html").read_text()):
        assert "the tenth line is odd" in told_by


def test_a_run_that_has_finished_says_its_mean_speed(job, paddle):
    """It was that of its last instant, half a batch long."""
    text = paddle.trained(job, *PLAIN)
    progress = told(job)
    check_one_moment(progress)
    assert (progress["status"], progress["job_fraction"], progress["seconds_left"]) == ("finished", 1.0, 0.0)
    usage = progress["trainers"]["0"]["usage"]
    assert usage["samples"] == PASSES * SAMPLES
    assert progress["samples_per_second"] == pytest.approx(usage["samples"] / usage["seconds"], rel=1e-3)
    assert sum(usage[name] for name in usage if name.endswith("_seconds")) == pytest.approx(usage["seconds"], rel=1e-3)
    cost = re.findall(r" Pass=9 .*AvgCost=(\S+)", text)[0]
    assert progress["last_pass"] == {"pass": 9, "samples": SAMPLES, "cost": float(cost), "trainers": 1}
    assert paddle.start(job, "status", "out", log="status").wait(60) == 0
    assert (job / "status").read_text().startswith("finished: pass 9 of passes 0 to 9, batch 5, 100% of the pass, 100%")
    assert '<span class="state finished">' in (job / "out" / "report.html").read_text()

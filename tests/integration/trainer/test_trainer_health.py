"""/healthz, /readyz and /metrics of real trainers: what counts as alive, and that the numbers are those of the log."""

import os
import re
import signal
import urllib.error
import urllib.request

import pytest
from server_jobs import ServerJob

PLAIN = ["--config=config.py", "--save_dir=out", "--num_passes=2", "--log_period=2", "--dot_period=0"]


def ask(port, path, timeout=20):
    """Status and text; (0, reason) if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def metric(text, name, **labels):
    (value,) = [
        float(value)
        for given, value in re.findall(rf"^{name}\{{([^}}]*)\}} (\S+)$", text, re.MULTILINE)
        if all(f'{key}="{wanted}"' in given for key, wanted in labels.items())
    ]
    return value


PAUSING = """
calls = []

@provider(input_types=TYPES, should_shuffle=False)
def pausing(settings, path):
    import os, time
    calls.append(path)
    while len(calls) == 2 and not os.path.exists('go'):
        time.sleep(0.02)
    for sample in samples(path):
        yield sample
"""


def test_a_trainers_metrics_are_those_of_its_log(job, paddle, tools):
    """Looked at while the provider keeps the second pass waiting."""
    with (job / "small_provider.py").open("a") as file:
        file.write(PAUSING)
    port = tools.free_port()
    process = paddle.start(job, "train", *PLAIN, "--config_args=obj=pausing", f"--metrics_port={port}")
    of = {"trainer": "0"}
    tools.wait_for(lambda: 'paddle_trainer_pass{trainer="0"} 1.0' in ask(port, "/metrics")[1])
    assert ask(port, "/readyz") == (200, "ok\n")
    _, text = ask(port, "/metrics")
    assert metric(text, "paddle_trainer_samples_total", **of) == 20
    assert metric(text, "paddle_trainer_batches_total", **of) == 5
    assert metric(text, "paddle_trainer_batch", **of) == 0
    assert metric(text, "paddle_trainer_passes_total", **of) == 1
    assert metric(text, "paddle_trainer_wanted_passes", **of) == 2
    (cost, error) = re.findall(r"Pass=0 .*?AvgCost=(\S+).*?Eval: classification_error_evaluator=(\S+)", log(job))[0]
    assert metric(text, "paddle_trainer_cost", **of) == float(cost)
    assert metric(text, "paddle_trainer_evaluator", **of) == float(error)
    assert metric(text, "paddle_trainer_data_seconds_total", **of) > 0
    assert metric(text, "paddle_trainer_compute_seconds_total", **of) > 0
    assert metric(text, "paddle_build_info", program="trainer", attempt="") == 1
    (job / "go").touch()
    assert process.wait(60) == 0, log(job)
    assert ask(port, "/healthz")[0] == 0


def log(folder):
    return (folder / "log").read_text()


def test_a_trainer_whose_data_does_not_come_is_stuck_after_the_limit_and_not_before(job, paddle, tools, monkeypatch):
    """A provider that loads for minutes is none: the limit is half an hour unless PADDLE_STUCK_TIMEOUT says less."""
    ports = [tools.free_port() for _ in range(2)]
    starts = {ports[0]: "1", ports[1]: "60"}
    for number, (port, limit) in enumerate(starts.items()):
        monkeypatch.setenv("PADDLE_STUCK_TIMEOUT", limit)
        folder = tools.lay_out(job.parent / f"job{number}", tools.make_lines(20))
        paddle.start(folder, "train", *PLAIN, "--config_args=obj=stuck", f"--metrics_port={port}")
        tools.wait_for(lambda folder=folder: "the provider is stuck" in log(folder))
    tools.wait_for(lambda: ask(ports[0], "/healthz")[0] == 503)
    assert re.fullmatch(
        r"the trainer has begun no batch for \d+ s, and it does not wait for its peers\n", ask(ports[0], "/healthz")[1]
    )
    assert ask(ports[0], "/readyz")[0] == 503
    assert ask(ports[1], "/healthz") == (200, "ok\n")


def test_a_trainer_that_waits_for_a_stuck_peer_is_alive_and_the_peer_is_not(tmp_path, paddle, tools, monkeypatch):
    """Trainer 1 waits in the first step for trainer 0, whose provider never delivers: longer than the limit."""
    monkeypatch.setenv("PADDLE_STUCK_TIMEOUT", "2")
    monkeypatch.setenv("PADDLE_PEER_TIMEOUT", "60")
    ports = [tools.free_port() for _ in range(3)]
    folders = [tools.lay_out(tmp_path / f"trainer{k}", tools.make_lines(20)) for k in range(2)]
    own = [["stuck", ports[0]], ["process", ports[1]]]
    job = ServerJob(paddle, tmp_path / "pserver", folders, *PLAIN)
    job.ports.append(f"--metrics_port={ports[2]}")  # of the server: each trainer has its own
    job.start(each=[[f"--config_args=obj={provider}", f"--metrics_port={port}"] for provider, port in own])
    tools.wait_for(lambda: ask(ports[0], "/healthz")[0] == 503)
    tools.wait_for(lambda: "paddle_trainer_exchange_seconds_total{" in ask(ports[1], "/metrics")[1])
    text = ask(ports[1], "/metrics")[1]
    waited = metric(text, "paddle_trainer_exchange_seconds_total", trainer="1")
    tools.wait_for(
        lambda: (
            metric(ask(ports[1], "/metrics")[1], "paddle_trainer_exchange_seconds_total", trainer="1") > waited + 2.5
        )
    )
    assert ask(ports[1], "/healthz") == ask(ports[1], "/readyz") == (200, "ok\n")
    assert ask(ports[2], "/healthz") == ask(ports[2], "/readyz") == (200, "ok\n")


def test_a_stopped_trainer_does_not_answer(job, paddle, tools):
    port = tools.free_port()
    process = paddle.start(job, "train", *PLAIN, "--config_args=obj=stuck", f"--metrics_port={port}")
    tools.wait_for(lambda: ask(port, "/healthz")[0] == 200)
    os.kill(process.pid, signal.SIGSTOP)
    tools.wait_for(lambda: ask(port, "/healthz", timeout=1)[0] == 0)  # the system takes a moment to stop all threads
    os.kill(process.pid, signal.SIGCONT)
    tools.wait_for(lambda: ask(port, "/healthz")[0] == 200)


@pytest.mark.parametrize("flag", ["--nics=nosuchnic0", "--nics=192.0.2.1"])
def test_a_trainer_that_cannot_be_watched_trains_all_the_same(job, paddle, tools, flag):
    port = tools.free_port()
    status, text = paddle.train(job, *PLAIN, f"--metrics_port={port}", flag)
    assert status == 0
    (warning,) = [line for line in text.splitlines() if "without /healthz" in line]
    assert re.match(rf"W.*--metrics_port={port}: ", warning)

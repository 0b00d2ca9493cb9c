"""What a program reports from a pod: the files of `paddle status` and of the report, log lines, and metrics."""

import json
import os
import threading

import pytest
import requests
from ports import free_ports
from waiting import DEADLINE_S, until

import paddle.v2 as paddle
from paddle_base.runtime.environment import JobEnvironment
from paddle_base.runtime.health.liveness import LIVENESS
from paddle_base.runtime.health.places import HOLDER, name_process
from paddle_cluster.launcher.programs.stalls import explain, find_stalls
from paddle_cluster.launcher.status import describe_job
from trainer.records.records import read_records
from trainer.telemetry.trainer_metrics import TrainerMetrics
from trainer.v2.jobs import reports

SAMPLES = [([i % 8 / 8, i % 3 / 3], [i % 8 / 4 + i % 3 / 3]) for i in range(32)]


def make_trainer(**flags):
    paddle.init(seed=1, trainer_count=1, **flags)
    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2))
    y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
    cost = paddle.layer.square_error_cost(input=paddle.layer.fc(input=x, size=1), label=y)
    return paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Adam(learning_rate=0.01))


def batches():
    return paddle.batch(lambda: SAMPLES, 8)()


class Pod:
    """The pod of this process. `end` is called at the end of a program."""

    def __init__(self, output):
        self.output = output

    def end(self):
        reports._found.pop().end()

    def progress(self, node=""):
        return json.loads((self.output / node / "progress.json").read_text())

    def records(self, kind):
        return [one for one in read_records(self.output) if one["kind"] == kind]


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch):
    monkeypatch.setattr(reports, "_found", [])
    monkeypatch.delattr("sys.last_value", raising=False)  # pytest sets it when a test fails
    monkeypatch.setattr(reports.atexit, "register", lambda function: None)


@pytest.fixture
def pod(tmp_path, monkeypatch):
    monkeypatch.setenv(HOLDER, "")
    monkeypatch.setenv("PADDLE_OUTPUT", str(tmp_path))
    monkeypatch.setenv("PADDLE_ATTEMPT", "1-abc")
    pod = Pod(tmp_path)
    yield pod
    if reports._found:
        pod.end()


def test_a_program_in_a_pod_reports_as_paddle_train_does(pod, capfd):
    """`paddle status` said that the program reports nothing, and there was no report.html."""
    make_trainer(log_period=2).train(batches, num_passes=3, checkpoint_dir=pod.output / "state")
    lines = [line.split("] ", 1)[1] for line in capfd.readouterr().err.splitlines() if "AvgCost=" in line]
    assert [line.split()[0] for line in lines[:3]] == ["Batch=2", "Batch=4", "Pass=0"] and len(lines) == 9
    pod.end()
    records = read_records(pod.output)
    assert [one["kind"] for one in records[:5]] == ["start", "batch", "batch", "pass", "checkpoint"]
    assert records[0]["passes"] == 3 and {one["name"] for one in records[0]["layers"]} >= {"x", "y"}
    costs = [one["cost"] for one in pod.records("pass")]
    assert len(costs) == 3 and costs[0] > costs[1] > costs[2]
    assert pod.records("end")[0]["status"] == 0
    progress = pod.progress("node_0")
    assert (progress["status"], progress["pass"], progress["batch"]) == ("finished", 2, 4)
    assert set(progress["usage"]) >= {"data_seconds", "save_seconds", "compute_seconds"}
    page = (pod.output / "report.html").read_text()
    assert all(f"{cost:g}" in page for cost in costs)
    assert (
        "finished: pass 2 of passes 0 to 2, batch 4, 100% of the pass, 100% of the job" in describe_job(pod.output)[0]
    )


def test_outside_a_pod_nothing_is_written(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("PADDLE_OUTPUT", raising=False)
    monkeypatch.chdir(tmp_path)
    make_trainer(log_period=2).train(batches, num_passes=2)
    assert "AvgCost" not in "".join(capfd.readouterr()) and not [*tmp_path.iterdir()]


def test_a_program_with_a_handler_prints_its_own_lines(pod, capfd):
    make_trainer().train(batches, num_passes=2, event_handler=lambda event: None)
    pod.end()
    assert "AvgCost" not in "".join(capfd.readouterr())
    assert [one["pass"] for one in pod.records("pass")] == [0, 1]


def test_a_test_of_the_handler_is_in_the_records(pod):
    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            found.append(trainer.test(batches).cost)

    found, trainer = [], make_trainer()
    trainer.train(batches, num_passes=2, event_handler=handler)
    found.append(trainer.test(batches).cost)
    assert reports._found[0].reporter.snapshot.status == "finished"  # also while the program goes on
    pod.end()
    assert [one["cost"] for one in pod.records("test")] == [float(f"{cost:g}") for cost in found[:2]]
    assert pod.progress("node_0")["usage"]["test_seconds"] > 0


def test_the_passes_of_several_trainings_are_counted_on(pod):
    """Programs call `train` again and again with num_passes=1; each call would have hidden the passes of the last."""
    trainer, second = make_trainer(), make_trainer()
    for _ in range(2):
        trainer.train(batches, num_passes=1)
        second.train(batches, num_passes=1)
    pod.end()
    assert [(one["pass"], one["samples"]) for one in pod.records("pass")] == [(n, 32) for n in range(4)]
    assert (pod.progress()["passes"], pod.progress()["job_fraction"]) == (4, 1.0)


def test_a_program_that_hangs_in_its_reader_is_a_stall(pod, monkeypatch):
    """`paddle status` told nothing of such a program."""
    monkeypatch.setattr("trainer.telemetry.writer.PERIOD_S", 0.01)
    goes_on = threading.Event()

    def reader():
        yield SAMPLES[:8]
        until(lambda: (pod.output / "node_0" / "progress.json").exists() and pod.progress("node_0")["batch"] == 1)
        first = pod.progress("node_0")
        until(lambda: pod.progress("node_0")["idle_seconds"] > first["idle_seconds"])
        told = {"0": {**pod.progress("node_0"), "idle_seconds": 40.0}}
        found.extend(explain(pod.output, one) for one in find_stalls(told, 1, ["a"], {"0": 1.0}))
        goes_on.set()

    found = []
    make_trainer().train(reader, num_passes=1)
    assert goes_on.is_set() and "has completed no batch for 0:00:40: waits for its data" in str(found[0])


def test_a_hanging_reader_is_stuck_and_the_work_after_the_training_is_not(pod, monkeypatch):
    def reader():
        yield SAMPLES[:8]
        monkeypatch.setattr(LIVENESS, "turned", LIVENESS.turned - 1000)
        stuck.append(metrics.why_stuck())

    stuck, trainer = [], make_trainer()
    metrics = TrainerMetrics(0, JobEnvironment("", "", "", 1.0, 500.0))
    trainer.train(batches, num_passes=1)
    metrics.begin(reports._found[0].reporter)
    trainer.train(reader, num_passes=1)
    assert stuck[0].startswith("the trainer has begun no batch for 100")
    assert not metrics.why_stuck() and LIVENESS.age > 500


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("no such word"), "failed"), (SystemExit(143), "stopped"), (None, "finished")]
)
def test_the_end_of_a_program_is_recorded(pod, monkeypatch, error, status):
    def handler(event):
        if error is not None and isinstance(event, paddle.event.EndPass):
            raise error

    try:
        make_trainer().train(batches, num_passes=1, event_handler=handler)
    except BaseException as raised:
        if not isinstance(raised, SystemExit):
            monkeypatch.setattr("sys.last_value", raised, raising=False)
    assert reports._found[0].reporter.snapshot.status == status
    pod.end()
    assert pod.progress()["status"] == status
    assert "no such word" in pod.progress()["message"] or status != "failed"


def test_a_forked_process_does_not_end_the_reports_of_its_parent(pod, monkeypatch):
    """It has the parent's functions for the end of the process, and perhaps a lock of the parent's thread."""
    make_trainer().train(batches, num_passes=1)
    process = reports._found[0]
    with monkeypatch.context() as child:
        child.setattr(reports.os, "getpid", lambda: 1)
        process.end()
    assert process.reporter.snapshot.status == "finished" and not pod.records("end")
    pod.end()
    assert len(pod.records("end")) == 1


def test_a_child_of_a_program_does_not_take_its_place(pod, monkeypatch, capfd):
    """A reader that starts a program of paddle.v2 would have overwritten the progress of its parent."""
    parent = f"{os.getppid()}"
    monkeypatch.setenv(HOLDER, name_process(parent))
    make_trainer().train(batches, num_passes=1)
    assert not [*pod.output.iterdir()] and f"the trainer with process {parent} has started" in capfd.readouterr().err


def test_the_metrics_page_answers(pod):
    (port,) = free_ports(1)
    pages = []

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            pages.append(requests.get(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S).text)

    make_trainer(metrics_port=port).train(batches, num_passes=1, event_handler=handler)
    assert 'paddle_trainer_passes_total{trainer="0"} 1' in pages[0]

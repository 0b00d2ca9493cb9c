"""Programs with `SGD.train(checkpoint_dir=...)` that are killed and started again."""

from __future__ import annotations

import signal
import tarfile

import numpy as np
import pytest
from ports import free_ports
from waiting import DEADLINE_S, until

TRAIN = """
import signal
paddle.init()
random.seed(7)
number = os.environ.get("PADDLE_INIT_TRAINER_ID", "0")
x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(3))
y = paddle.layer.data(name="y", type=paddle.data_type.integer_value(2))
hidden = paddle.layer.fc(input=x, size=6, layer_attr=paddle.attr.Extra(drop_rate=0.5))
hidden = paddle.layer.batch_norm(input=hidden, act=paddle.activation.Tanh())
output = paddle.layer.fc(input=hidden, size=2, act=paddle.activation.Softmax())
cost = paddle.layer.classification_cost(input=output, label=y)
parameters = paddle.parameters.create(cost)
optimizer = paddle.optimizer.Adam(
    learning_rate=0.01, learning_rate_schedule="poly", learning_rate_decay_a=0.1, learning_rate_decay_b=0.5,
    model_average=paddle.optimizer.ModelAverage(average_window=0.5))
trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local="PADDLE_INIT_PSERVERS" not in os.environ)
def handler(event):
    if isinstance(event, paddle.event.EndIteration):
        print("batch", event.pass_id, event.batch_id, event.cost, flush=True)
        if os.environ.get("HOLDS") == f"{event.pass_id}.{event.batch_id}":
            print("holds", flush=True)
            signal.pause()
    if isinstance(event, paddle.event.EndPass):
        print("pass", event.pass_id, event.metrics, flush=True)
reader = paddle.batch(paddle.reader.buffered(paddle.reader.shuffle(lines("train" + number), 9), 2), 4)
trainer.train(reader, num_passes=3, event_handler=handler, checkpoint_dir=sys.argv[1])
with open(f"{sys.argv[1]}-{number}.tar", "wb") as file:
    trainer.save_parameter_to_tar(file)
"""
PERIOD = {"PADDLE_INIT_CHECKPOINT_PERIOD_BY_BATCHES": "2"}


def write_lines(folder, trainers=1):
    rows = np.random.default_rng(1).normal(size=(23 * trainers, 3)).round(3).tolist()
    for number in range(trainers):
        text = "".join(f"{a} {b} {c} {int(a + b > c)}\n" for a, b, c in rows[number::trainers])
        (folder / f"train{number}").write_text(text)


def values_of(path):
    with tarfile.open(path) as archive:
        return {one: archive.extractfile(one).read() for one in archive.getnames()}


def told(log):
    """The lines of batches and passes of a log."""
    return [line for line in log.splitlines() if line.startswith(("batch ", "pass "))]


@pytest.mark.parametrize(("holds", "after"), [("1.4", "batch 1 4 "), ("1.5", "batch 1 4 "), ("2.0", "batch 2 0 ")])
def test_a_killed_program_goes_on_bit_for_bit(programs, tmp_path, holds, after):
    """A checkpoint is made after batches 1, 3 and 5 of each pass, which has 6, and after each pass."""
    write_lines(tmp_path)
    programs.write("train.py", TRAIN)
    whole = programs.start("whole", "run", "train.py", "whole", **PERIOD)
    killed = programs.start("killed", "run", "train.py", "again", HOLDS=holds, **PERIOD)
    until(lambda: "holds" in programs.log("killed"), "the batch")
    killed.send_signal(signal.SIGKILL)
    assert [killed.wait(DEADLINE_S), whole.wait(DEADLINE_S)] == [-signal.SIGKILL, 0], programs.log("whole")
    again = programs.start("again", "run", "train.py", "again", **PERIOD)
    assert again.wait(DEADLINE_S) == 0, programs.log("again")
    expected, found = told(programs.log("whole")), told(programs.log("again"))
    assert found[0].startswith(after)
    assert expected[-len(found) :] == found
    assert values_of(tmp_path / "again-0.tar") == values_of(tmp_path / "whole-0.tar")


def start_two(programs, name, folder, **environ):
    """Start two programs and two servers."""
    port = str(free_ports(2)[0])
    flags = {
        "PADDLE_INIT_PSERVERS": "127.0.0.1,127.0.0.2",
        "PADDLE_INIT_PORT": port,
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
    }
    options = (f"--port={port}", "--num_gradient_servers=2")
    servers = [programs.start(f"{name}-s{n}", "pserver", f"--nics=127.0.0.{n}", *options) for n in (1, 2)]
    return [
        programs.start(f"{name}{n}", "run", "train.py", folder, PADDLE_INIT_TRAINER_ID=str(n), **flags, **environ)
        for n in range(2)
    ] + servers


def test_two_programs_with_servers_go_on_bit_for_bit(programs, tmp_path):
    write_lines(tmp_path, trainers=2)
    programs.write("train.py", TRAIN)
    whole = start_two(programs, "whole", "whole", **PERIOD)
    assert [one.wait(DEADLINE_S) for one in whole] == [0] * 4, programs.log("whole0")
    killed = start_two(programs, "killed", "again", HOLDS="1.4", **PERIOD)
    until(lambda: "holds" in programs.log("killed0") + programs.log("killed1"), "the batch")
    for one in killed:
        one.send_signal(signal.SIGKILL)
        one.wait(DEADLINE_S)
    again = start_two(programs, "again", "again", **PERIOD)
    assert [one.wait(DEADLINE_S) for one in again] == [0] * 4, programs.log("again0")
    for number in range(2):
        found = told(programs.log(f"again{number}"))
        assert found[0].startswith("batch 1 4 ")
        assert told(programs.log(f"whole{number}"))[-len(found) :] == found
        assert values_of(tmp_path / f"again-{number}.tar") == values_of(tmp_path / f"whole-{number}.tar")


FLAGS = TRAIN.replace(", checkpoint_dir=sys.argv[1]", "")


@pytest.mark.parametrize("stopped", [0, 1])
def test_sigterm_ends_programs_of_a_pod_after_a_checkpoint(programs, tmp_path, stopped):
    """The launcher gives the flags save_dir and resume_from, and a program says nothing of checkpoints."""
    write_lines(tmp_path, trainers=2)
    programs.write("train.py", FLAGS.replace("signal.pause()", f"number == '{stopped}' and os.kill(os.getpid(), 15)"))
    whole = start_two(programs, "whole", "whole", PADDLE_INIT_SAVE_DIR="whole")
    assert [one.wait(DEADLINE_S) for one in whole] == [0] * 4, programs.log("whole0")
    environ = {"PADDLE_INIT_SAVE_DIR": "out"}
    ended = start_two(programs, "ended", "again", HOLDS="1.3", **environ)
    statuses = [one.wait(DEADLINE_S) for one in ended]
    assert statuses[stopped] == 143, programs.log(f"ended{stopped}")
    assert statuses[1 - stopped] != 0
    assert "SIGTERM" in programs.log(f"ended{1 - stopped}")
    saves = sorted(path.name for path in (tmp_path / "out/state").iterdir())
    assert saves == ["pass-00000", "pass-00001-001"]
    again = start_two(programs, "again", "again", PADDLE_INIT_RESUME_FROM=f"out/state/{saves[-1]}", **environ)
    assert [one.wait(DEADLINE_S) for one in again] == [0] * 4, programs.log("again0")
    for number in range(2):
        found = told(programs.log(f"again{number}"))
        assert found[0].startswith("batch 1 5 ")
        assert told(programs.log(f"whole{number}"))[-len(found) :] == found
        assert values_of(tmp_path / f"again-{number}.tar") == values_of(tmp_path / f"whole-{number}.tar")

"""Programs among the workers of `paddle elastic run` that come and go."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from test_v2_servers import values_of, write_lines
from waiting import DEADLINE_S

# The worker that began as rank 1 dies once. Later rank 0 changes the number of slots, and the batches take a while
# until there are as many workers.
TRAIN = """
import pathlib, time
from trainer.collective.divided_source import seed_generators, seed_of_pass
from paddle_cluster.elastic.process import operations as hvd

ALONE = "HOROVOD_RANK" not in os.environ
RANK = os.environ.get("HOROVOD_RANK", "alone")
died, wanted = pathlib.Path("died"), pathlib.Path("hosts")

def handler(event):
    if isinstance(event, paddle.event.BeginPass) and ALONE:
        seed_generators(seed_of_pass(7, event.pass_id))
    if not isinstance(event, paddle.event.EndIteration) or ALONE:
        return
    if (event.pass_id, event.batch_id) == (1, 3) and RANK == "1" and not died.exists():
        died.touch()
        os._exit(9)
    if (event.pass_id, event.batch_id) == (2, 2) and hvd.rank() == 0:
        pathlib.Path("hosts.new").write_text("localhost:SLOTS")
        pathlib.Path("hosts.new").replace(wanted)
    if event.pass_id >= 2 and hvd.size() != SLOTS:
        time.sleep(0.25)  # up to 16 s in all, for a start of a worker on a busy machine

paddle.init(seed=7)
parameters, trainer = network()
reader = paddle.batch(paddle.reader.shuffle(lines("train0"), 30), 4)
trainer.train(reader, num_passes=8, event_handler=handlerMORE)
save(parameters, RANK + ".tar")
print("ended among", 0 if ALONE else hvd.size(), "workers")
"""
FLAGS = ("-np", "2", "--min-np", "1", "--failures-per-host", "2", "--host-discovery-script", "cat hosts")


def start(programs, more="", slots=2):
    programs.write("train.py", TRAIN.replace("MORE", more).replace("SLOTS", str(slots)))
    (programs.folder / "hosts").write_text("localhost:2")
    return programs.start("driver", "elastic", "run", *FLAGS, sys.executable, "train.py", HOROVOD_ELASTIC_TIMEOUT="60")


@pytest.mark.parametrize("slots", [3, 1])
def test_each_sample_counts_once_when_workers_come_and_go(programs, tmp_path, slots):
    """A worker dies, and one joins or leaves: the values are those of a program alone, up to the order of sums."""
    write_lines(tmp_path, 42, 1)  # the last batch of a pass has 2 samples, for up to 3 workers
    run = start(programs, slots=slots)
    assert run.wait(DEADLINE_S) == 0, programs.log("driver")
    assert programs.log("driver").count(f"ended among {slots} workers") == slots
    assert "Traceback" not in programs.log("driver")
    assert programs.start("alone", "run", "train.py").wait(DEADLINE_S) == 0, programs.log("alone")
    *found, alone = (values_of(tmp_path / f"{name}.tar") for name in (*range(slots), "alone"))
    assert found == [found[0]] * slots
    for name, values in alone.items():
        ours, theirs = (np.frombuffer(one, "f4") for one in (found[0][name], values))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (", checkpoint_dir='state'", "workers that come and go keep their state in memory"),
        (")\ntrainer.train(reader", "calls train once"),
        (") if ALONE else trainer.train(paddle.batch(lines('train' + RANK), 4)", "the workers have different batches"),
    ],
)
def test_what_workers_that_come_and_go_cannot_do_is_refused(programs, tmp_path, more, said):
    write_lines(tmp_path, 8, 2)
    (tmp_path / "died").touch()
    run = start(programs, more)
    assert run.wait(DEADLINE_S) != 0
    assert said in programs.log("driver")

"""Programs among the workers of `paddle elastic run` that come and go."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from test_v2_servers import values_of, write_lines
from waiting import DEADLINE_S

# The worker that began as rank 1 dies once; later rank 0 adds a slot, and the batches take a while until it is used.
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
        pathlib.Path("hosts.new").write_text("localhost:3")
        pathlib.Path("hosts.new").replace(wanted)
    if event.pass_id >= 2 and hvd.size() < 3:
        time.sleep(0.05)

paddle.init(seed=7)
parameters, trainer = network()
reader = paddle.batch(paddle.reader.shuffle(lines("train0"), 30), 4)
trainer.train(reader, num_passes=8, event_handler=handlerMORE)
save(parameters, RANK + ".tar")
print("ended among", 0 if ALONE else hvd.size(), "workers")
"""
FLAGS = ("-np", "2", "--min-np", "1", "--failures-per-host", "2", "--host-discovery-script", "cat hosts")


def start(programs, more=""):
    programs.write("train.py", TRAIN.replace("MORE", more))
    (programs.folder / "hosts").write_text("localhost:2")
    return programs.start("driver", "elastic", "run", *FLAGS, sys.executable, "train.py", HOROVOD_ELASTIC_TIMEOUT="60")


def test_each_sample_counts_once_when_workers_come_and_go(programs, tmp_path):
    """A worker dies and another one joins: the values are those of a program alone, up to the order of sums."""
    write_lines(tmp_path, 42, 1)  # the last batch of a pass has 2 samples for 3 workers
    run = start(programs)
    assert run.wait(DEADLINE_S) == 0, programs.log("driver")
    assert programs.log("driver").count("ended among 3 workers") == 3
    assert programs.start("alone", "run", "train.py").wait(DEADLINE_S) == 0, programs.log("alone")
    one, other, third, alone = (values_of(tmp_path / f"{name}.tar") for name in ("0", "1", "2", "alone"))
    assert one == other == third
    for name, values in alone.items():
        np.testing.assert_allclose(np.frombuffer(one[name], "f4"), np.frombuffer(values, "f4"), rtol=1e-4, atol=1e-5)


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

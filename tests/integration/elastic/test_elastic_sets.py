"""Process sets and joins of real workers: a job without resets, and one that loses a worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from test_elastic_run import run

FIXED = """
import json
import numpy as np
import paddle.elastic as hvd

even, first = hvd.ProcessSet([0, 2]), hvd.ProcessSet([0])
hvd.init(process_sets=[even, first])
found = [one.process_set_id for one in (even, first, hvd.global_process_set)]
if even.included():
    found.append(float(hvd.allreduce(np.full(3, 1.0 + hvd.rank()), op=hvd.Sum, process_set=even)[0]))
for _ in range(hvd.rank()):
    found.append(float(hvd.allreduce(np.full(3, 6.0), op=hvd.Average)[0]))
found.append(hvd.join())
print(json.dumps([hvd.rank(), found]))
"""
ELASTIC = """
import os, signal
import numpy as np
import paddle.elastic as hvd

kept = hvd.ProcessSet([0, 1])
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
hvd.init(process_sets=[kept])
state = hvd.elastic.ObjectState(batch=0)
sets = []

@hvd.elastic.run
def train(state):
    assert all(one.process_set_id is None for one in sets)
    sets[:] = [hvd.add_process_set([0])] if hvd.size() > 2 else []
    assert kept.process_set_id == 1
    while state.batch < 6:
        state.batch += 1
        if state.batch == 4 and hvd.size() == 3 and hvd.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        total = hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=kept)[0] if kept.included() else 2.0
        assert total == 2.0 and hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()
        state.commit()
    return hvd.join()

assert 0 <= train(state) < hvd.size()
print("size", hvd.size())
"""


def write(folder: Path, script: str) -> list[str]:
    path = folder / "worker.py"
    path.write_text(script)
    return [sys.executable, str(path)]


def test_workers_have_the_declared_sets_and_end_by_a_join(tmp_path: Path) -> None:
    status, lines, log = run(tmp_path, "-np", "3", worker=write(tmp_path, FIXED))
    assert status == 0, log
    found = dict(json.loads(line.partition("<stdout>:")[2]) for line in lines)
    assert found == {
        0: [1, 2, 0, 4.0, 2],
        1: [1, 2, 0, 4.0, 2],
        2: [1, 2, 0, 4.0, 4.0, 2.0, 2],
    }


def test_the_declared_set_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    flags = ["-np", "3", "--min-np", "2", "--max-np", "3", "-H", "localhost:2,127.0.0.1:1", "--failures-per-host", "1"]
    status, lines, log = run(tmp_path, *flags, worker=write(tmp_path, ELASTIC))
    assert status == 0, log
    assert len(lines) == 2, lines
    assert all(line.endswith("size 2") for line in lines), lines

"""bench/allreduce.py: the ranks of a way are forked from one process, and end together."""

import os
import select
import signal
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


def list_children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def ranks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import allreduce

    contestant = allreduce.contest("connections", 2, 1_000, "")
    yield contestant
    contestant.close()


def test_the_end_of_a_rank_ends_the_measurement_and_the_other_ranks(ranks):
    """With 64 ranks of gloo, one that had ended left the others, and the program, waiting for five minutes."""
    assert ranks.run(2) > 0
    first, second = list_children(ranks._trainers[0].pid)
    other = os.pidfd_open(second)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(SystemExit, match="a rank of 'connections' has ended"):
        ranks.run(2)
    assert select.select([other], [], [], 60)[0]
    os.close(other)

"""How far a job is, by its files; and whether a moment has come."""

import pytest
from chaos.plan import BATCHES, PASSES, Trial
from chaos.progress import Progress, is_moment

HEAD = "I1122 02:01:16.741874 28554 TrainerInternal.cpp:165] "


def batch(number):
    return f"{HEAD} Batch={number} samples={4 * number} AvgCost=2.5 CurrentCost=2.5 Eval:  CurrentEval: \n"


def end_of_pass(number):
    return f"{HEAD} Pass={number} Batch={BATCHES} samples=480 AvgCost=1.3 Eval: \n"


@pytest.fixture
def job(tmp_path):
    (tmp_path / "node_0").mkdir()
    progress = Progress(tmp_path)
    log = tmp_path / "node_0" / "train.log"

    def write(text):
        with log.open("a") as stream:
            stream.write(text)
        progress.look()
        return progress

    return write


def test_batches_and_passes_are_counted_as_they_come(job):
    progress = job(batch(1) + batch(2))
    assert (progress.passes, progress.batch) == (0, 2)
    progress = job(end_of_pass(0))
    assert (progress.passes, progress.batch) == (1, 0)
    progress = job(batch(1))
    assert (progress.passes, progress.batch) == (1, 1)


def test_half_a_line_waits_for_its_rest(job):
    line = batch(12)
    assert job(line[:-40]).batch == 0
    assert job(line[-40:]).batch == 12


def test_a_new_log_is_a_new_attempt_and_has_no_batches_yet(job, tmp_path):
    assert job(batch(7)).logs == 1
    log = tmp_path / "node_0" / "train.log"
    log.rename(log.with_name("train.log.1"))
    progress = job("commandline: paddle train\n")
    assert (progress.logs, progress.has_batches) == (2, False)
    assert job(batch(1)).has_batches


def test_directories_are_seen_while_they_are_written(job, tmp_path):
    (tmp_path / ".pass-00001.tmp").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".pass-00000-001.tmp").mkdir()
    progress = job("")
    assert progress.saves == [".pass-00001.tmp"]
    assert progress.states == [".pass-00000-001.tmp"]
    assert is_moment(Trial("one", moment="saving", number=1), progress)
    assert not is_moment(Trial("one", moment="saving", number=0), progress)
    assert is_moment(Trial("one", moment="saving", saved="state", nth_state=1), progress)
    assert not is_moment(Trial("one", moment="saving", saved="state", nth_state=2), progress)


@pytest.mark.parametrize(
    ("moment", "passes", "batch_number", "comes"),
    [
        ("first-batch", 0, 0, False),
        ("first-batch", 0, 1, True),
        ("mid-pass", 1, 59, False),
        ("mid-pass", 1, 60, True),
        ("mid-pass", 2, 1, True),
        ("pass-end", 1, BATCHES, False),
        ("pass-end", 2, 0, True),
        ("last-batch", PASSES - 1, BATCHES - 2, False),
        ("last-batch", PASSES - 1, BATCHES - 1, True),
    ],
)
def test_moments_go_by_batches_and_passes(tmp_path, moment, passes, batch_number, comes):
    progress = Progress(tmp_path, passes=passes, batch=batch_number, has_batches=batch_number > 0)
    assert is_moment(Trial("one", moment=moment, number=1, batch=60), progress) is comes

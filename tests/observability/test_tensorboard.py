"""Event files of a finished job, read back by TensorBoard's own reader, which shares nothing with their writer."""

import subprocess

import pytest
from conftest import PADDLE
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainer.records.records import read_records


@pytest.fixture(scope="module")
def runs(local_output, tmp_path_factory):
    """Run -> tag -> [(step, value, time)] as TensorBoard reads it."""
    logdir = tmp_path_factory.mktemp("tensorboard")
    subprocess.run([PADDLE, "tensorboard", local_output, f"--logdir={logdir}"], check=True, timeout=120)
    found = {}
    for folder in logdir.iterdir():
        reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        reader.Reload()
        found[folder.name] = {
            tag: [(one.step, one.value, one.wall_time) for one in reader.Scalars(tag)]
            for tag in reader.Tags()["scalars"]
        }
    return found


@pytest.mark.parametrize(
    ("run", "kind", "prefix"), [("batches", "batch", "window_"), ("passes", "pass", ""), ("tests", "test", "")]
)
def test_tensorboard_reads_the_numbers_of_the_records(local_output, runs, run, kind, prefix):
    records = [one for one in read_records(local_output) if one["kind"] == kind]
    assert len(records) >= 4
    (evaluator,) = records[0]["evaluators"]
    length = max(one["batch"] for one in read_records(local_output) if one["kind"] == "pass")
    for tag, value_of in (
        ("cost", lambda one: one[f"{prefix}cost"]),
        (evaluator, lambda one: one[f"{prefix}evaluators"][evaluator]),
    ):
        assert runs[run][tag] == [
            (one["pass"] * length + one["batch"], pytest.approx(value_of(one), rel=1e-6), pytest.approx(one["time"]))
            for one in records
        ]
    assert runs[run].keys() == {"cost", evaluator}

"""A checkpoint that other numbers of trainers and servers go on from: parameters and the optimiser's state are kept."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from server_jobs import ServerJob

CONFIG = """
from paddle.trainer_config_helpers import *
kind = get_config_arg('kind', str, 'averages')
define_py_data_sources2('train.list', 'test.list', module='my_provider', obj='process')
settings(batch_size=4, learning_rate=get_config_arg('rate', float, 0.05), learning_rate_schedule='poly',
         learning_rate_decay_a=0.01, learning_rate_decay_b=0.5,
         learning_method={'averages': AdamOptimizer(), 'rows': AdaGradOptimizer()}.get(kind, MomentumOptimizer(0.9)),
         model_average=ModelAverage(0.5, max_average_window=7) if kind == 'averages' else None)
x, y, word = data_layer('x', 3), data_layer('y', 2), data_layer('word', 40)
table = embedding_layer(word, 64, param_attr=ParamAttr(name='table', sparse_update=kind == 'rows'))
hidden = fc_layer([x, table], 40, act=TanhActivation())
outputs(classification_cost(input=fc_layer(hidden, 2, act=SoftmaxActivation()), label=y))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

@provider(input_types={'x': dense_vector(3), 'y': integer_value(2), 'word': integer_value(40)}, should_shuffle=False)
def process(settings, path):
    for line in open(path):
        a, b, c, label = line.split()
        yield {'x': [float(a), float(b), float(c)], 'y': int(label), 'word': int(abs(float(a)) * 100) % 40}
"""
LINES = 96  # of all trainers together


@dataclasses.dataclass
class Job:
    """Runs of trainers and servers, of any number; the samples are divided evenly."""

    root: object
    paddle: object
    tools: object
    count: int = 0

    def run(self, trainers, servers, *arguments, passes=3):
        """Train to the end; returns trainer 0's folder and what it logged."""
        self.count += 1
        root = self.root / f"run{self.count}"
        lines, part = self.tools.make_lines(LINES), LINES // trainers
        folders = [root / f"trainer{number}" for number in range(trainers)]
        for number, folder in enumerate(folders):
            self.tools.lay_out(folder, lines[number * part : (number + 1) * part], self.tools.make_lines(7, seed=2))
            (folder / "config.py").write_text(CONFIG)
            (folder / "my_provider.py").write_text(PROVIDER)
        flags = ["--config=config.py", "--save_dir=out", f"--num_passes={passes}", "--checkpoints_kept=99"]
        job = ServerJob(self.paddle, root, folders, *flags, "--dot_period=0", servers=servers, rows=1)
        statuses = job.run(*arguments)
        assert statuses == [0] * len(statuses), "".join(map(job.log, range(trainers)))
        return folders[0], job.log()


@pytest.fixture
def job(tmp_path, paddle, tools):
    return Job(tmp_path, paddle, tools)


def model(folder, name="pass-00002"):
    return {path.name: path.read_bytes() for path in (folder / "out" / name).iterdir()}


def values(folder, name="pass-00002"):
    files = sorted(model(folder, name).items())
    return np.concatenate([np.frombuffer(one[16:], "<f4") for name, one in files if name[0] == "_" or name == "table"])


def counters(folder, name):
    """What the services of a checkpoint have counted."""
    services = json.loads((folder / "out" / "state" / name / "job.json").read_text())["services"]
    return {(one["counters"]["samples"], one["counters"]["steps"], one["counters"]["passes"]) for one in services}


@pytest.mark.parametrize("kind", ["averages", "rows"])
@pytest.mark.parametrize("servers", [1, 3])
def test_other_servers_go_on_to_the_bits_of_a_run_that_is_left_alone(job, kind, servers):
    """It was refused. The trainers keep their samples here, so that every gradient is the same."""
    plain, _ = job.run(2, 2, f"--config_args=kind={kind}")
    checkpoint = plain / "out" / "state" / "pass-00000"
    again, log = job.run(2, servers, f"--config_args=kind={kind}", f"--resume_from={checkpoint}")
    assert "going on before pass 1" in log and "divided anew" not in log
    assert model(again) == model(plain)
    assert counters(again, "pass-00002") == counters(plain, "pass-00002") == {(3 * LINES, 36, 3)}


@pytest.mark.parametrize("kind", ["momentum", "rows"])
def test_fewer_trainers_go_on_with_the_state_of_the_optimiser(job, kind):
    """Training went on from the newest pass with empty velocities and the first rate of the schedule."""
    made, _ = job.run(3, 3, f"--config_args=kind={kind}", passes=2)
    resumed = f"--resume_from={made / 'out' / 'state' / 'pass-00000'}"
    two, log = job.run(2, 2, f"--config_args=kind={kind}", resumed)
    assert "made by 3 trainers, but this job has 2 trainers" in log and "from pass 1 on" in log
    assert counters(two, "pass-00002") == {(3 * LINES, 8 + 2 * 12, 3)}, "the schedule counts on"
    other, _ = job.run(2, 3, f"--config_args=kind={kind}", resumed)
    assert model(other) == model(two)
    without, _ = job.run(
        2,
        2,
        f"--config_args=kind={kind}",
        f"--init_model_path={made / 'out' / 'pass-00000'}",
        "--start_pass=1",
        passes=2,
    )
    assert np.abs(values(without) - values(two)).max() > 1e-3


def test_without_a_gradient_only_the_velocity_of_before_moves_the_parameters(job):
    """w += v mu (1 - mu^k) / (1 - mu) in k steps at rate 0: the velocity of all trainers' steps has come along."""
    made, _ = job.run(3, 2, "--config_args=kind=momentum", passes=1)
    state = made / "out" / "state" / "pass-00000"
    still, _ = job.run(1, 3, "--config_args=kind=momentum,rate=0.0", f"--resume_from={state}", passes=2)
    steps = LINES // 4
    moved = values(still, "pass-00001") - values(made, "pass-00000")
    services = json.loads((state / "job.json").read_text())["services"]
    assert len(services) == 2 and moved.any()
    velocity = np.concatenate(
        [np.fromfile(state / "services" / str(number) / "state.velocity.bin", "<f4") for number in range(2)]
    )
    expected = velocity * (0.9 * (1 - 0.9**steps) / 0.1)
    np.testing.assert_allclose(np.sort(moved), np.sort(expected), rtol=1e-3, atol=1e-6)


def test_a_checkpoint_inside_a_pass_begins_the_pass_again_with_its_state(job):
    made, _ = job.run(3, 2, "--config_args=kind=averages", "--checkpoint_period_by_batches=3", passes=2)
    state = made / "out" / "state"
    inside = state / "pass-00001-002"
    again, log = job.run(2, 3, "--config_args=kind=averages", f"--resume_from={inside}")
    warning = re.search(r"^W.*made by 3 trainers, but this job has 2 trainers.*", log, re.MULTILINE)
    assert warning and "pass 1 begins again: samples trained before the checkpoint are trained again" in warning[0]
    assert "going on before pass 1, of which 0 batches are done" in log
    trained_before = 6 * 3 * 4  # batches, trainers, samples
    assert counters(again, "pass-00002") == {(3 * LINES + trained_before, 8 + 6 + 2 * 12, 3)}
    assert len(re.findall(r" Pass=1 Batch=12 samples=48 ", log)) == 1


def test_as_many_trainers_of_other_pods_divide_the_samples_anew(job, monkeypatch):
    made, _ = job.run(2, 2, "--checkpoint_period_by_batches=5", passes=1)
    inside = made / "out" / "state" / "pass-00000-001"
    monkeypatch.setenv("PADDLE_ABSENT", "1")
    again, log = job.run(2, 2, f"--resume_from={inside}", "--checkpoint_period_by_batches=5", passes=1)
    assert "this job has 2 trainers (without pods 1)" in log and "pass 0 begins again" in log
    last, log = job.run(2, 2, f"--resume_from={again / 'out' / 'state' / 'pass-00000-001'}", passes=1)
    assert "divided anew" not in log and "of which 5 batches are done" in log
    assert model(last, "pass-00000") == model(again, "pass-00000")

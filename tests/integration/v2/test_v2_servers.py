"""Programs with `SGD(is_local=False)`, and parameter servers that are started by hand."""

from __future__ import annotations

import sys
import tarfile

import numpy as np
import pytest
from ports import free_ports
from waiting import DEADLINE_S

from paddle_base.runtime.errors import LostPeerError

TRAIN = """
paddle.init()
parameters, trainer = network(is_local=False{more})
def handler(event):
    if isinstance(event, paddle.event.EndIteration) and os.environ.get("RAISES") and event.batch_id == 1:
        raise KeyError("the handler is odd")
number = os.environ["PADDLE_INIT_TRAINER_ID"]
trainer.train(paddle.batch(lines("train" + number), 4), num_passes=1, event_handler=handler)
trainer.train(paddle.batch(lines("train" + number), 4), num_passes=1)
save(parameters, number + ".tar")
"""
CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', None, module='small_provider', obj='process')
settings(batch_size=4, learning_rate=0.05, learning_method=MomentumOptimizer(0.5))
x, y = data_layer('x', 3), data_layer('y', 2)
outputs(classification_cost(input=fc_layer(x, 2, act=SoftmaxActivation()), label=y))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

@provider(input_types={'x': dense_vector(3), 'y': integer_value(2)}, should_shuffle=False)
def process(settings, path):
    for line in open(path):
        a, b, c, label = line.split()
        yield {'x': [float(a), float(b), float(c)], 'y': int(label)}
"""


def write_lines(folder, count, trainers):
    rows = np.random.default_rng(1).normal(size=(count, 3)).round(3).tolist()
    for number in range(trainers):
        text = "".join(f"{a} {b} {c} {int(a + b > c)}\n" for a, b, c in rows[number::trainers])
        (folder / f"train{number}").write_text(text)


def values_of(path):
    """{name: bytes of the values} of a tar file."""
    with tarfile.open(path) as archive:
        names = [name for name in archive.getnames() if not name.endswith(".protobuf")]
        return {name: archive.extractfile(name).read()[16:] for name in names}


class Job:
    """Two servers, and programs with trainer ids."""

    def __init__(self, programs, trainers, *flags):
        self.programs, self.trainers, self.port = programs, trainers, free_ports(3)[0]
        ports = [f"--port={self.port}", *flags, f"--num_gradient_servers={trainers}"]
        self.servers = [programs.start(f"server{n}", "pserver", f"--nics=127.0.0.{n}", *ports) for n in (1, 2)]

    def start(self, program, number, command="run", **environ):
        """Start a program, by `paddle run` or, with the command "", by Python itself."""
        words = [command, program] if command else []
        return self.programs.start(
            f"trainer{number}",
            *words,
            module="paddle" if command else program.removesuffix(".py"),
            PADDLE_INIT_PSERVERS="127.0.0.1,127.0.0.2",
            PADDLE_INIT_PORT=str(self.port),
            PADDLE_INIT_NUM_GRADIENT_SERVERS=str(self.trainers),
            PADDLE_INIT_TRAINER_ID=str(number),
            **environ,
        )

    def run(self, program):
        """Run a program as each trainer to the end of the job."""
        started = [self.start(program, number) for number in range(self.trainers)]
        assert [one.wait(DEADLINE_S) for one in (*started, *self.servers)] == [0] * (self.trainers + 2), self.logs()

    def logs(self):
        return "\n".join(self.programs.log(f"trainer{number}") for number in range(self.trainers))


def test_programs_with_servers_end_with_the_bits_of_paddle_train(programs, tmp_path):
    """Two calls of train go on with the same servers."""
    write_lines(tmp_path, 41, 3)
    programs.write("train.py", TRAIN.format(more=""))
    Job(programs, 3).run("train.py")
    found = [values_of(tmp_path / f"{number}.tar") for number in range(3)]
    job = Job(programs, 3)
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "small_provider.py").write_text(PROVIDER)
    trainers = []
    for number in range(3):
        (tmp_path / f"{number}.list").write_text(f"train{number}\n")
        (tmp_path / f"config{number}.py").write_text(CONFIG.replace("train.list", f"{number}.list"))
        flags = ["--local=0", "--pservers=127.0.0.1,127.0.0.2", f"--port={job.port}", f"--trainer_id={number}"]
        trainers.append(
            programs.start(
                f"trainer{number}", "train", f"--config=config{number}.py", "--save_dir=out", "--num_passes=2", *flags
            )
        )
    assert [one.wait(DEADLINE_S) for one in (*trainers, *job.servers)] == [0] * 5, job.logs()
    assert len(found[0]) == 2
    for name in found[0]:
        expected = (tmp_path / "out/pass-00001" / name).read_bytes()[16:]
        assert [one[name] for one in found] == [expected] * 3, name


@pytest.mark.parametrize("command", ["run", ""])
def test_an_exception_of_one_program_ends_the_others_with_the_cause(programs, tmp_path, command):
    """By the exit status, the launcher tells the program that has failed from those that have lost it."""
    write_lines(tmp_path, 32, 2)
    programs.write("train.py", TRAIN.format(more=""))
    job = Job(programs, 2)
    raising, other = job.start("train.py", 0, command, RAISES="1"), job.start("train.py", 1, command)
    assert raising.wait(DEADLINE_S) == 1, job.logs()
    assert other.wait(DEADLINE_S) == LostPeerError.exit_code
    assert "the handler is odd" in programs.log("trainer1")


def test_an_exception_after_train_is_told_too(programs, tmp_path):
    write_lines(tmp_path, 32, 2)
    more = 'if number == "0":\n    raise KeyError("odd after train")\ntrainer.train(paddle.batch(lines("train1"), 4))\n'
    programs.write("train.py", TRAIN.format(more="") + more)
    job = Job(programs, 2)
    raising, other = job.start("train.py", 0), job.start("train.py", 1)
    assert raising.wait(DEADLINE_S) == 1, job.logs()
    assert other.wait(DEADLINE_S) != 0
    assert "odd after train" in programs.log("trainer1")


def test_pserver_spec_names_the_servers(programs, tmp_path):
    write_lines(tmp_path, 12, 1)
    job = Job(programs, 1)
    spec = f"127.0.0.1:{job.port},127.0.0.2:{job.port}"
    programs.write("train.py", TRAIN.format(more=f", pserver_spec={spec!r}, use_etcd=False"))
    program = programs.start("trainer0", "run", "train.py", PADDLE_INIT_TRAINER_ID="0")
    assert [one.wait(DEADLINE_S) for one in (program, *job.servers)] == [0] * 3, job.logs()


WORDS = """
paddle.init()
number = int(os.environ["PADDLE_INIT_TRAINER_ID"])
word = paddle.layer.data(name="word", type=paddle.data_type.integer_value_sequence(20))
table = paddle.layer.embedding(input=word, size=4, param_attr=paddle.attr.Param(name="table", sparse_update=True))
output = paddle.layer.fc(input=paddle.layer.pooling(input=table), size=2, act=paddle.activation.Softmax())
label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(2))
cost = paddle.layer.classification_cost(input=output, label=label)
parameters = paddle.parameters.create(cost)
optimizer = paddle.optimizer.Momentum(momentum=0, learning_rate=0.1, is_async={is_async})
trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=False)
samples = [([i % 20, i * 7 % 20], i % 2) for i in range(24)]
tests = []
def handler(event):
    if isinstance(event, paddle.event.EndPass):
        save(parameters, str(number) + ".tar")
        trainer.test(paddle.batch(lambda: samples, 4))
trainer.train(paddle.batch(lambda: samples[number::2], 4), num_passes=2, event_handler=handler)
"""


@pytest.mark.parametrize("is_async", [False, True])
def test_all_rows_of_a_table_are_there_at_the_end_of_a_pass(programs, tmp_path, is_async):
    programs.write("train.py", WORDS.format(is_async=is_async))
    job = Job(programs, 2, "--ports_num_for_sparse=1")
    started = [job.start("train.py", number, PADDLE_INIT_PORTS_NUM_FOR_SPARSE="1") for number in range(2)]
    assert [one.wait(DEADLINE_S) for one in (*started, *job.servers)] == [0] * 4, job.logs()
    one, other = (values_of(tmp_path / f"{number}.tar") for number in range(2))
    assert set(one) == set(other) and "table" in one
    if not is_async:
        assert one == other


def test_the_workers_of_elastic_run_end_with_the_bits_of_programs_with_servers(programs, tmp_path):
    write_lines(tmp_path, 41, 2)
    programs.write("train.py", TRAIN.format(more=""))
    Job(programs, 2).run("train.py")
    found = [values_of(tmp_path / f"{number}.tar") for number in range(2)]
    text = TRAIN.format(more="").replace("is_local=False", "").replace("PADDLE_INIT_TRAINER_ID", "HOROVOD_RANK")
    programs.write("train.py", text.replace('number + ".tar"', 'number + "-worker.tar"'))
    run = programs.start("driver", "elastic", "run", "-np", "2", "-H", "localhost:2", sys.executable, "train.py")
    assert run.wait(DEADLINE_S) == 0, programs.log("driver")
    assert [values_of(tmp_path / f"{number}-worker.tar") for number in range(2)] == found

"""What tasks may be made of, through all programs of a job: RecordIO files, and tables with etcd as store."""

import re

import pytest
from task_jobs import TaskJob

MODES = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
ENDED = [0, 0, 0]  # master and servers
TABLE_CONFIG = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', 'test.list', module='word_provider', obj='process')
settings(batch_size=4, learning_rate=0.05, is_async=get_config_arg('is_async', bool, False),
         learning_method=MomentumOptimizer(0.0))
words = embedding_layer(data_layer('word', 50), 4, param_attr=ParamAttr(name='words', sparse_update=True))
outputs(classification_cost(fc_layer(words, 2, act=SoftmaxActivation()), data_layer('y', 2)))
"""
TABLE_PROVIDER = """
import held_provider
from paddle.trainer.PyDataProvider2 import *

@provider(input_types={'word': integer_value(50), 'y': integer_value(2)}, should_shuffle=False)
def process(settings, path):
    for line in held_provider.read(path):
        a, b, c, label = map(float, line.split())
        yield {'word': int(10 * (a + b - c)) % 50, 'y': int(label)}
"""


@pytest.fixture
def make_job(tmp_path, paddle, tools):
    return lambda **options: TaskJob(tmp_path / "job", paddle, tools.make_lines, **options)


def list_done(job, pass_number, *names):
    """The tasks that trainers say they have finished, each with what it is made of."""
    line = rf"task (\d+) of pass {pass_number} is done: \d+ batches, \d+ samples in \S+ s: (\S+)"
    return sorted((int(task), files) for name in names for task, files in re.findall(line, job.log(name)))


@MODES
def test_every_record_of_recordio_files_is_accounted_for_when_a_trainer_is_killed(make_job, is_async):
    job = make_job(is_async=is_async, tasks=4).to_records()
    chunk = job.parts[3]  # the second one of its file
    job.hold(chunk)
    job.start_all("one", "two")
    victim = job.await_holder(chunk, "one", "two")
    job.kill(victim)
    job.release(chunk)
    assert job.wait() == [*ENDED, 0], job.log("one") + job.log("two")
    assert job.accounts() == [job.whole_pass(more=1), job.whole_pass()]
    for number in range(2):
        assert list_done(job, number, "one", "two") == list(enumerate(job.parts))
    assert job.saved() == job.all_saved()


@MODES
def test_tables_are_trained_with_etcd_as_store_when_a_trainer_and_a_server_are_killed(make_job, etcd, is_async):
    job = make_job(is_async=is_async)
    (job.folder / "config.py").write_text(TABLE_CONFIG)
    (job.folder / "word_provider.py").write_text(TABLE_PROVIDER)
    job.flags = ("--nics=lo", f"--etcd_endpoints={etcd.endpoint}")
    job.server_flags = ("--ports_num_for_sparse=1", "--checkpoint_path=snapshots", "--checkpoint_interval=0.2s")
    job.hold("part-2")
    job.start_all("one", "two")
    victim = job.await_holder("part-2", "one", "two")
    job.kill(victim)
    job.kill("server-a")
    job.start_server("server-c")
    job.release("part-2")
    assert job.wait() == [*ENDED, 0], job.log("one") + job.log("two")
    assert job.accounts() == [job.whole_pass(more=1), job.whole_pass()]
    assert job.saved() == job.all_saved()
    assert (job.folder / "out" / "pass-00001" / "words").stat().st_size == 16 + 50 * 4 * 4
    assert re.search(r"server \d goes on after \d+ steps, from ", job.log("server-c"))

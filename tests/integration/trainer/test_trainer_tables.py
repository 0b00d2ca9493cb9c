"""Tables on sparse services, as `paddle` processes: as dense parameters on servers, and errors that name what to do."""

import re
import struct

import numpy as np
import pytest
from server_jobs import ServerJob

from pserver.store.sparse_partition import SparseTable

CONFIG = """
from paddle.trainer_config_helpers import *
test_list = 'test.list' if get_config_arg('test_list', bool, False) else None
define_py_data_sources2('train.list', test_list, module='words', obj='process')
method = {'sgd': MomentumOptimizer(0.0), 'adagrad': AdaGradOptimizer(), 'adam': AdamOptimizer()}
settings(batch_size=4, learning_rate=0.05, learning_method=method[get_config_arg('method', str, 'sgd')],
         is_async=get_config_arg('is_async', bool, False))
sparse = get_config_arg('sparse', bool, False)
word, bag, y = data_layer('word', 40), data_layer('bag', 40), data_layer('y', 2)
table = embedding_layer(word, 6, param_attr=ParamAttr(name='table', sparse_update=sparse))
parts = [pooling_layer(table, pooling_type=SumPooling()),
         fc_layer(bag, 3, param_attr=ParamAttr(name='bags', sparse_update=sparse), bias_attr=False)]
only = get_config_arg('only_tables', bool, False)
if only:
    outputs(sum_cost(fc_layer(bag, 3, act=TanhActivation(), bias_attr=False,
                              param_attr=ParamAttr(name='bags', sparse_update=sparse))))
else:
    outputs(classification_cost(input=fc_layer(parts, 2, act=SoftmaxActivation()), label=y))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

@provider(input_types={'word': integer_value_sequence(40), 'bag': sparse_binary_vector(40), 'y': integer_value(2)},
          should_shuffle=False)
def process(settings, path):
    for line in open(path):
        numbers = [int(word) for word in line.split()]
        yield {'word': numbers, 'bag': numbers[1:3], 'y': numbers[0] % 2}
"""


def make_lines(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(str(word) for word in rng.integers(0, 40, rng.integers(3, 6))) for _ in range(count)]


class Job(ServerJob):
    """A parameter server and trainers; the k-th of the shards of lines is that of trainer k."""

    def __init__(self, root, paddle, shards):
        folders = [root / f"trainer{k}" for k in range(len(shards))]
        for folder, lines in zip(folders, shards, strict=True):
            folder.mkdir(parents=True)
            (folder / "config.py").write_text(CONFIG)
            (folder / "words.py").write_text(PROVIDER)
            for name in ("train", "test"):
                (folder / f"{name}.list").write_text(f"{name}.txt\n")
                (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        flags = ["--config=config.py", "--save_dir=out", "--num_passes=2"]
        super().__init__(paddle, root / "pserver", folders, *flags, rows=2)

    def start(self, arguments, *flags):
        return super().start(f"--config_args={arguments}", *flags)

    def saved(self, name="pass-00001"):
        paths = sorted((self.folders[0] / "out" / name).glob("*"))
        return {path.name: path.read_bytes() for path in paths if path.suffix not in (".py", ".txt")}


def costs(log):
    return re.findall(r"Pass=.*|Test samples=.*", log)


@pytest.mark.parametrize("method", ["sgd", "adagrad", "adam"])
def test_tables_train_as_dense_parameters_on_the_servers_do_bit_for_bit(tmp_path, paddle, tools, method):
    shards = [make_lines(count, seed) for seed, count in enumerate([14, 11, 17])]  # of different numbers of batches
    results = []
    for sparse in (0, 1):
        job = Job(tmp_path / str(sparse), paddle, shards)
        statuses = job.run(f"sparse={sparse},method={method},test_list=1", "--trainer_count=1")
        assert statuses == [0, 0, 0, 0], job.log(0) + job.log(1) + job.log(2)
        results.append((job.saved(), [costs(job.log(number)) for number in range(3)]))
    assert {"bags", "done", "table"} < results[0][0].keys()
    assert results[0] == results[1]


def test_asynchronous_training_of_tables_by_one_trainer_is_synchronous_training_bit_for_bit(tmp_path, paddle, tools):
    results = []
    for is_async in (0, 1):
        job = Job(tmp_path / str(is_async), paddle, [make_lines(17, 1)])
        assert job.run(f"sparse=1,is_async={is_async}") == [0, 0], job.log()
        results.append((job.saved(), costs(job.log())))
    assert results[0] == results[1]


def test_asynchronous_trainers_with_tables_end_together(tmp_path, paddle, tools):
    job = Job(tmp_path, paddle, [make_lines(24, 1), make_lines(9, 2), make_lines(15, 3)])
    assert job.run("sparse=1,is_async=1", "--checkpoint_period_by_batches=2") == [0, 0, 0, 0], job.log()
    assert np.isfinite(np.frombuffer(job.saved()["table"], "<f4", offset=16)).all()


def test_threads_of_a_trainer_share_the_rows_of_its_batch(tmp_path, paddle, tools):
    shards = [make_lines(16, 1)]
    results = []
    for threads in (1, 2):
        job = Job(tmp_path / str(threads), paddle, shards)
        assert job.run("sparse=1", f"--trainer_count={threads}") == [0, 0], job.log()
        results.append(np.frombuffer(job.saved()["table"], "<f4", offset=16))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)


def test_a_model_of_tables_alone_trains(tmp_path, paddle, tools):
    job = Job(tmp_path, paddle, [make_lines(9, 1), make_lines(9, 2)])
    assert job.run("sparse=1,only_tables=1") == [0, 0, 0], job.log()
    assert sorted(job.saved()) == ["bags", "done", "table"]


def test_an_interrupted_run_with_tables_ends_in_the_same_bits(tmp_path, paddle, tools):
    shards = [make_lines(24, 1), make_lines(24, 2)]
    whole = Job(tmp_path / "whole", paddle, shards)
    assert whole.run("sparse=1,method=adagrad") == [0, 0, 0], whole.log()
    first = Job(tmp_path / "cut", paddle, shards)
    flags = ["--checkpoint_period_by_batches=4", "--checkpoints_kept=5"]
    assert first.run("sparse=1,method=adagrad", *flags, "--num_passes=1") == [0, 0, 0], first.log()
    made = sorted((first.folders[0] / "out/state").iterdir())
    again = Job(tmp_path / "again", paddle, shards)
    assert again.run("sparse=1,method=adagrad", *flags, f"--resume_from={made[0]}") == [0, 0, 0], again.log()
    assert again.saved() == whole.saved()


def test_without_sparse_ports_both_programs_flags_are_named(tmp_path, paddle, tools):
    job = Job(tmp_path, paddle, [make_lines(4, 1)])
    (trainer,) = job.start("sparse=1", "--ports_num_for_sparse=0")
    assert trainer.wait(60) == 78
    assert re.search(r"sparse_update of table, bags needs sparse ports.*`paddle pserver` and `paddle train`", job.log())


def test_servers_save_and_load_their_rows_themselves(tmp_path, paddle, tools):
    """--loadsave_parameters_in_pserver: the files of the legacy's servers hold the rows in their places."""
    shards = [make_lines(14, 1), make_lines(14, 2)]
    flag = "--loadsave_parameters_in_pserver=1"
    whole = Job(tmp_path / "whole", paddle, shards)
    assert whole.run("sparse=1") == [0, 0, 0], whole.log()
    plain = {name: np.frombuffer(whole.saved("pass-00000")[name], "<f4", offset=16) for name in ("table", "bags")}
    first = Job(tmp_path / "first", paddle, shards)
    assert first.run("sparse=1", flag, "--num_passes=1") == [0, 0, 0], first.log()
    saved = first.saved("pass-00000")
    assert saved.keys() == whole.saved().keys() - {"table", "bags"} | {"pserver.0000", "pserver.0001"}
    for service in range(2):
        rows = [
            plain[name].reshape(-1, width)[SparseTable(name, 40, width, 2).first(service) :: 2]
            for name, width in (("table", 6), ("bags", 3))
        ]
        expected = np.concatenate([one.reshape(-1) for one in rows])
        header = struct.pack("<iIQ", 0, 4, expected.size)
        assert saved[f"pserver.{service:04d}"] == header + expected.tobytes()
    again = Job(tmp_path / "again", paddle, shards)
    model = first.folders[0] / "out/pass-00000"
    assert again.run("sparse=1", flag, f"--init_model_path={model}", "--num_passes=1") == [0, 0, 0], again.log()
    check = Job(tmp_path / "check", paddle, shards)
    model = whole.folders[0] / "out/pass-00000"
    assert check.start("sparse=1", flag, f"--init_model_path={model}", "--num_passes=1")[0].wait(60) == 66
    assert re.search(r"a pserver cannot read .*pserver\.000[01]: No such file", check.log())
    found = again.saved("pass-00000")
    last = np.frombuffer(whole.saved("pass-00001")["table"], "<f4", offset=16).reshape(-1, 6)
    for service in range(2):
        rows = last[SparseTable("table", 40, 6, 2).first(service) :: 2]
        values = np.frombuffer(found[f"pserver.{service:04d}"], "<f4", offset=16)
        assert values[: rows.size].tobytes() == rows.tobytes()


def test_a_word_beyond_the_table_is_named(tmp_path, paddle, tools):
    job = Job(tmp_path, paddle, [["1 2 3", "4 99 5"]])
    assert job.start("sparse=1")[0].wait(60) == 65
    assert re.search(r"99", job.log()), job.log()


def test_the_mode_is_told_as_the_legacy_did(tmp_path, paddle, tools):
    job = Job(tmp_path, paddle, [make_lines(4, 1)])
    assert job.run("sparse=1") == [0, 0]
    assert "trainer mode: SgdSparseCpuTraining" in job.log()
    assert "automatically reset --use_old_updater=true" in job.log()


def test_a_trainer_that_is_killed_is_named_to_who_waits_for_its_rows(tmp_path, paddle, tools):
    job = Job(tmp_path, paddle, [make_lines(400, 1), make_lines(400, 2)])
    trainers = job.start("sparse=1", "--log_period=5", "--num_passes=1000")
    tools.wait_for(lambda: "Batch=5" in job.log(0))
    trainers[1].kill()
    assert [trainers[0].wait(60), job.servers[0].wait(60)] == [75, 75], job.log()
    assert re.search(r"trainer 1 at 127\.0\.0\.1 is lost", job.log()), job.log()

"""A program of `paddle.v2` with `cloud_reader` in the pods of k8s/tasks: components/program."""

import re

import pytest
from tasks_run import StartProgram

pytestmark = pytest.mark.elastic

PASSES = 10
# synchronous, dense and sparse; a sample takes a while, so that a pass of one trainer takes 6 s
PROGRAM = """
import hashlib, os, pathlib, time
import paddle.v2 as paddle

ETCD = os.environ["ETCD_ENDPOINTS"]


def features(pixels):
    return [pixel / 8 - 1 for pixel in pixels], [17 * at + pixel for at, pixel in enumerate(pixels)]


def mapper(sample):
    time.sleep(0.004)
    return *features(sample[0]), sample[1]


def read_test():
    for line in pathlib.Path("data/test.txt").read_text().splitlines():
        *pixels, label = map(int, line.split(","))
        yield *features(pixels), label


def handle(event):
    if isinstance(event, paddle.event.EndPass):
        error = trainer.test(paddle.batch(read_test, 64)).metrics["classification_error_evaluator"]
        values = b"".join(parameters.get(name).tobytes() for name in sorted(parameters.names()))
        print("pass", event.pass_id, "error", error, "digest", hashlib.sha256(values).hexdigest(), flush=True)


paddle.init()
pixels = paddle.layer.data(name="pixels", type=paddle.data_type.dense_vector(64))
ids = paddle.layer.data(name="ids", type=paddle.data_type.integer_value_sequence(64 * 17))
label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
rows = paddle.attr.Param(name="rows", sparse_update=True)
known = paddle.layer.pooling(
    input=paddle.layer.embedding(input=ids, size=8, param_attr=rows), pooling_type=paddle.pooling.Sum()
)
hidden = paddle.layer.fc(input=[pixels, known], size=32, act=paddle.activation.Tanh())
predicted = paddle.layer.fc(input=hidden, size=10, act=paddle.activation.Softmax())
cost = paddle.layer.classification_cost(input=predicted, label=label)
parameters = paddle.parameters.create(cost)
optimizer = paddle.optimizer.Momentum(momentum=0.5, learning_rate=0.002)
trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=False, pserver_spec=ETCD, use_etcd=True)
cloud = paddle.reader.map_readers(mapper, paddle.reader.creator.cloud_reader("data/part-*", ETCD))
trainer.train(paddle.batch(cloud, 20), num_passes=1000, event_handler=handle)
"""


def test_each_record_of_a_program_is_trained_once_in_each_pass(start_program: StartProgram) -> None:
    """Trainers come and go, and the master is killed; at the end all trainers have the same values."""
    run, samples = start_program("program-scaled", PROGRAM, trainers=1, passes=PASSES)
    run.wait_for_share(0.1)
    run.scale(3)
    run.wait_for_share(0.3)
    run.kill(run.wait("leader", run.leader))
    run.wait_for_share(0.5)
    run.scale(2)
    run.check_end(samples)
    said = {name: log for name, log in run.logs().items() if name.startswith("paddle-trainer")}
    last = [re.findall(rf"^pass {PASSES - 1} error (\S+) digest (\S+)$", log, re.M) for log in said.values()]
    ends = [end for found in last for end in found]
    assert len(said) >= 3 and len(ends) >= 2 and len(set(ends)) == 1, ends
    assert float(ends[0][0]) < 0.15

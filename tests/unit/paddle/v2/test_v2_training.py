"""What `trainer.SGD` and `infer` do for a program. The numbers of the line are those of the real v0.10.0."""

import io
import os
import signal
import struct

import numpy as np
import pytest
from each import each

import paddle.v2 as paddle
from paddle_base.runtime.errors import ConfigError, DataError, UsageError
from trainer.config.building import names
from trainer.config.language import optimizers as language
from trainer.v2 import process
from trainer.v2.optimizer import optimizer_names

layer, data_type = paddle.layer, paddle.data_type


class Line:
    """A line through samples with 3 numbers, with a trainer."""

    def __init__(self, optimizer=None, parameters=None, **more):
        x = layer.data(name="x", type=data_type.dense_vector(3))
        self.predict = layer.fc(input=x, size=1, act=paddle.activation.Linear(), **more)
        self.cost = layer.square_error_cost(
            input=self.predict, label=layer.data(name="y", type=data_type.dense_vector(1))
        )
        self.parameters = parameters or paddle.parameters.create(self.cost)
        self.optimizer = optimizer or paddle.optimizer.Momentum(momentum=0, learning_rate=1e-2)
        self.trainer = paddle.trainer.SGD(self.cost, self.parameters, self.optimizer)
        self.events = []

    def train(self, count=8, passes=1, handler=None, **more):
        reader = paddle.batch(lambda: iter(samples(count)), 4)
        self.trainer.train(reader, num_passes=passes, event_handler=handler or self.events.append, **more)
        return self

    def values(self):
        return np.concatenate([self.parameters.get(name).reshape(-1) for name in sorted(self.parameters.names())])

    def infer(self, **more):
        return paddle.infer(
            output_layer=self.predict, parameters=self.parameters, input=[s[:1] for s in samples(3)], **more
        )


def samples(count):
    rows = np.random.default_rng(1).random((count, 3), np.float32)
    return [(row, [float(row.sum())]) for row in rows]


def test_the_events_of_a_training_come_in_order_with_the_cost_per_sample():
    line = Line().train(passes=2)
    names = [type(one).__name__ for one in line.events]
    batch = ["BeginIteration", "EndForwardBackward", "EndIteration"]
    assert names == ["BeginPass", *batch, *batch, "EndPass"] * 2
    assert [(one.pass_id, one.batch_id) for one in line.events if hasattr(one, "batch_id")][-3:] == [(1, 1)] * 3
    costs = [one.cost for one in line.events if hasattr(one, "cost")]
    assert costs == sorted(costs, reverse=True) and isinstance(costs[0], float)


def test_a_training_learns_what_test_and_infer_then_show():
    line = Line(paddle.optimizer.Adam(learning_rate=0.1)).train(passes=150)
    result = line.trainer.test(paddle.batch(lambda: iter(samples(5)), 2))
    assert result.cost < 1e-3 and result.metrics == {}
    np.testing.assert_allclose(line.infer()[:, 0], [sample[1][0] for sample in samples(3)], atol=0.05)
    assert line.infer().dtype == np.float32 and line.infer().shape == (3, 1)


def test_gradients_are_there_before_the_step():
    seen = []

    def handler(event):
        if isinstance(event, paddle.event.EndForwardBackward):
            name = line.parameters.names()[0]
            seen.append((line.parameters.get(name), line.parameters.get_grad(name)))

    line = Line()
    line.train(count=4, handler=handler)
    (before, gradient), after = seen[0], line.parameters.get(line.parameters.names()[0])
    np.testing.assert_allclose(after, before - np.float32(1e-2) * gradient, rtol=1e-6)


def test_stored_events_keep_their_metrics():
    """In v0.10 all events showed the metrics of the last batch."""
    x = layer.data(name="x", type=data_type.dense_vector(1))
    predict = layer.fc(input=x, size=2, act=paddle.activation.Softmax())
    cost = layer.classification_cost(input=predict, label=layer.data(name="y", type=data_type.integer_value(2)))
    stored = []
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(learning_rate=1e-9))
    trainer.train(lambda: iter([[([9.0], 0), ([-9.0], 1)], [([9.0], 1), ([-9.0], 0)]]), event_handler=stored.append)
    errors = [one.metrics["classification_error_evaluator"] for one in stored if hasattr(one, "metrics")]
    assert sorted(errors[:2]) == [0.0, 1.0] and errors[2] == 0.5


def test_momentum_decay_and_clipping_of_the_optimizer_reach_every_parameter_without_its_own():
    """In v0.10 they had no effect."""
    optimizer = paddle.optimizer.Momentum(
        momentum=0.5, regularization=paddle.optimizer.L2Regularization(0.25), gradient_clipping_threshold=3
    )
    line = Line(optimizer, param_attr=paddle.attr.Param(name="w", l2_rate=0.125, momentum=0.75))
    w, bias = line.trainer.get_topology_proto().parameters
    assert (w.momentum, w.decay_rate, w.gradient_clipping_threshold) == (0.75, 0.125, 3)
    assert (bias.momentum, bias.decay_rate, bias.gradient_clipping_threshold) == (0.5, 0.25, 3)


def test_a_learning_method_of_the_config_language_has_its_name_here_too(monkeypatch):
    """A new optimiser needed a second class here, and a place in the list of paddle.v2.optimizer: issue M."""
    old = paddle.optimizer.Adamax(0.5, learning_rate=0.25).message  # the language has no defaults of beta1 and beta2
    assert (old.adam_beta1, old.adam_beta2, old.learning_rate) == (0.5, 0.999, 0.25)

    class SignOptimizer(language.BaseSGDOptimizer):
        def __init__(self, slope=1):
            self.slope = slope

        def to_setting_kwargs(self):
            return {"learning_method": f"sign{self.slope}"}

    monkeypatch.setitem(names._built, "optimizers", {**names.built("optimizers"), "SignOptimizer": SignOptimizer})
    found = optimizer_names()
    assert found.keys() - {*paddle.optimizer.__all__} == {"Sign"}
    for made in (found["Sign"](3, learning_rate=0.25), found["Sign"](learning_rate=0.25, slope=3)):
        assert (made.message.learning_method, made.message.learning_rate) == ("sign3", 0.25)
        assert isinstance(made, paddle.optimizer.Optimizer)
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        found["Sign"](3, 4)


def test_moments_stay_from_one_call_of_train_to_the_next():
    optimizer = paddle.optimizer.Momentum(momentum=0.9, learning_rate=1e-2)
    twice, once = Line(optimizer).train().train(), Line(optimizer).train(passes=2)
    assert twice.events[8].pass_id == 0 and once.events[8].pass_id == 1


def test_a_second_trainer_goes_on_from_the_values_that_there_are():
    """In v0.10 it began with random values, and the parameters went on showing those of the first trainer."""
    line = Line().train()
    before = line.values()
    second = paddle.trainer.SGD(line.cost, line.parameters, line.optimizer)
    np.testing.assert_array_equal(line.values(), before)
    second.train(paddle.batch(lambda: iter(samples(4)), 4))
    assert (line.values() != before).any()


def test_a_program_goes_on_from_a_tar_file():
    line, file = Line().train(), io.BytesIO()
    line.trainer.save_parameter_to_tar(file)
    file.seek(0)
    again = Line(parameters=paddle.parameters.Parameters.from_tar(file))
    np.testing.assert_array_equal(again.values(), line.values())
    name = line.parameters.names()[0]
    line.parameters.set(name, line.parameters.get(name))  # v0.10 refused the flat array that `get` returned


def test_averages_are_saved_and_the_values_stay():
    average = paddle.optimizer.ModelAverage(average_window=0.5)
    line = Line(paddle.optimizer.Momentum(momentum=0, learning_rate=1e-2, model_average=average)).train(passes=4)
    before, file = line.values(), io.BytesIO()
    line.trainer.save_parameter_to_tar(file)
    file.seek(0)
    saved = paddle.parameters.Parameters.from_tar(file)
    assert all((saved.get(name).reshape(-1) != line.parameters.get(name)).any() for name in saved)
    np.testing.assert_array_equal(line.values(), before)


def test_threads_share_a_batch(monkeypatch):
    file = io.BytesIO()
    Line().parameters.to_tar(file)

    def train():
        file.seek(0)
        return Line(parameters=paddle.parameters.Parameters.from_tar(file)).train().values()

    alone = train()
    monkeypatch.setattr(process, "_found", [])
    paddle.init(trainer_count=2)
    np.testing.assert_allclose(train(), alone, rtol=1e-5)


@pytest.mark.usefixtures("default_interrupts")
def test_ctrl_c_ends_training_after_the_batch_and_the_trainer_stays_usable():
    def handler(event):
        if isinstance(event, paddle.event.EndForwardBackward) and event.batch_id == 0:
            os.kill(os.getpid(), signal.SIGINT)

    line = Line()
    before = line.values()
    with pytest.raises(KeyboardInterrupt):
        line.train(handler=handler)
    assert (line.values() != before).any()
    assert len(line.train().events) == 8


@each(
    ("call", "kind", "complaint"),
    [
        (lambda: paddle.trainer.SGD(Line().cost, {}, Line().optimizer), TypeError, "parameters should be parameters"),
        (lambda: paddle.trainer.SGD(Line().cost, Line().parameters, "sgd"), TypeError, "must be paddle.v2.optimizer"),
        (lambda: Line().trainer.train(3), TypeError, "train_data_reader should be a function"),
        (lambda: Line().trainer.train(lambda: 3), TypeError, "train_data_reader should be a function"),
        (lambda: Line().train(handler=3), TypeError, "event handler should be a function"),
        (lambda: Line().train(feeding=3), TypeError, "Feeding should be dict or sequence or None."),
        (lambda: Line().train(feeding={"x": 0}), DataError, "feeding has no column for the data layer 'y'; it has x"),
        (lambda: Line().train(feeding={"x": 0, "y": 2}), DataError, "pass 0, batch 0, sample 0 is .* 3 columns"),
        (lambda: Line().trainer.train(lambda: iter([[]])), DataError, "pass 0, batch 0 has no sample"),
        (lambda: Line().trainer.train(lambda: iter([[([1, 2, 3], [1])], [([1, 2, 3], [1]), ([1, 2], [1])]])), DataError,
         r"pass 0, batch 1, sample 1: data layer x \(dense_vector\(3\)\): it has 2 numbers instead of 3"),
        (lambda: Line().trainer.train(lambda: iter([[([1, 2, 3], [3e38])]] * 9)), DataError,
         "the cost of layer .*square_error.* in pass 0, batch 0"),
        (lambda: Line().trainer.test(lambda: iter([])), DataError, "the reader of the test has no sample"),
        (lambda: Line().trainer.save_parameter_to_tar(io.BytesIO()), ConfigError, "call train first"),
        (lambda: paddle.infer(output_layer=Line().predict, parameters=paddle.parameters.Parameters(), input=[]),
         ValueError, "No such parameter ___fc_layer_0__.w0"),
        (lambda: Line().infer(field="values"), KeyError, "the fields of an output are value, id, prob"),
        (lambda: Line().infer(field="id"), ValueError, "has no field 'id'; it has value"),
        (lambda: paddle.inference.Inference(parameters=Line().parameters), ValueError, "Either output_layer or"),
        (lambda: paddle.optimizer.Adam(learning_rat=1), ConfigError, "'learning_rat' is no .* mean 'learning_rate'"),
        (lambda: layer.fc(sise=1), ConfigError, "'sise' is no argument; did you mean 'size'"),
        (lambda: paddle.optimiser, AttributeError, "no attribute 'optimiser'; did you mean 'optimizer'"),
        (lambda: Line().train(feeding={"x": 0, "y": "1"}), TypeError, r"feeding\['y'\] is '1'; it must be the number"),
        (lambda: Line().train(feeding={"x": 0, "y": -1}), TypeError, r"feeding\['y'\] is -1; it must be the number"),
        (lambda: Line().trainer.train(lambda: None), TypeError, "it has returned None"),
        (lambda: paddle.batch(8, lambda: iter([])), TypeError, "batch: the reader is 8; it must be a function"),
        (lambda: paddle.batch(lambda: iter([]), "8"), TypeError, "batch: batch_size is '8'; it must be a positive"),
        (lambda: Line(parameters=Line(name="other").parameters), ValueError,
         "has ___fc_layer_0__.w0 and none of the parameters, which are _other.w0, _other.wbias"),
        (lambda: paddle.infer(output_layer=Line().predict, parameters=Line(name="other").parameters, input=[]),
         ValueError, "No such parameter ___fc_layer_0__.w0, which the network needs; there are _other.w0, _other.wb"),
        (lambda: paddle.init(trainer_cont=2), UsageError, "trainer_cont is no flag; did you mean trainer_count?"),
        (lambda: paddle.init(trainer_count="many"), UsageError, "trainer_count is 'many'; it must be a whole number"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_clear_error(call, kind, complaint):
    with pytest.raises(kind, match=complaint):
        call()


def test_wrong_use_is_an_error_of_this_project_too():
    # `paddle run` prints such an error as one line; it printed a TypeError of v0.10 as a traceback through this project
    for call in (
        lambda: Line().trainer.train(3),
        lambda: Line().infer(field="values"),
        lambda: paddle.parameters.create(3),
        lambda: paddle.batch(lambda: iter([]), 0),
        lambda: paddle.reader.pipe_reader(3, print),
    ):
        with pytest.raises(ConfigError) as caught:
            call()
        assert not str(caught.value).startswith(("'", '"'))


def test_a_network_with_more_layers_than_the_parameters_is_said(capfd):
    parameters = Line(name="first").parameters
    x = layer.data(name="x", type=data_type.dense_vector(3))
    more = layer.fc(input=layer.fc(input=x, size=1, name="first"), size=1, name="second", bias_attr=False)
    cost = layer.square_error_cost(input=more, label=layer.data(name="y", type=data_type.dense_vector(1)))
    paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam())
    assert "the parameters lack _second.w0 of the network, which begins with random values" in capfd.readouterr().err


@pytest.mark.parametrize("read", [paddle.reader.map_readers, lambda f, r: paddle.reader.xmap_readers(f, r, 2, 2)])
def test_an_error_of_a_reader_says_its_batch(read):
    reader = paddle.batch(read(lambda sample: sample[0][9] if sample is last else sample, lambda: iter(rows)), 4)
    rows = samples(7)
    last, line = rows[-1], Line()
    for work, place in ((line.trainer.train, "pass 0, batch 1"), (line.trainer.test, "the test, batch 2")):
        with pytest.raises(IndexError) as caught:
            work(reader)
        (note,) = caught.value.__notes__  # what Python prints below the error
        assert note.startswith(f"{place}: the reader has raised IndexError: index 9 is out of bounds")


def test_a_reader_that_yields_nothing_is_said(capfd):
    line = Line().train(count=0)
    assert [type(one).__name__ for one in line.events] == ["BeginPass", "EndPass"]
    assert "pass 0: the reader has yielded no batch, so nothing is trained" in capfd.readouterr().err


def test_gradients_are_printed_and_clipped_errors_are_logged(capfd):
    """The session of a program gets its updater late; it printed and logged nothing."""
    paddle.init(log_error_clipping=True)
    line = Line(layer_attr=paddle.attr.Extra(error_clipping_threshold=1e-6))
    paddle.evaluator.gradient_printer(input=line.predict)
    line.trainer = paddle.trainer.SGD(line.cost, line.parameters, line.optimizer)
    said = line.train() and capfd.readouterr().err
    assert f"layer={line.predict.name} grad matrix:" in said
    assert f"layer={line.predict.name} need clipping" in said


def test_init_says_which_flags_have_no_meaning_here(capfd):
    paddle.init(use_gpu=True)
    assert "--use_gpu has no meaning here (there is no GPU here)" in capfd.readouterr().err


def test_init_reads_the_environment_and_may_say_the_same_again(monkeypatch):
    """v0.10 ended the process at a second call of init."""
    monkeypatch.setenv("PADDLE_INIT_SEED", "7")
    monkeypatch.setenv("PADDLE_INIT_NUM_PASSES", "3")
    paddle.init(use_gpu=False)
    paddle.init(use_gpu=False)
    first = Line().values()
    with pytest.raises(UsageError, match=r"seed=8.*this process has begun with seed=7"):
        paddle.init(use_gpu=False, seed=8)
    assert (first != Line().values()).any(), "a second trainer draws further numbers"


def test_several_outputs_of_infer_are_put_below_one_another_or_listed():
    x = layer.data(name="x", type=data_type.dense_vector(2))
    one, two = (layer.fc(input=x, size=2, act=paddle.activation.Softmax()) for _ in range(2))
    best = layer.max_id(input=one)
    parameters = paddle.parameters.create([one, two])
    paddle.trainer.SGD(layer.sum_cost(input=layer.addto(input=[one, two])), parameters, paddle.optimizer.Adam())
    inference = paddle.inference.Inference(parameters=parameters, output_layer=[one, two])
    rows = [([1.0, 2.0],), ([3.0, 4.0],), ([5.0, 6.0],)]
    assert inference.infer(input=rows).shape == (6, 2)
    assert [len(arrays) for arrays in inference.infer(input=rows, flatten_result=False)] == [3, 3]
    assert inference.infer(input=[]) == []
    prob, ids = paddle.infer(output_layer=best, parameters=parameters, input=rows, field=["prob", "id"])
    values = paddle.infer(output_layer=one, parameters=parameters, input=rows)
    np.testing.assert_array_equal(prob[:, 0], values.max(axis=1))
    np.testing.assert_array_equal(ids, values.argmax(axis=1))
    assert ids.dtype == np.int32


def test_a_serialized_topology_serves_without_the_program():
    line, file = Line().train(), io.BytesIO()
    paddle.topology.Topology(line.predict).serialize_for_inference(file)
    file.seek(0)
    inference = paddle.inference.Inference(parameters=line.parameters, fileobj=file)
    np.testing.assert_array_equal(inference.infer(input=[s[:1] for s in samples(3)]), line.infer())
    topology = paddle.topology.Topology(line.predict)
    topology.proto().parameters[0].size = 1 << 60
    large = io.BytesIO()
    topology.serialize_for_inference(large)
    large.seek(0)
    with pytest.raises(ValueError, match=f"has 3 values, but the network needs {1 << 60}"):
        paddle.inference.Inference(parameters=line.parameters, fileobj=large)
    with pytest.raises(DataError, match="is no topology"):
        paddle.inference.Inference(parameters=line.parameters, fileobj=io.BytesIO(b"cos\nsystem\n(S'ls'\ntR."))


def topology_of_python2(message, dim, levels, element):
    """A file as v0.11 wrote it: texts of Python 2, and the type as an object of a class with slots."""
    packed = b"T" + struct.pack("<I", len(message)) + message
    kind = b"cpaddle.trainer.PyDataProvider2\nInputType\n)\x81N}("
    for name, number in ((b"dim", dim), (b"seq_type", levels), (b"type", element)):
        kind += b"U" + bytes([len(name)]) + name + b"J" + struct.pack("<i", number)
    return b"\x80\x02}(U\x08protobin" + packed + b"U\tdata_type](U\x01x" + kind + b"u\x86b\x86eu."


def test_a_topology_of_v011_is_read_without_running_code():
    """It was refused: its message is a text of Python 2, and its types are objects of a class."""
    line = Line().train()
    message = paddle.topology.Topology(line.predict).proto().SerializeToString()
    file = io.BytesIO(topology_of_python2(message, 3, 0, 0))
    inference = paddle.inference.Inference(parameters=line.parameters, fileobj=file)
    np.testing.assert_array_equal(inference.infer(input=[s[:1] for s in samples(3)]), line.infer())
    for wrong in ((3, 1 << 30, 0), (3, 0, 7), (-1, 0, 0)):
        with pytest.raises(DataError, match="is no type of data"):
            paddle.inference.Inference(
                parameters=line.parameters, fileobj=io.BytesIO(topology_of_python2(message, *wrong))
            )
    other = topology_of_python2(message, 3, 0, 0).replace(b"paddle.trainer.PyDataProvider2", b"os")
    with pytest.raises(DataError, match="names a class or function"):
        paddle.inference.Inference(parameters=line.parameters, fileobj=io.BytesIO(other))


def test_event_handlers_see_the_outputs_of_layers():
    seen = []

    def handler(event):
        if isinstance(event, paddle.event.EndIteration):
            seen.append(event.gm.getLayerOutputs([line.predict.name, "x"]))

    line = Line()
    line.train(count=4, handler=handler)
    assert seen[0][line.predict.name]["value"].shape == (4, 1) and seen[0]["x"]["value"].shape == (4, 3)


def test_batches_have_the_given_size_and_the_last_may_be_smaller():
    assert list(paddle.batch(lambda: iter(range(5)), 2)()) == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="batch_size is 0"):
        paddle.batch(lambda: iter(range(5)), 0)


def test_a_wrong_declared_size_is_said_once_for_all_batches(capfd):
    """Programs of 2017 give labels of two classes the type integer_value(1)."""
    x, label = layer.data(name="x", type=data_type.dense_vector(1)), layer.data("label", data_type.integer_value(1))
    cost = layer.rank_cost(left=layer.fc(input=x, size=1), right=layer.fc(input=x, size=1), label=label)
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())
    trainer.train(lambda: iter([[([1.0], 1)]] * 3), feeding={"x": 0, "label": 1})
    assert capfd.readouterr().err.count("slot label (integer_value(1)) has the id 1") == 1


def test_extra_layers_are_computed_for_event_handlers():
    """The network left out what no output needed."""
    x = layer.data(name="x", type=data_type.dense_vector(1))
    extra, cost = layer.fc(input=x, size=2), layer.sum_cost(input=layer.fc(input=x, size=1))
    seen = []

    def handler(event):
        if isinstance(event, paddle.event.EndForwardBackward):
            seen.append(event.gm.getLayerOutput(extra.name)["value"].shape)

    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create([cost, extra]), paddle.optimizer.Momentum(), extra_layers=[extra]
    )
    trainer.train(lambda: iter([[([1.0],)] * 3]), event_handler=handler)
    assert seen == [(3, 2)]


def test_a_layer_may_have_a_name_that_no_file_can_have():
    # the Book's models name layers like "left/hidden"; their parameters are members of a tar file, and no files
    line, file = Line(name="left/score").train(), io.BytesIO()
    line.parameters.to_tar(file)
    read = paddle.parameters.Parameters.from_tar(io.BytesIO(file.getvalue()))
    assert sorted(read.names()) == ["_left/score.w0", "_left/score.wbias"]
    np.testing.assert_array_equal(
        paddle.infer(output_layer=line.predict, parameters=read, input=[s[:1] for s in samples(3)]), line.infer()
    )

"""Pictures of another size than their data layer says, as v0.11's deep_speech_2 feeds them."""

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle_base.runtime.errors import DataError

LAYER = paddle.layer


def declare(size, **shape):
    """Return the cost and the answer of a network that turns a picture into a sequence of its columns."""
    picture = LAYER.data(name="picture", type=paddle.data_type.dense_array(size), **shape)
    label = LAYER.data(name="label", type=paddle.data_type.integer_value(2))
    maps = LAYER.img_conv(
        input=picture, filter_size=(3, 5), num_channels=1, num_filters=2, stride=(1, 2), padding=(1, 2),
        act=paddle.activation.Linear(), bias_attr=False,
    )  # fmt: skip
    maps = LAYER.batch_norm(input=maps, act=paddle.activation.BRelu())
    maps = LAYER.img_pool(input=maps, pool_size=2, stride=1, pool_type=paddle.pooling.Max())
    columns = LAYER.block_expand(input=maps, num_channels=2, stride_x=1, stride_y=1, block_x=1, block_y=3)
    state = LAYER.recurrent(input=LAYER.fc(input=columns, size=3), reverse=True)
    answer = LAYER.fc(input=LAYER.first_seq(input=state), size=2, act=paddle.activation.Softmax())
    return LAYER.classification_cost(input=answer, label=label), answer


def make_batches(*widths):
    random = np.random.RandomState(1)
    return [[(random.rand(8, width), number % 2) for number in range(3)] for width in widths]


def train(cost, batches, values=None, passes=2, **more):
    parameters = paddle.parameters.create(cost)
    for name, value in (values or {}).items():
        parameters.set(name, value)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=0.01))
    costs = []

    def note(event):
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)

    trainer.train(lambda: iter(batches), num_passes=passes, event_handler=note, **more)
    return trainer, parameters, costs


def test_pictures_train_and_are_inferred_as_if_their_size_was_declared():
    """A batch of deep_speech_2 has the length of its longest sample; its data layer says 161 * 161."""
    batches = make_batches(12, 12)
    found = []
    for declared in ({"size": 64}, {"size": 96, "height": 8, "width": 12}):
        cost, answer = declare(**declared)
        random = np.random.RandomState(3)
        shapes = paddle.parameters.create(cost)
        values = {name: random.rand(*shapes.get_shape(name)) for name in sorted(shapes.names())}
        trainer, parameters, costs = train(cost, batches, values)
        tested = trainer.test(lambda: iter(batches)).cost
        inferred = paddle.infer(output_layer=answer, parameters=parameters, input=[one[:1] for one in batches[0]])
        found.append((costs, tested, inferred.tolist(), [parameters[name].tolist() for name in parameters.names()]))
    assert found[0] == found[1]


def test_batches_may_have_different_sizes():
    batches = make_batches(12, 8, 5, 9, 12, 7, 6, 12)
    cost, answer = declare(64)
    trainer, parameters, costs = train(cost, batches)
    assert len(costs) == 16 and np.isfinite(costs).all()
    each = [paddle.infer(output_layer=answer, parameters=parameters, input=[one[:1] for one in batch])[0]
            for batch in batches]  # fmt: skip
    inferer = paddle.inference.Inference(output_layer=answer, parameters=parameters)
    assert [inferer.infer(input=[one[:1] for one in batch])[0].tolist() for batch in batches] == [
        one.tolist() for one in each
    ]
    # a test inside the handler does not disturb the batch after it
    assert trainer.test(lambda: iter(batches[2:4])).cost > 0


def test_a_training_of_threads_goes_on_from_a_checkpoint_after_a_picture_of_another_size(tmp_path, capfd):
    """The checkpoint has the random streams of all threads, also if one thread computed the last batch."""
    batches = make_batches(8, 12)
    paddle.init(trainer_count=2)
    cost, _ = declare(64)
    shapes = paddle.parameters.create(cost)
    values = {name: np.full(shapes.get_shape(name), 0.1) for name in shapes.names()}
    _, whole, costs = train(cost, batches, values, passes=3)
    assert len(costs) == 6 and np.isfinite(costs).all()
    train(cost, batches, values, passes=1, checkpoint_dir=tmp_path)
    _, resumed, later = train(cost, batches, values, passes=3, checkpoint_dir=tmp_path)
    assert later == costs[2:]
    assert all((whole[name] == resumed[name]).all() for name in whole.names())
    assert "the checkpoint was written with" not in capfd.readouterr().err


def test_a_picture_that_a_layer_cannot_take_is_named_with_the_reason():
    picture = LAYER.data(name="picture", type=paddle.data_type.dense_array(64))
    hidden = LAYER.fc(input=picture, size=2, name="hidden")
    parameters = paddle.parameters.create(hidden)
    wanted = r"sample 0: data layer picture .* it has 96 numbers instead of 64; .*; as a picture it does not fit: .*"
    with pytest.raises(DataError, match=wanted + r"_hidden\.w0 would have 192 numbers instead of 128"):
        paddle.infer(output_layer=hidden, parameters=parameters, input=[(np.zeros((8, 12)),)])
    assert paddle.infer(output_layer=hidden, parameters=parameters, input=[(np.zeros((8, 8)),)]).shape == (1, 2)


def test_pictures_of_a_batch_have_one_shape():
    cost, _ = declare(64)
    with pytest.raises(DataError, match=r"pass 0, batch 0, sample 1 has the shape \(8, 9\) and sample 0 \(8, 12\)"):
        train(cost, [[(np.zeros((8, 12)), 0), (np.zeros((8, 9)), 1)]])


def test_names_of_layers_are_counted_on_after_a_picture_of_another_size():
    """The network for it is made in the middle of the program, between two layers."""
    cost, _ = declare(64)
    trainer, _, _ = train(cost, make_batches(8))
    first = LAYER.fc(input=LAYER.data(name="x", type=paddle.data_type.dense_vector(1)), size=1)
    trainer.train(lambda: iter(make_batches(12)))
    second = LAYER.fc(input=first, size=1)
    assert (first.name, second.name) == ("__fc_layer_0__", "__fc_layer_1__")

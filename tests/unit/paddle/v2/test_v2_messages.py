"""Errors name what the program has written: paddle.layer.fc and a data layer, not fc_layer() and a slot."""

import pytest
from each import each

import paddle.v2 as paddle
from paddle_base.runtime.errors import ConfigError, DataError

layer, types = paddle.layer, paddle.data_type


def some(name="x"):
    return layer.data(name=name, type=types.dense_vector(2))


@each(
    "make, text",
    [
        (lambda: layer.fc(input=some(), sise=3), r"^layer\.fc\(\): 'sise' is no argument; did you mean 'size'\?$"),
        (lambda: layer.fc(size=3), r"^layer\.fc\(\): missing a required argument: 'input'; its arguments are input, "),
        (
            lambda: layer.fc(input=some(), size=0),
            r"^layer\.fc\(name='__fc_layer_\d__'\): size is 0; .*; called at test_",
        ),
        (lambda: layer.max_id(input=some(), names="a"), r"^layer\.max_id\(\): 'names' is no argument"),
        (lambda: layer.cross_entropy_cost(input=some()), r"^layer\.cross_entropy_cost\(\): missing"),
        (lambda: layer.mixed(size="a", input=[layer.full_matrix_projection(input=some())]), r"^layer\.mixed\("),
        (lambda: paddle.networks.simple_lstm(input=some(), sizes=3), r"^networks\.simple_lstm\(\): 'sizes'"),
        (lambda: paddle.evaluator.auc(inputs=some()), r"^evaluator\.auc\(\): 'inputs' .* 'input'\?$"),
        (lambda: paddle.op.exp(inputs=some()), r"^op\.exp\(\): 'inputs'"),
        (lambda: paddle.optimizer.Adam(learningrate=1), r"^optimizer\.Adam\(\): 'learningrate' .* 'learning_rate'\?$"),
        (lambda: paddle.attr.Param(initial_stdev=1), r"^ParameterAttribute\(\): 'initial_stdev' .* 'initial_std'\?$"),
    ],
)
def test_a_wrong_call_has_the_name_of_the_program(make, text):
    with pytest.raises(ConfigError, match=text):
        paddle.parameters.create(make())


@each(
    "call, text",
    [
        (
            lambda: paddle.infer(output_layer=1, parameters=1, inputs=[]),
            "infer(): 'inputs' is no argument; did you mean 'input'?",
        ),
        (lambda: paddle.batch(list, batchsize=3), "batch(): 'batchsize' is no argument; did you mean 'batch_size'?"),
        (
            lambda: paddle.reader.shuffle(list, bufsize=3),
            "shuffle(): 'bufsize' is no argument; did you mean 'buf_size'?",
        ),
        (lambda: paddle.reader.firstn(list, count=3), "firstn(): 'count' is no argument; its arguments are reader, n"),
        (
            lambda: paddle.reader.creator.recordio("a", bufsize=3),
            "recordio(): 'bufsize' is no argument; did you mean 'buf_size'?",
        ),
        (lambda: paddle.trainer.SGD(costs=1), "SGD(): 'costs' is no argument; did you mean 'cost'?"),
        (
            lambda: paddle.trainer.SGD.train(None, num_pass=1),
            "SGD.train(): 'num_pass' is no argument; did you mean 'num_passes'?",
        ),
    ],
)
def test_an_unknown_keyword_has_the_nearest_name(call, text):
    """Python said "got an unexpected keyword argument" alone."""
    with pytest.raises(TypeError) as found:
        call()
    assert str(found.value) == text


def test_the_data_layer_of_a_wrong_sample_is_named():
    feeder = paddle.data_feeder.DataFeeder([("x", types.dense_vector(2))])
    with pytest.raises(
        DataError, match=r"^sample 0: data layer x \(dense_vector\(2\)\): it has 3 numbers instead of 2"
    ):
        feeder([([1, 2, 3],)])
    with pytest.raises(TypeError, match=r"^the type of data layer u is 3"):
        layer.data(name="u", type=3)


def test_a_layer_without_a_name_is_not_printed_as_an_empty_name():
    """A projection, and a layer of a step of a recurrent group, read <layer '' of ...>."""
    term = layer.full_matrix_projection(input=some())
    assert repr(term) == "<layer of layer.full_matrix_projection>"
    assert repr(layer.fc(input=some(), size=2)) == "<layer '__fc_layer_0__' of layer.fc>"

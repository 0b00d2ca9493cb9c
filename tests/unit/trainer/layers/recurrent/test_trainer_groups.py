"""Recurrent groups against the layers that do the same, against plain loops, and against finite differences."""

import itertools

import numpy as np
import pytest
from layer_checks import check_cost_gradients, make_network

from paddle.trainer_config_helpers import *
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.rng import Stream
from trainer.config.scripts.parse import parse_network_config
from trainer.layers.recurrent.subnetworks import separate_groups, split_step

SIZE = 3
STARTS = np.array([0, 4, 4, 5, 11, 13])
SUB_STARTS = np.array([0, 1, 4, 5, 7, 8, 11, 13])
W, B = ParamAttr(name="w"), ParamAttr(name="b")


def message(make, widths=None):
    """The model whose outputs `make` returns, of data layers named as its arguments; widths: theirs if not SIZE."""
    names = make.__code__.co_varnames[: make.__code__.co_argcount]

    def config():
        settings(batch_size=1, learning_rate=0.1)
        outputs(make(*(data_layer(name=name, size=(widths or {}).get(name, SIZE)) for name in names)))

    return parse_network_config(config)


def network(make, widths=None, nonzero=True):
    return make_network(message(make, widths), scale=0.5 * nonzero)


def frames(width=SIZE, starts=STARTS, seed=2, **extra):
    return Argument(value=np.random.default_rng(seed).normal(size=(starts[-1], width)), starts=starts, **extra)


def run(net, **batch):
    net.parameters.clear_gradients()
    net.forward(batch)
    net.backward()
    return net.outputs[net.output_names[0]]


def sum_of(layer):
    """A number per row that is not linear in it, so that a gradient in the wrong place shows."""
    return fc_layer(layer, size=1, act=SquareActivation(), bias_attr=False)


def check_gradients(net, table, **batch):
    def forward():
        net.forward(batch, Stream(7))  # always the same draws, where something is drawn

    forward()
    table.clear_gradients()
    complete = {}
    net.backward(lambda start: complete.update({start: table.gradients_from(start)[start:].copy()}))
    gradient = table.gradients.copy()
    assert list(complete)[-1:] == [0]
    for start, part in complete.items():
        assert part.tobytes() == gradient[start:].tobytes()
    check_cost_gradients(net, table, forward, np.random.default_rng(4), abs=1e-8, by_parameter=True)
    for parameter in table:
        assert parameter.gradient.any(), parameter.name


# ----- A group that spells a layer out equals the layer -----


@pytest.mark.parametrize("reverse", [False, True])
def test_a_group_of_lstm_steps_is_the_lstm_layer(reverse):
    def group(x):
        return lstmemory_group(x, size=SIZE, param_attr=W, lstm_bias_attr=B, reverse=reverse)

    def layer(x):
        return lstmemory(x, param_attr=W, bias_attr=B, reverse=reverse)

    (of_group, steps), (of_layer, whole) = network(group, {"x": 4 * SIZE}), network(layer, {"x": 4 * SIZE})
    whole["w"].value[:] = steps["w"].value
    whole["b"].value[:] = np.concatenate([np.zeros(4 * SIZE), steps["b"].value])  # the group has no bias of the gates
    x = frames(4 * SIZE)
    ours, theirs = run(of_group, x=x), run(of_layer, x=x)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=0, atol=1e-15)
    assert ours.starts is STARTS
    np.testing.assert_allclose(steps["w"].gradient, whole["w"].gradient, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(steps["b"].gradient, whole["b"].gradient[4 * SIZE :], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_group_of_gru_steps_is_the_gru_layer(reverse):
    def layer(x):
        return grumemory(x, param_attr=W, bias_attr=B, reverse=reverse)

    def group(x):
        return gru_group(x, gru_param_attr=W, gru_bias_attr=B, reverse=reverse, name="gru")

    def booted(x, boot):
        return gru_group(x, memory_boot=boot, gru_param_attr=W, gru_bias_attr=B, reverse=reverse, name="gru")

    of_layer, whole = network(layer, {"x": 3 * SIZE})
    x, boot = frames(3 * SIZE), Argument(value=np.zeros((len(STARTS) - 1, SIZE)))
    expected = run(of_layer, x=x).value
    for make, given in ((group, {"x": x}), (booted, {"x": x, "boot": boot})):
        of_group, steps = network(make, {"x": 3 * SIZE})
        np.testing.assert_allclose(run(of_group, **given).value, expected, rtol=0, atol=1e-15)
        for name in ("w", "b"):
            np.testing.assert_allclose(steps[name].gradient, whole[name].gradient, rtol=1e-12, atol=1e-13)
        assert ("gru_recurrent_group" in of_group.outputs) == ("boot" in given)  # without a boot layer: one layer


def test_a_naive_gru_is_the_gru_layer():
    def naive(x):
        return gru_group(x, naive=True, name="gru")

    def layer(x):
        return grumemory(x, param_attr=W, bias_attr=B)

    (of_naive, parts), (of_layer, whole) = network(naive, {"x": 3 * SIZE}), network(layer, {"x": 3 * SIZE})
    weights = {one.name: one.value.reshape(SIZE, SIZE) for one in parts if one.size == SIZE * SIZE}
    update, reset, candidate = (next(w for name, w in weights.items() if part in name) for part in PARTS)
    whole["w"].value[:] = np.concatenate([np.hstack([update, reset]).reshape(-1), candidate.reshape(-1)])
    biases = {one.name: one.value for one in parts if one.size == SIZE}
    whole["b"].value[:] = np.concatenate([next(b for name, b in biases.items() if part in name) for part in PARTS])
    x = frames(3 * SIZE)
    np.testing.assert_allclose(run(of_naive, x=x).value, run(of_layer, x=x).value, rtol=0, atol=1e-14)


PARTS = ("_update", "_reset", "_candidate")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_group_with_a_memory_is_the_recurrent_layer(reverse):
    def group(x):
        def step(row):
            before = memory(name="h", size=SIZE)
            with mixed_layer(name="h", size=SIZE, act=TanhActivation(), bias_attr=B) as h:
                h += identity_projection(row)
                h += full_matrix_projection(before, param_attr=W)
            return h

        return recurrent_group(step=step, input=x, reverse=reverse)

    def layer(x):
        return recurrent_layer(x, act=TanhActivation(), param_attr=W, bias_attr=B, reverse=reverse)

    (of_group, steps), (of_layer, whole) = network(group), network(layer)
    for name in ("w", "b"):
        whole[name].value[:] = steps[name].value
    for starts in (STARTS, np.array([0, 2]), np.array([0, 0, 7, 8])):  # steps are kept from batch to batch
        x = frames(starts=starts)
        np.testing.assert_allclose(run(of_group, x=x).value, run(of_layer, x=x).value, rtol=0, atol=1e-14)
        for name in ("w", "b"):
            np.testing.assert_allclose(steps[name].gradient, whole[name].gradient, rtol=1e-11, atol=1e-12)


# ----- Memories -----


def rnn_step(**boot):
    def step(row, *others):
        before = memory(name="h", size=SIZE, **boot)
        return fc_layer([row, before, *others], size=SIZE, act=TanhActivation(), name="h")

    return step


def test_the_boot_layer_gives_each_sequence_its_first_row():
    def make(x, first):
        boot = fc_layer(first, size=SIZE)
        return sum_of(recurrent_group(step=rnn_step(boot_layer=boot), input=fc_layer(x, size=SIZE), reverse=True))

    first = Argument(value=np.random.default_rng(7).normal(size=(len(STARTS) - 1, SIZE)))
    check_gradients(*network(make), x=frames(), first=first)


def test_the_first_row_is_the_activation_of_the_boot_bias():
    def make(x):
        boot = {"boot_bias": ParamAttr(name="boot"), "boot_bias_active_type": SigmoidActivation()}
        return sum_of(recurrent_group(step=rnn_step(**boot), input=fc_layer(x, size=SIZE)))

    check_gradients(*network(make), x=frames())


def test_a_memory_may_start_with_an_id_and_remember_ids():
    def make(x):
        def step(row):
            before = memory(name="best", size=SIZE, boot_with_const_id=2)
            with mixed_layer(size=SIZE) as scores:
                scores += identity_projection(row)
                scores += table_projection(before, param_attr=W)
            return maxid_layer(scores, name="best")

        return recurrent_group(step=step, input=x)

    net, table = network(make)
    x = frames()
    found = net.forward({"x": x})[net.output_names[0]]
    expected, w = [], table["w"].value.reshape(SIZE, SIZE)
    for begin, end in itertools.pairwise(STARTS):
        best = 2
        for row in x.value[begin:end]:
            best = int((row + w[best]).argmax())
            expected.append(best)
    assert found.ids.tolist() == expected
    assert found.value is None and found.starts is STARTS


def test_a_memory_may_remember_the_input_itself():
    def make(x):
        def step(row):
            before = memory(name=None, size=SIZE)
            before.set_input(row)
            return addto_layer([row, before], bias_attr=False)

        return recurrent_group(step=step, input=x)

    net, _ = network(make, nonzero=False)
    x = frames()
    expected = x.value.copy()
    expected[1:] += x.value[:-1]
    for begin, end in itertools.pairwise(STARTS):
        if begin < end:
            expected[begin] = x.value[begin]
    np.testing.assert_allclose(net.forward({"x": x})[net.output_names[0]].value, expected, rtol=1e-13)


# ----- Static inputs -----


def test_a_static_input_gives_every_step_the_row_of_its_sequence():
    def make(x, static):
        inputs = [fc_layer(x, size=SIZE), StaticInput(fc_layer(static, size=SIZE))]
        return sum_of(recurrent_group(step=rnn_step(), input=inputs))

    static = Argument(value=np.random.default_rng(7).normal(size=(len(STARTS) - 1, SIZE)))
    check_gradients(*network(make), x=frames(), static=static)


def test_a_static_sequence_is_seen_whole_at_every_step():
    def make(x, source):
        def step(whole, row):
            before = memory(name="h", size=SIZE)
            seen = pooling_layer(fc_layer(whole, size=SIZE, name="seen"), pooling_type=SumPooling())
            return fc_layer([row, before, seen], size=SIZE, act=TanhActivation(), name="h")

        inputs = [StaticInput(fc_layer(source, size=SIZE), is_seq=True), fc_layer(x, size=SIZE)]
        return sum_of(recurrent_group(step=step, input=inputs))

    source = frames(starts=np.array([0, 2, 3, 7, 8, 10]), seed=8)
    check_gradients(*network(make), x=frames(), source=source)


# ----- Sub-sequences -----


def nested_rnn(x):
    """A flat recurrence spelled out in two levels: an inner one that starts where the one before it ended."""

    def outer(sub_sequence):
        last = memory(name="last", size=SIZE)

        def inner(row):
            before = memory(name="h", size=SIZE, boot_layer=last)
            return fc_layer([row, before], size=SIZE, act=TanhActivation(), name="h", param_attr=[W, W], bias_attr=B)

        rows = recurrent_group(step=inner, input=sub_sequence, name="inner")
        last_seq(rows, name="last")
        return rows

    return recurrent_group(step=outer, input=SubsequenceInput(x), name="outer")


def flat_rnn(x):
    def step(row):
        before = memory(name="h", size=SIZE)
        return fc_layer([row, before], size=SIZE, act=TanhActivation(), name="h", param_attr=[W, W], bias_attr=B)

    return recurrent_group(step=step, input=x)


def test_a_group_within_a_group_goes_on_where_the_last_sub_sequence_ended():
    (nested, ours), (flat, theirs) = network(nested_rnn), network(flat_rnn)
    x = frames(sub_starts=SUB_STARTS)
    result, expected = run(nested, x=x), run(flat, x=frames())
    np.testing.assert_allclose(result.value, expected.value, rtol=1e-12, atol=1e-14)
    assert result.starts.tolist() == STARTS.tolist() and result.sub_starts.tolist() == SUB_STARTS.tolist()
    for name in ("w", "b"):
        np.testing.assert_allclose(ours[name].gradient, theirs[name].gradient, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_step_over_sub_sequences_may_give_a_row_each(reverse):
    def make(x):
        def step(sub_sequence):
            before = memory(name="h", size=SIZE)
            return fc_layer([last_seq(sub_sequence), before], size=SIZE, act=TanhActivation(), name="h")

        return sum_of(recurrent_group(step=step, input=SubsequenceInput(fc_layer(x, size=SIZE)), reverse=reverse))

    net, table = network(make)
    x = frames(sub_starts=SUB_STARTS)
    gathered = run(net, x=x)
    check_gradients(net, table, x=x)
    assert gathered.rows == len(SUB_STARTS) - 1


# ----- Inputs and results -----


def test_several_inputs_and_results_keep_their_places():
    def make(x, other):
        def step(row, other_row):
            both = addto_layer([row, other_row], bias_attr=False)
            return both, addto_layer([row], bias_attr=False)

        first, second = recurrent_group(step=step, input=[x, other])
        return [first, second]

    net, _ = network(make, nonzero=False)
    x, other = frames(), frames(seed=9)
    net.forward({"x": x, "other": other})
    first, second = (net.outputs[name] for name in net.output_names)
    np.testing.assert_array_equal(first.value, x.value + other.value)
    np.testing.assert_array_equal(second.value, x.value)


def test_sparse_and_id_inputs_reach_their_step():
    def make(bag, word):
        def step(bag_row, word_row):
            with mixed_layer(size=SIZE) as result:
                result += table_projection(word_row, param_attr=W)
            counted = fc_layer(bag_row, size=SIZE, param_attr=W, bias_attr=False, act=LinearActivation())
            return addto_layer([result, counted], bias_attr=False)

        return recurrent_group(step=step, input=[bag, word])

    net, table = network(make)
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, 3, STARTS[-1])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    bag = Sparse(SIZE, offsets, rng.integers(0, SIZE, offsets[-1]))
    word = rng.integers(0, SIZE, STARTS[-1])
    result = net.forward({"bag": Argument(sparse=bag, starts=STARTS), "word": Argument(ids=word, starts=STARTS)})
    w = table["w"].value.reshape(SIZE, SIZE)
    expected = bag.to_dense(np.float64) @ w + w[word]
    np.testing.assert_allclose(result[net.output_names[0]].value, expected, rtol=1e-12, atol=1e-14)


def test_words_that_occur_repeatedly_are_as_those_that_do_not():
    def make(word):
        table = embedding_layer(word, size=SIZE, param_attr=W)
        return sum_of(recurrent_group(step=rnn_step(), input=table))

    starts = np.array([0, 3, 4, 9])
    word = Argument(ids=np.array([1, 0, 1, 2, 2, 2, 1, 0, 1]), starts=starts)
    net, table = network(make)
    assert net.forward({"word": word})["__embedding_0__"].index is not None
    check_gradients(net, table, word=word)


def test_a_cost_within_the_group_is_one_of_every_frame():
    def make(x, y):
        def step(row, target):
            h = fc_layer([row, memory(name="h", size=SIZE)], size=SIZE, act=TanhActivation(), name="h")
            return square_error_cost(h, target)

        return recurrent_group(step=step, input=[fc_layer(x, size=SIZE), y])

    net, table = network(make)
    x, y = frames(), frames(seed=9)
    assert run(net, x=x, y=y).value.shape == (STARTS[-1], 1)
    check_gradients(net, table, x=x, y=y)


@pytest.mark.parametrize("levels", [1, 2])
def test_a_layer_of_a_group_that_an_evaluator_reads_is_handed_out(levels):
    def inner(row):
        return fc_layer(fc_layer(row, size=SIZE, name="inside"), size=SIZE)

    def outer(part):
        return last_seq(recurrent_group(step=inner, input=part, name="inner"))

    def make(x):
        if levels == 1:
            return recurrent_group(step=inner, input=x, name="inner")
        return recurrent_group(step=outer, input=SubsequenceInput(x), name="outer")

    name = "inside@inner" + "@outer" * (levels == 2)
    model = message(make)
    model.evaluators.add(name="sum", type="sum", input_layers=[name])
    net, table = make_network(model)
    table.values[:] = 0.5
    x = frames(sub_starts=SUB_STARTS if levels == 2 else None)
    found = net.forward({"x": x})[name]
    np.testing.assert_allclose(found.value, np.tanh(x.value @ np.full((SIZE, SIZE), 0.5) + 0.5))
    assert found.starts.tolist() == STARTS.tolist()
    assert levels == 1 or found.sub_starts.tolist() == SUB_STARTS.tolist()


def test_a_printing_layer_of_a_step_prints_step_by_step(capsys):
    """It was dropped, because nothing reads it."""

    def make(x):
        def step(row):
            print_layer(row, "show")
            return fc_layer(row, size=SIZE)

        return sum_of(recurrent_group(step=step, input=x, name="g"))

    net, table = network(make)
    x = frames()
    run(net, x=x)
    assert capsys.readouterr().err.count("layer=") == np.diff(STARTS).max()
    check_gradients(net, table, x=x)


def test_dropout_of_a_step_is_drawn_anew_at_every_step():
    def make(x):
        def step(row):
            return fc_layer(row, size=SIZE, layer_attr=ExtraAttr(drop_rate=0.5), act=LinearActivation())

        return recurrent_group(step=step, input=x)

    net, table = network(make, nonzero=False)
    table.values[-SIZE:] = 1  # the bias
    x = Argument(value=np.zeros((6, SIZE)), starts=np.array([0, 6]))
    out = net.forward({"x": x}, Stream(3))[net.output_names[0]].value
    kept = Stream(3).draws(6 * SIZE).reshape(6, SIZE) > 1 << 30
    np.testing.assert_array_equal(out, kept)


def test_a_batch_of_empty_sequences_gives_no_rows():
    net, table = network(lambda x: sum_of(recurrent_group(step=rnn_step(), input=fc_layer(x, size=SIZE))))
    starts = np.array([0, 0, 0])
    out = run(net, x=Argument(value=np.zeros((0, SIZE)), starts=starts))
    assert out.rows == 0
    assert not table.gradients.any()


def test_the_best_ids_of_a_sequence_are_a_sequence():
    net, _ = network(lambda x: maxid_layer(x), nonzero=False)
    x = frames(sub_starts=SUB_STARTS)
    found = net.forward({"x": x})[net.output_names[0]]
    assert found.ids.tolist() == x.value.argmax(axis=1).tolist()
    assert found.starts is STARTS and found.sub_starts is SUB_STARTS


# ----- What runs at once -----


def taken_apart(x):
    """Of these layers one depends on no step before it, two on none but the next depends on them."""

    def step(row):
        lifted = fc_layer(row, size=SIZE, name="lifted", act=TanhActivation())
        old = memory(name="lifted", size=SIZE)
        before = memory(name="h", size=SIZE)
        h = fc_layer([lifted, before, old], size=SIZE, name="h", act=TanhActivation())
        noisy = fc_layer(h, size=SIZE, name="noisy", layer_attr=ExtraAttr(drop_rate=0.5))
        scored = fc_layer([h, lifted, row, noisy], size=SIZE, name="scored")
        return fc_layer(scored, size=SIZE, name="result"), h, lifted

    return recurrent_group(step=step, input=fc_layer(x, size=SIZE), name="g")


def test_only_what_depends_on_steps_or_chance_runs_step_by_step():
    net, _ = network(taken_apart)
    parts = split_step(separate_groups(net.config)[1]["g"])
    ran = {"before": parts.before, "steps": parts.steps, "after": parts.after}
    assert {
        part: [one.name.partition("@")[0] for one in model.layers if one.type != "scatter_agent"]
        for part, model in ran.items()
    } == {"before": ["lifted"], "steps": ["h", "noisy"], "after": ["scored", "result"]}


def test_gradients_of_a_step_taken_apart_agree_with_finite_differences():
    check_gradients(*network(lambda x: [sum_of(one) for one in taken_apart(x)]), x=frames())


@pytest.mark.parametrize("reverse", [False, True])
def test_scores_of_a_step_are_computed_outside_of_the_group(reverse):
    def make(x):
        def step(row):
            h = fc_layer([row, memory(name="h", size=SIZE)], size=SIZE, name="h")
            return fc_layer(h, size=2, act=SoftmaxActivation(), name="scores"), fc_layer(h, size=SIZE, name="again"), h

        scores, again, h = recurrent_group(step=step, input=fc_layer(x, size=SIZE), name="g", reverse=reverse)
        return [sum_of(scores), sum_of(again), sum_of(h)]

    def spelled_out(x):
        def step(row):
            return fc_layer([row, memory(name="h", size=SIZE)], size=SIZE, name="h")

        h = recurrent_group(step=step, input=fc_layer(x, size=SIZE), name="g", reverse=reverse)
        scores, again = fc_layer(h, size=2, act=SoftmaxActivation()), fc_layer(h, size=SIZE)
        return [sum_of(scores), sum_of(again), sum_of(h)]

    net, table = network(make)
    x = frames()
    check_gradients(net, table, x=x)
    assert "h@g" in net.outputs
    same, other = network(spelled_out)
    for one, parameter in zip(table, other, strict=True):
        parameter.value[:] = one.value
    run(net, x=x)
    run(same, x=x)
    for one, other_name in zip(net.output_names, same.output_names, strict=True):
        np.testing.assert_allclose(net.outputs[one].value, same.outputs[other_name].value, rtol=1e-12)


def test_a_group_without_memories_runs_at_once():
    net, table = network(lambda x: recurrent_group(step=lambda row: fc_layer(row, size=SIZE, name="h"), input=x))
    same, whole = network(lambda x: fc_layer(x, size=SIZE))
    whole.values[:] = table.values
    x = frames()
    np.testing.assert_allclose(run(net, x=x).value, run(same, x=x).value, rtol=1e-13)
    np.testing.assert_allclose(table.gradients, whole.gradients, rtol=1e-12)


def test_errors_that_are_clipped_inside_are_logged_where_that_is_asked_for(capsys):
    def make(x):
        def step(row):
            clipped = ExtraAttr(error_clipping_threshold=0.01)
            return fc_layer([row, memory(name="h", size=SIZE)], size=SIZE, name="h", layer_attr=clipped)

        return recurrent_group(step=step, input=x, name="g")

    net, _ = network(make)
    run(net, x=frames())
    assert "clipping" not in capsys.readouterr().err
    net.watch(clipping=True)
    run(net, x=frames(starts=np.array([0, 8])))
    assert capsys.readouterr().err.count(" layer=h@g need clipping, max error=1") == 8


# ----- What is refused -----


def test_inputs_of_different_lengths_are_refused_by_name():
    def make(x, other):
        return recurrent_group(step=lambda a, b: addto_layer([a, b]), input=[x, other])

    net, _ = network(make, nonzero=False)
    with pytest.raises(DataError, match="sequence 1 of the batch has 0 items in x and 1 in other"):
        net.forward({"x": frames(), "other": frames(starts=np.array([0, 4, 5, 5, 11, 13]))})
    with pytest.raises(DataError, match="x has 5 sequences, but its input other has 1"):
        net.forward({"x": frames(), "other": frames(starts=np.array([0, 13]))})


def test_an_input_without_sequences_is_refused():
    net, _ = network(lambda x: recurrent_group(step=lambda row: addto_layer([row]), input=x), nonzero=False)
    with pytest.raises(ConfigError, match="its input x has no sequences"):
        net.forward({"x": Argument(value=np.zeros((2, SIZE)))})


def test_a_layer_inside_that_does_not_compute_is_refused_at_start():
    def make(x):
        return recurrent_group(step=lambda row: fc_layer(row, size=SIZE, name="inside"), input=x, name="g")

    model = message(make)
    for layer in model.layers:
        if layer.name == "inside@g":
            layer.type = "wizard"
    with pytest.raises(ConfigError, match="layer inside@g: type 'wizard'"):
        make_network(model)

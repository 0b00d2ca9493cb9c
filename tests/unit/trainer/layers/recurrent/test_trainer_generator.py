"""Beam search against all sequences that there are, and against the greedy choice."""

import itertools

import numpy as np
import pytest
from layer_checks import make_network

from paddle.trainer_config_helpers import *
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.config.scripts.parse import parse_network_config
from trainer.layers.recurrent.generator import Limits, Path, expand, shrink
from trainer.network.network import Network

SIZE, WORDS, SAMPLES, MOST = 3, 4, 5, 4
BOS, EOS = 0, 1


def network(beam_size, results, is_sequence=False):
    """A recurrent step: h from the last word, the state before it and a static input."""

    def config():
        settings(batch_size=1, learning_rate=0.1)
        static = data_layer(name="static", size=SIZE)
        boot = data_layer(name="boot", size=SIZE)

        def step(given, word):
            before = memory(name="h", size=SIZE, boot_layer=boot)
            if is_sequence:
                given = pooling_layer(given, pooling_type=SumPooling())
            h = fc_layer([given, word, before], size=SIZE, act=TanhActivation(), name="h")
            return fc_layer(h, size=WORDS, act=SoftmaxActivation(), name="p")

        word = GeneratedInput(size=WORDS, embedding_name="table", embedding_size=SIZE)
        outputs(
            beam_search(
                step=step,
                input=[StaticInput(static, is_seq=is_sequence), word],
                bos_id=BOS,
                eos_id=EOS,
                beam_size=beam_size,
                max_length=MOST,
                num_results_per_sample=results,
                name="decoder",
            )
        )

    return make_network(parse_network_config(config), scale=2)


def batch(**extra):
    rng = np.random.default_rng(2)
    return {
        "static": Argument(value=rng.normal(size=(SAMPLES, SIZE))),
        "boot": Argument(value=rng.normal(size=(SAMPLES, SIZE))),
        **extra,
    }


def next_probabilities(table, given, word, before):
    names = [one.name for one in table]
    w = [table[f"_h@decoder.w{number}"].value.reshape(SIZE, SIZE) for number in range(3)]
    assert "table" in names
    embedded = table["table"].value.reshape(WORDS, SIZE)[word]
    h = np.tanh(given @ w[0] + embedded @ w[1] + before @ w[2] + table["_h@decoder.wbias"].value)
    e = np.exp(h @ table["_p@decoder.w0"].value.reshape(SIZE, WORDS) + table["_p@decoder.wbias"].value)
    return h, e / e.sum()


def all_sequences(table, given, before):
    """Yield every sequence that ends, with its score."""
    ended = [(*middle, EOS) for n in range(MOST) for middle in itertools.product((0, 2, 3), repeat=n)]
    for ids in ended + list(itertools.product((0, 2, 3), repeat=MOST)):
        score, word, h = 0.0, BOS, before
        for one in ids:
            h, p = next_probabilities(table, given, word, h)
            score, word = score + np.log(p[one]), one
        yield score, ids


def split(ids):
    """The results of a sample: length, ids, -1, and so on."""
    found = []
    while len(ids):
        length = ids[0]
        assert ids[length + 1] == -1
        found.append(tuple(ids[1 : length + 1]))
        ids = ids[length + 2 :]
    return found


def test_a_beam_as_wide_as_the_tree_finds_the_best_sequences_of_all():
    net, table = network(beam_size=200, results=3)
    given = batch()
    found = net.forward(given)["__beam_search_predict__"]
    for sample in range(SAMPLES):
        static, boot = given["static"].value[sample], given["boot"].value[sample]
        expected = sorted(all_sequences(table, static, boot), reverse=True)[:3]
        begin, end = found.starts[sample : sample + 2]
        assert split(found.ids[begin:end].tolist()) == [ids for _, ids in expected]
        np.testing.assert_allclose(found.extras["scores"][sample], [score for score, _ in expected], rtol=1e-10)


def test_a_narrow_beam_gives_its_results_from_the_best_down():
    found = network(beam_size=2, results=2)[0].forward(batch())["__beam_search_predict__"]
    scores = found.extras["scores"]
    assert scores.shape == (SAMPLES, 2)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_a_beam_of_one_takes_the_likeliest_word_every_time():
    net, table = network(beam_size=1, results=1)
    given = batch()
    found = net.forward(given)["__beam_search_predict__"]
    for sample in range(SAMPLES):
        h, word, expected = given["boot"].value[sample], BOS, []
        while (word != EOS and len(expected) < MOST) or not expected:
            h, p = next_probabilities(table, given["static"].value[sample], word, h)
            word = int(p.argmax())
            expected.append(word)
        begin, end = found.starts[sample : sample + 2]
        assert found.ids[begin:end].tolist() == expected
    assert not found.extras


def test_a_static_sequence_follows_its_path():
    starts = np.array([0, 2, 3, 3, 6, 8])
    rows = np.random.default_rng(5).normal(size=(8, SIZE))
    sums = np.array([rows[a:b].sum(axis=0) for a, b in itertools.pairwise(starts)])
    whole = network(3, 2, is_sequence=True)[0].forward(batch(static=Argument(value=rows, starts=starts)))
    single = network(3, 2)[0].forward(batch(static=Argument(value=sums)))
    name = "__beam_search_predict__"
    assert whole[name].ids.tolist() == single[name].ids.tolist()
    np.testing.assert_allclose(whole[name].extras["scores"], single[name].extras["scores"])


def test_an_evaluator_may_read_what_is_generated():
    net, _ = network(beam_size=2, results=2)
    net.forward(batch())
    assert net.cost() == 0


def paths(*scores):
    return [Path(0, (), score, 0) for score in scores]


@pytest.mark.parametrize(
    ("going_on", "finished", "kept", "remaining"),
    [
        ((-3, -1, -2), (), (-1, -2), ()),  # the best go on
        ((-3, -1), (-2.5, -4), (-3, -1), (-2.5,)),  # what scores below them is dropped
        ((-3, -2), (-1,), (-3, -2), (-1,)),  # not enough yet
        ((-3, -2), (-1, -2), (), (-1, -2)),  # none can become better: done
        ((), (-1,), (), (-1,)),
    ],
)
def test_a_sample_is_done_when_nothing_can_become_better(going_on, finished, kept, remaining):
    result = shrink(paths(*going_on), paths(*finished), beam_size=2)
    assert [[path.score for path in part] for part in result] == [list(kept), list(remaining)]


def test_scores_are_rounded_at_each_step_as_in_the_original():
    gains = np.array([[-0.1]], np.float32)
    (longer,), _ = expand(paths(-3.3), gains, np.array([[0]]), Limits(1, 9, 5))
    assert longer.score == float(np.float32(-3.3) + np.float32(-0.1)) != -3.3 - 0.1


def test_further_results_of_a_step_that_generates_may_be_there_and_not_be_read():
    """A step function of training that returns more than the probabilities was refused."""
    expected = network(beam_size=2, results=2)[0].forward(batch())["__beam_search_predict__"]
    net, table = network(beam_size=2, results=2)
    group = next(one for one in net.config.sub_models if one.is_recurrent_layer_group)
    group.out_links.add(layer_name="h@decoder", link_name="h")
    net.config.layers.add(name="h", type="data", size=SIZE)
    net.config.sub_models[0].layer_names.append("h")
    found = Network(net.config, table).forward(batch())["__beam_search_predict__"]
    assert found.ids.tolist() == expected.ids.tolist()
    net.config.output_layer_names.append("h")
    with pytest.raises(ConfigError, match=r"layer h .* is a further result of a step that generates, which gives only"):
        Network(net.config, table).forward(batch())


def test_an_evaluator_reads_the_rows_of_every_step():
    """Printers and evaluators in a step that generates were refused with an untrue reason."""
    net, table = network(beam_size=1, results=1)
    model = net.config
    model.evaluators.add(
        name="show", type="value_printer", input_layers=["h@decoder", "__beam_search_predict__@decoder"]
    )
    net, given = Network(model, table), batch()
    outputs = net.forward(given)
    found, states = outputs["__beam_search_predict__"], outputs["h@decoder"]
    lengths = np.diff(found.starts)
    assert np.diff(states.starts).tolist() == [(lengths > step).sum() for step in range(lengths.max())]
    h, word = given["boot"].value, [BOS] * SAMPLES
    first = [next_probabilities(table, given["static"].value[n], word[n], h[n])[0] for n in range(SAMPLES)]
    np.testing.assert_allclose(states.value[:SAMPLES], first)
    assert outputs["__beam_search_predict__@decoder"].ids.tolist() == [
        found.ids[begin + step]
        for step in range(lengths.max())
        for begin, length in zip(found.starts[:-1], lengths, strict=True)
        if step < length
    ]

"""The cost over the paths of a beam search: by hand, and finite differences in float64."""

import numpy as np
import pytest
from layer_checks import check_gradients, check_parts, dense, ids, make_layer, make_network, run

from paddle import trainer_config_helpers as language
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.layers.cost.beam import Expansion, list_paths

RNG = np.random.default_rng(4)


def scores(starts, sub_starts=None):
    return dense(RNG.normal(size=(starts[-1], 1)), starts, sub_starts)


# two samples: lists of 3 and 4 items; two and one candidates; then lists of 2, 3 and 4 items; then four lists
STEPS = [
    (scores([0, 3, 7]), [[2, 0], [1, -1]]),
    (scores([0, 5, 9], [0, 2, 5, 9]), [[1, -1], [0, 2], [3, -1]]),
    (scores([0, 6, 8], [0, 1, 4, 6, 8]), [[0, -1], [2, 1], [1, 0], [0, -1]]),
]
GOLDS = {
    "found": [[0, 1], [2, 3], [1, 0]],
    "lost at the first step": [[1, 1], [9, 3], [9, 0]],
    "lost at the second step": [[2, 1], [0, 0], [9, 9]],
    "lost at the last step": [[2, 1], [1, 3], [0, 1]],
}


def given(golds):
    return [
        one
        for (step, candidates), gold in zip(STEPS, golds, strict=True)
        for one in (step, dense(np.array(candidates, float)), ids(gold))
    ]


def make():
    return make_layer("cross_entropy_over_beam", 0, [{}] * 9)


@pytest.mark.parametrize("case", GOLDS)
def test_gradients_agree_with_finite_differences(case):
    check_gradients(*make(), given(GOLDS[case]), varied=[0, 3, 6])


def test_the_cost_is_that_of_all_paths_by_hand():
    layer, _ = make()
    found = run(layer, *given(GOLDS["found"])).value[:, 0]
    first, second, third = (step.value[:, 0] for step, _ in STEPS)
    # of sample 0: items 2 and 0; of these 1, and 0 and 2; of these 0, 2 and 1, 1 and 0
    paths = [
        first[2] + second[1] + third[0],
        first[0] + second[2 + 0] + third[1 + 2],
        first[0] + second[2 + 0] + third[1 + 1],
        first[0] + second[2 + 2] + third[4 + 1],
        first[0] + second[2 + 2] + third[4 + 0],
    ]
    assert found[0] == pytest.approx(np.log(np.exp(paths).sum()) - paths[3])
    assert found[1] == pytest.approx(0)  # one path only


def test_a_right_path_that_was_lost_is_one_more():
    steps = [
        Expansion(10, [0, 4], [(0, 3), (0, 1)], 3),
        Expansion(0, [0, 2, 5], [(0, 1), (1, 0), (1, 2)], 0),
        Expansion(0, [0, 1, 2, 3], [(0, 0), (1, 0), (2, 0)], 0),
    ]
    paths, right = list_paths(steps)
    assert paths == [[13, 1], [11, 2], [11, 4], [13, 0]] and right == 3
    paths, right = list_paths([steps[0], Expansion(0, [0, 2, 5], steps[1].candidates, 1), steps[2]])
    assert paths == [[13, 1, 0], [11, 2, 1], [11, 4, 2]] and right == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({2: ids([3, 1])}, "sample 0: the correct item of step 0 is 3, but its list has 3 items"),
        ({2: ids([0])}, "its inputs have 1, 2 samples; these numbers must be equal"),
        ({1: dense([[2.0, -1], [1, -1]])}, "step 1 of sample 0 has 2 lists for 1 candidates"),
        ({4: dense([[1.0, 0]])}, "3 lists of scores come with 1 rows of candidates"),
    ],
)
def test_what_does_not_fit_is_said(change, message):
    layer, _ = make()
    inputs = given(GOLDS["found"])
    for position, one in change.items():
        inputs[position] = one
    with pytest.raises(DataError, match=message):
        run(layer, *inputs)


def test_scores_without_candidates_are_refused():
    with pytest.raises(ConfigError, match="takes scores, candidates and the correct items of each step"):
        make_layer("cross_entropy_over_beam", 0, [{}] * 4)


def test_a_search_over_sentences_and_words_trains():
    """The network of the original's test: sentences, then where the answer begins in them, then where it ends."""

    def build():
        h = language
        states, sentence_scores = h.data_layer("states", 3), h.data_layer("scores", 1)
        picked = h.kmax_seq_score_layer(input=sentence_scores, beam_size=2)
        sentences = h.sub_nested_seq_layer(input=states, selected_indices=picked)
        start_scores = h.fc_layer(input=sentences, size=1, act=h.LinearActivation())
        starts = h.kmax_seq_score_layer(input=start_scores, beam_size=2)
        spans = h.seq_slice_layer(input=sentences, starts=starts, ends=None)
        end_scores = h.fc_layer(input=spans, size=1, act=h.LinearActivation())
        ends = h.kmax_seq_score_layer(input=end_scores, beam_size=2)
        beams = [(sentence_scores, picked, "a"), (start_scores, starts, "b"), (end_scores, ends, "c")]
        inputs = [h.BeamInput(*one, gold=h.data_layer(name, 9)) for *one, name in beams]
        h.inputs(states, sentence_scores, *(one.gold for one in inputs))
        h.outputs(h.cross_entropy_over_beam(input=inputs))

    model = parse_config(build, "").model_config
    network, table = make_network(model, RNG)
    batch = {
        "states": dense(RNG.normal(size=(9, 3)), [0, 6, 9], [0, 2, 5, 6, 7, 9]),
        "scores": dense([[0.1], [0.9], [0.5], [0.2], [0.8]], [0, 3, 5]),
        "a": ids([1, 0]),
        "b": ids([0, 0]),
        "c": ids([0, 0]),
    }
    costs = []
    for _ in range(30):
        table.clear_gradients()
        network.forward(batch, Stream(1))
        costs.append(network.cost())
        network.backward()
        table.values -= 0.1 * table.gradients
    assert 0 < costs[-1] < costs[0]
    check_parts(network, table)

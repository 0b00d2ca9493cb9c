"""Sequences, recurrent groups and generation in onnxruntime: the numbers are this project's, and padding has no part.

Each network runs on batches of 1 to 7 samples, among them empty sequences and batches without a frame. The
padding is NaN, and of ids a number that no table has; it has no place, or two beyond the longest sequence.
"""

import numpy as np
import pytest
from exporting import TOLERANCE, compare_exported, fill, random_slot

from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.data.input_types import DataType, InputType
from trainer.export.model import TrainedModel
from trainer.export.onnx.files import to_onnx
from trainer.layers.ragged import starts_of

HEAD = "from paddle.trainer_config_helpers import *\nsettings(batch_size=7)\n"
PLAIN = ([3, 1, 4], [2], [0, 3, 0, 5, 1, 2, 7], [0, 0])
# a network of this project cannot tell an empty sub-sequence at the end of a sample from one of the next sample
FILLED = ([[3, 1], [2]], [[1]], [[2, 2, 4], [], [3, 1, 1], [1]])
NESTED = (*FILLED, [[0, 2], [], [3, 0, 1], [1], [2, 2], [3], [4, 1]], [[], []])


def dense(size, levels=1):
    return InputType(size, levels, DataType.Dense)


def index(size, levels=1):
    return InputType(size, levels, DataType.Index)


POOLING = """
x = data_layer('x', 5)
kinds = MaxPooling(), AvgPooling(), SumPooling(), SquareRootNPooling()
outputs(*[pooling_layer(x, pooling_type=one) for one in kinds], last_seq(x), first_seq(x),
        pooling_layer(x, bias_attr=ParamAttr(name='b')))
"""
STRIDES = """
x = data_layer('x', 5)
outputs(pooling_layer(x, stride=2), pooling_layer(x, pooling_type=AvgPooling(), stride=3), last_seq(x, stride=2),
        first_seq(x, stride=3), last_seq(first_seq(x, stride=2)))
"""
NESTED_POOLING = """
x = data_layer('x', 4)
each = AggregateLevel.EACH_SEQUENCE
parts = pooling_layer(x, agg_level=each)
outputs(last_seq(x, agg_level=each), first_seq(x, agg_level=each), parts, last_seq(x), first_seq(x), pooling_layer(x),
        pooling_layer(x, pooling_type=AvgPooling()), expand_layer(parts, x, expand_level=ExpandLevel.FROM_SEQUENCE),
        expand_layer(last_seq(x), x), pooling_layer(parts))
"""
SHAPES = """
x = data_layer('x', 4)
outputs(expand_layer(last_seq(x), x, bias_attr=True), seq_concat_layer(x, fc_layer(x, 4)), seq_reshape_layer(x, 2),
        row_conv_layer(x, 3), fc_layer(x, 1, act=SequenceSoftmaxActivation()), seq_reshape_layer(x, 1))
"""
WINDOWS = """
x = data_layer('x', 4)
outputs(mixed_layer(12, context_projection(x, 3)), mixed_layer(8, context_projection(x, 2, 1)),
        mixed_layer(20, context_projection(x, 5, -3, padding_attr=ParamAttr())),
        mixed_layer(8, context_projection(x, 2, -2, padding_attr=ParamAttr())),
        sequence_conv_pool(input=x, context_len=3, hidden_size=5))
"""
PICKED = """
x, a, b = data_layer('x', 4), data_layer('a', 1), data_layer('b', 2)
best = kmax_seq_score_layer(fc_layer(x, 1), beam_size=3)
outputs(best, seq_slice_layer(x, None, best), seq_slice_layer(x, best, None),
        Layer(name='part', type='subseq', size=4, inputs=['x', 'a', 'b']))
"""
NESTED_PICKED = """
x = data_layer('x', 4)
best = kmax_seq_score_layer(fc_layer(last_seq(x, agg_level=AggregateLevel.EACH_SEQUENCE), 1), beam_size=2)
outputs(best, sub_nested_seq_layer(x, best))
"""
RECURRENT = """
x = data_layer('x', 24)
small = fc_layer(x, 6, act=LinearActivation())
outputs(lstmemory(x), lstmemory(x, reverse=True, act=ReluActivation(), state_act=SigmoidActivation()), grumemory(x),
        grumemory(x, reverse=True, gate_act=SigmoidActivation()), recurrent_layer(small),
        recurrent_layer(small, reverse=True, bias_attr=False, act=SigmoidActivation()))
"""
NESTED_RECURRENT = """
x = data_layer('x', 8)
outputs(lstmemory(x), recurrent_layer(x, reverse=True), seq_concat_layer(x, x), row_conv_layer(x, 2),
        mixed_layer(24, context_projection(x, 3)), fc_layer(x, 1, act=SequenceSoftmaxActivation()))
"""
DECODING = """
x, label = data_layer('x', 4), data_layer('label', 4)
outputs(crf_decoding_layer(x, 4, param_attr=ParamAttr(name='w')),
        crf_decoding_layer(x, 4, label=label, param_attr=ParamAttr(name='w')))
"""
UNITS = """
x = data_layer('x', 8)
outputs(lstmemory_group(x, 2), gru_group(fc_layer(x, 9), 3, reverse=True), simple_lstm(x, 4), simple_gru(x, 3),
        bidirectional_lstm(x, 3, return_seq=True))
"""
BOOTS = """
x, b, w = data_layer('x', 4), data_layer('b', 3), data_layer('w', 6)
def step(one, word):
    m = memory('s', 3, boot_layer=b)
    n = memory('t', 3, boot_bias=ParamAttr(), boot_bias_active_type=TanhActivation())
    chosen = memory('id', 5, boot_with_const_id=2)
    t = fc_layer([one, n, embedding_layer(chosen, 2), embedding_layer(word, 2)], 3, name='t')
    maxid_layer(fc_layer(t, 5), name='id')
    return fc_layer([one, m, t], 3, name='s')
outputs(recurrent_group(step, [x, w]), recurrent_group(lambda one: fc_layer([one, memory('q', 3)], 3, name='q'), x,
        reverse=True))
"""
ATTENTION = """
x, s = data_layer('x', 6), data_layer('s', 4)
projected = fc_layer(s, 4, act=LinearActivation(), bias_attr=False)
def step(now, whole, whole_projected, vector):
    before = memory(name='state', size=4)
    context = simple_attention(encoded_sequence=whole, encoded_proj=whole_projected, decoder_state=before)
    return fc_layer([now, context, vector, before], 4, act=TanhActivation(), name='state')
outputs(recurrent_group(step, [x, StaticInput(s, is_seq=True), StaticInput(projected, is_seq=True),
                               StaticInput(last_seq(s))]))
"""
GROUPS_IN_GROUPS = """
x = data_layer('x', 6)
def outer(sentence):
    before = memory(name='outer_state', size=4)
    def inner(word):
        last = memory(name='inner_state', size=4, boot_layer=before)
        return fc_layer([word, last], 4, act=TanhActivation(), name='inner_state')
    inside = recurrent_group(step=inner, input=sentence, name='inner')
    last_seq(inside, name='outer_state')
    return inside
z = recurrent_group(step=outer, input=SubsequenceInput(x), name='outer')
outputs(last_seq(z), first_seq(z))
"""
SUB_SEQUENCES = """
x = data_layer('x', 6)
def outer(sentence):
    before = memory(name='outer_state', size=4)
    state = fc_layer([pooling_layer(sentence), before], 4, name='outer_state')
    return state, fc_layer(expand_layer(state, sentence), 3), fc_layer(sentence, 2)
states, words, others = recurrent_group(step=outer, input=SubsequenceInput(x), reverse=True)
outputs(states, last_seq(words), pooling_layer(others))
"""
NETWORKS = {
    "pooling": (POOLING, {"x": dense(5)}),
    "strides": (STRIDES, {"x": dense(5)}),
    "nested pooling": (NESTED_POOLING, {"x": dense(4, 2)}),
    "shapes": (SHAPES, {"x": dense(4)}),
    "windows": (WINDOWS, {"x": dense(4)}),
    "picked frames": (PICKED, {"x": dense(4), "a": index(1, 0), "b": index(1, 0)}),
    "recurrent": (RECURRENT, {"x": dense(24)}),
    "nested recurrent": (NESTED_RECURRENT, {"x": dense(8, 2)}),
    "decoding": (DECODING, {"x": dense(4), "label": index(4)}),
    "units": (UNITS, {"x": dense(8)}),
    "boots": (BOOTS, {"x": dense(4), "w": index(6), "b": dense(3, 0)}),
    "attention": (ATTENTION, {"x": dense(6), "s": dense(4)}),
    "groups in groups": (GROUPS_IN_GROUPS, {"x": dense(6, 2)}),
    "sub-sequences": (SUB_SEQUENCES, {"x": dense(6, 2)}),
}


def parse(folder, script):
    (folder / "config.py").write_text(HEAD + script)
    return parse_config(str(folder / "config.py"), "").model_config


def export(model, types, opset=17, scale=0.7):
    table = fill(ParameterTable(model.parameters), scale=scale)
    return to_onnx(TrainedModel(model, table, types), opset=opset), table


def make_batch(types, lengths):
    """A random batch; nested sequences have the given lengths, and sequences beside them as many frames as parts."""
    rng = np.random.default_rng(5)
    counts = [one if isinstance(one, int) else len(one) for one in lengths]
    return {name: nested(kind, lengths, rng) if kind.seq_type == 2 else random_slot(kind, len(lengths), rng, counts)
            for name, kind in types.items()}  # fmt: skip


def nested(kind, lengths, rng):
    parts = np.array([one for sample in lengths for one in sample], np.int64)
    rows = random_slot(kind, len(parts), rng, parts)
    starts = starts_of(np.array([sum(one) for one in lengths], np.int64))
    return Argument(rows.value, rows.ids, starts=starts, sub_starts=rows.starts)


def check(script, types, folder, batches=(), **exported):
    model = parse(folder, script)
    proto, table = export(model, types, **exported)
    is_nested = any(kind.seq_type == 2 for kind in types.values())
    for lengths in batches or (NESTED if is_nested else PLAIN):
        for longer in (0, 2):
            batch = make_batch(types, lengths)
            found = compare_exported(proto, model, table, batch, types, longer)
            assert max(found.values()) < TOLERANCE, (lengths, found)


@pytest.mark.parametrize("name", NETWORKS)
def test_sequences_give_the_same_numbers_in_onnxruntime(name, tmp_path):
    check(*NETWORKS[name], tmp_path)


def test_picked_sub_sequences_give_the_same_numbers_in_onnxruntime(tmp_path):
    """Of a sample whose last picked sub-sequence is empty this project gives the sub-sequence to the next sample."""
    check(NESTED_PICKED, {"x": dense(4, 2)}, tmp_path, batches=FILLED)


def test_newer_opsets_compute_the_same_sequences(tmp_path):
    for name in ("pooling", "decoding", "attention"):
        check(*NETWORKS[name], tmp_path, opset=21)


GENERATION = """
e, s = data_layer('e', 4), data_layer('s', 4)
def step(context, whole, word):
    state = memory(name='decoder', size=4, boot_layer=e)
    seen = simple_attention(encoded_sequence=whole, encoded_proj=whole, decoder_state=state)
    state = fc_layer([context, seen, word, state], 4, act=TanhActivation(), name='decoder')
    return fc_layer(state, 6, act=SoftmaxActivation())
outputs(beam_search(step=step, input=[StaticInput(e), StaticInput(s, is_seq=True),
                    GeneratedInput(size=6, embedding_name='words', embedding_size=3)],
                    bos_id=0, eos_id=1, beam_size=%d, num_results_per_sample=%d, max_length=%d))
"""


@pytest.mark.parametrize(("beam", "results", "longest"), [(1, 1, 5), (3, 2, 7), (4, 1, 6), (8, 8, 4), (5, 3, 1)])
def test_a_beam_search_finds_the_same_ids_and_scores_in_onnxruntime(beam, results, longest, tmp_path):
    check(GENERATION % (beam, results, longest), {"e": dense(4, 0), "s": dense(4)}, tmp_path, scale=1.5)


def test_what_has_no_form_in_onnx_is_named_with_its_reason(tmp_path):
    script = """
x, y = data_layer('x', 4), data_layer('y', 4)
def outer(sentence):
    before = memory(name='kept', size=4, is_seq=True, boot_layer=y)
    return addto_layer([before, sentence], name='kept')
outputs(recurrent_group(step=outer, input=SubsequenceInput(x), name='outer'), pooling_layer(y, pooling_type=MaxPooling(
        output_max_index=True)))
"""
    with pytest.raises(ConfigError) as refusal:
        export(parse(tmp_path, script), {"x": dense(4, 2), "y": dense(4)})
    assert "layer outer (recurrent_layer_group): its memory of kept" in str(refusal.value)
    assert "output_max_index counts frames over all samples of a batch" in str(refusal.value)

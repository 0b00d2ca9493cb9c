"""An encoder-decoder with attention, like v0.10's demo seqToseq: 10,000 words per language, all layers of size 256."""

from paddle.trainer_config_helpers import *

WORDS, SIZE = 10000, 256

define_py_data_sources2("data/train.list", None, module="provider", obj="process")
settings(batch_size=32, learning_rate=5e-4, learning_method=AdamOptimizer())

source = embedding_layer(input=data_layer("source", WORDS), size=SIZE)
forward = simple_gru(input=source, size=SIZE)
backward = simple_gru(input=source, size=SIZE, reverse=True)
encoded = concat_layer(input=[forward, backward])
with mixed_layer(size=SIZE) as projected:
    projected += full_matrix_projection(encoded)
with mixed_layer(size=SIZE, act=TanhActivation()) as boot:
    boot += full_matrix_projection(first_seq(input=backward))


def decode(encoded, projected, word):
    state = memory(name="decoder", size=SIZE, boot_layer=boot)
    context = simple_attention(encoded_sequence=encoded, encoded_proj=projected, decoder_state=state)
    with mixed_layer(size=SIZE * 3) as inputs_of_step:
        inputs_of_step += full_matrix_projection(context)
        inputs_of_step += full_matrix_projection(word)
    step = gru_step_layer(name="decoder", input=inputs_of_step, output_mem=state, size=SIZE)
    with mixed_layer(size=WORDS, bias_attr=True, act=SoftmaxActivation()) as out:
        out += full_matrix_projection(step)
    return out


target = embedding_layer(input=data_layer("target", WORDS), size=SIZE)
statics = [StaticInput(input=encoded, is_seq=True), StaticInput(input=projected, is_seq=True)]
decoder = recurrent_group(name="decoder_group", step=decode, input=[*statics, target])
outputs(classification_cost(input=decoder, label=data_layer("next", WORDS)))

"""Translation by an encoder, attention and a decoder with beam search: the Book's last chapter."""

import paddle.v2 as paddle

data = paddle.dataset.synthetic("wmt14")  # paddle.dataset.wmt14 fetches the real one
WORDS, VECTOR, SIZE = 30, 16, 32


def translator(is_generating):
    source = paddle.layer.data(name="source", type=paddle.data_type.integer_value_sequence(WORDS))
    embedded = paddle.layer.embedding(
        input=source, size=VECTOR, param_attr=paddle.attr.ParamAttr(name="source_vectors")
    )
    forward = paddle.networks.simple_gru(input=embedded, size=SIZE)
    backward = paddle.networks.simple_gru(input=embedded, size=SIZE, reverse=True)
    encoded = paddle.layer.concat(input=[forward, backward])
    projected = paddle.layer.fc(act=paddle.activation.Linear(), size=SIZE, bias_attr=False, input=encoded)
    boot = paddle.layer.fc(
        size=SIZE, act=paddle.activation.Tanh(), bias_attr=False, input=paddle.layer.first_seq(input=backward)
    )

    def decoder(encoded, projected, word):
        state = paddle.layer.memory(name="decoder", size=SIZE, boot_layer=boot)
        context = paddle.networks.simple_attention(
            encoded_sequence=encoded, encoded_proj=projected, decoder_state=state
        )
        inputs = paddle.layer.fc(act=paddle.activation.Linear(), size=SIZE * 3, bias_attr=False, input=[context, word])
        step = paddle.layer.gru_step(name="decoder", input=inputs, output_mem=state, size=SIZE)
        return paddle.layer.fc(size=WORDS, bias_attr=True, act=paddle.activation.Softmax(), input=step)

    inputs = [paddle.layer.StaticInput(input=encoded), paddle.layer.StaticInput(input=projected)]
    if is_generating:
        word = paddle.layer.GeneratedInput(size=WORDS, embedding_name="target_vectors", embedding_size=VECTOR)
        return paddle.layer.beam_search(
            name="group", step=decoder, input=[*inputs, word], bos_id=0, eos_id=1, beam_size=3, max_length=20
        )
    target = paddle.layer.data(name="target", type=paddle.data_type.integer_value_sequence(WORDS))
    word = paddle.layer.embedding(input=target, size=VECTOR, param_attr=paddle.attr.ParamAttr(name="target_vectors"))
    predicted = paddle.layer.recurrent_group(name="group", step=decoder, input=[*inputs, word])
    after = paddle.layer.data(name="after", type=paddle.data_type.integer_value_sequence(WORDS))
    return paddle.layer.classification_cost(input=predicted, label=after)


def main(passes=3):
    paddle.init(trainer_count=1)
    cost = translator(is_generating=False)
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=5e-3))

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(data.test(WORDS), 16))
            print(f"pass {event.pass_id}: test cost {tested.cost:.4f}")

    trainer.train(paddle.batch(data.train(WORDS), 16), num_passes=passes, event_handler=handler)
    with open("translation.tar", "wb") as file:
        trainer.save_parameter_to_tar(file)
    with open("translation.tar", "rb") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    sample = next(iter(data.gen(WORDS)()))
    probabilities, ids = paddle.infer(
        output_layer=translator(is_generating=True), parameters=loaded, input=[sample[:1]], field=["prob", "id"]
    )
    results, start = [], 0
    while start < len(ids):
        length = ids[start]
        results.append([int(one) for one in ids[start + 1 : start + 1 + length]])
        start += length + 2  # the length, the words, and -1
    print("source", sample[0], "wanted", sample[2])
    for probability, result in zip(probabilities[0], results):
        print(f"{probability:.3f} {result}")


if __name__ == "__main__":
    main()

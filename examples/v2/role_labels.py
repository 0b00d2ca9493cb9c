"""Semantic roles by LSTMs in both directions and a CRF: the Book's chapter label_semantic_roles."""

import paddle.v2 as paddle

data = paddle.dataset.synthetic("conll05")  # paddle.dataset.conll05 fetches the real one
WORD, MARK, HIDDEN, DEPTH = 16, 5, 32, 4
COLUMNS = ["word", "ctx_n2", "ctx_n1", "ctx_0", "ctx_p1", "ctx_p2", "verb", "mark", "target"]
FEEDING = {name: place for place, name in enumerate(COLUMNS)}


def network(words, verbs, labels):
    def sequence(name, size):
        return paddle.layer.data(name=name, type=paddle.data_type.integer_value_sequence(size))

    vectors = paddle.attr.Param(name="emb", initial_std=0.1)
    embedded = [
        paddle.layer.embedding(size=WORD, input=sequence(name, words), param_attr=vectors) for name in COLUMNS[:6]
    ]
    embedded.append(paddle.layer.embedding(size=WORD, input=sequence("verb", verbs)))
    embedded.append(paddle.layer.embedding(size=MARK, input=sequence("mark", 2)))
    mixed = paddle.layer.mixed(
        size=HIDDEN, bias_attr=True, input=[paddle.layer.full_matrix_projection(input=one) for one in embedded]
    )
    relu, sigmoid = paddle.activation.Relu(), paddle.activation.Sigmoid()
    lstm = paddle.layer.lstmemory(input=mixed, act=relu, gate_act=sigmoid, state_act=sigmoid)
    for depth in range(1, DEPTH):
        mixed = paddle.layer.mixed(
            size=HIDDEN,
            bias_attr=True,
            input=[paddle.layer.full_matrix_projection(input=one) for one in (mixed, lstm)],
        )
        lstm = paddle.layer.lstmemory(
            input=mixed, act=relu, gate_act=sigmoid, state_act=sigmoid, reverse=depth % 2 == 1
        )
    return paddle.layer.mixed(
        size=labels,
        bias_attr=True,
        input=[paddle.layer.full_matrix_projection(input=one) for one in (mixed, lstm)],
    )


def main(passes=2):
    paddle.init(trainer_count=1)
    words, verbs, labels = data.get_dict()
    features = network(len(words), len(verbs), len(labels))
    target = paddle.layer.data(name="target", type=paddle.data_type.integer_value_sequence(len(labels)))
    transitions = paddle.attr.Param(name="crfw", initial_std=0.1)
    cost = paddle.layer.crf(size=len(labels), input=features, label=target, param_attr=transitions)
    decoded = paddle.layer.crf_decoding(size=len(labels), input=features, label=target, param_attr=transitions)
    paddle.evaluator.sum(input=decoded, name="wrong")
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(
        momentum=0.9, learning_rate=1e-3, regularization=paddle.optimizer.L2Regularization(rate=8e-4)
    )
    trainer = paddle.trainer.SGD(cost, parameters, optimizer, extra_layers=decoded)

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(data.test(), 16), feeding=FEEDING)
            print(f"pass {event.pass_id}: test cost {tested.cost:.4f}, wrong labels {tested.metrics['wrong']:.3f}")

    trainer.train(paddle.batch(data.train(), 16), event_handler=handler, num_passes=passes, feeding=FEEDING)
    with open("role_labels.tar", "wb") as file:
        parameters.to_tar(file)
    with open("role_labels.tar", "rb") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    predicted = paddle.layer.crf_decoding(size=len(labels), input=features, param_attr=paddle.attr.Param(name="crfw"))
    sample = next(iter(data.test()()))
    found = paddle.infer(output_layer=predicted, parameters=loaded, input=[sample[:-1]], field="id")
    names = {number: name for name, number in labels.items()}
    print([names[one] for one in sample[-1]], [names[one] for one in found])


if __name__ == "__main__":
    main()

"""Vectors of words from a model of five-word sequences: the Book's chapter word2vec."""

import gzip

import paddle.v2 as paddle

data = paddle.dataset.synthetic("imikolov")  # paddle.dataset.imikolov fetches the real one
N = 5
EMBEDDING, HIDDEN = 16, 64


def main(passes=4):
    paddle.init(trainer_count=1)
    words = data.build_dict()
    size = len(words)
    names = ["first", "second", "third", "fourth", "fifth"]
    inputs = [paddle.layer.data(name=name, type=paddle.data_type.integer_value(size)) for name in names]
    context = [
        paddle.layer.table_projection(
            input=word, size=EMBEDDING, param_attr=paddle.attr.Param(name="vectors", learning_rate=1, l2_rate=0)
        )
        for word in inputs[:-1]
    ]
    embedded = paddle.layer.concat(input=context)
    hidden = paddle.layer.fc(
        input=embedded,
        size=HIDDEN,
        act=paddle.activation.Sigmoid(),
        layer_attr=paddle.attr.Extra(drop_rate=0.1),
        bias_attr=paddle.attr.Param(learning_rate=2),
        param_attr=paddle.attr.Param(initial_std=1.0 / (EMBEDDING * 8) ** 0.5, learning_rate=1),
    )
    predicted = paddle.layer.fc(
        input=hidden,
        size=size,
        bias_attr=paddle.attr.Param(learning_rate=2),
        act=paddle.activation.Softmax(),
    )
    cost = paddle.layer.classification_cost(input=predicted, label=inputs[-1])
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(learning_rate=1e-2, regularization=paddle.optimizer.L2Regularization(8e-4))
    trainer = paddle.trainer.SGD(cost, parameters, optimizer)

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(data.test(words, N), 32))
            print(f"pass {event.pass_id}: test cost {tested.cost:.4f}, metrics {tested.metrics}")

    trainer.train(paddle.batch(data.train(words, N), 32), num_passes=passes, event_handler=handler)
    with gzip.open("word_vectors.tar.gz", "w") as file:
        trainer.save_parameter_to_tar(file)
    with gzip.open("word_vectors.tar.gz", "r") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    print("vectors", loaded.get("vectors").shape)
    samples = [sample[:-1] for sample in paddle.reader.firstn(data.test(words, N), 3)()]
    for sample, found in zip(samples, paddle.infer(output_layer=predicted, parameters=loaded, input=samples)):
        print(sample, "->", found.argmax())


if __name__ == "__main__":
    main()

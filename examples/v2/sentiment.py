"""Opinions of reviews by a convolution over words, and by stacked LSTMs."""

import sys

import paddle.v2 as paddle

data = paddle.dataset.synthetic("imdb")  # paddle.dataset.imdb fetches the real one


def convolution(words):
    embedded = paddle.layer.embedding(input=words, size=16)
    conv_3 = paddle.networks.sequence_conv_pool(input=embedded, context_len=3, hidden_size=16)
    conv_4 = paddle.networks.sequence_conv_pool(input=embedded, context_len=4, hidden_size=16)
    return paddle.layer.fc(input=[conv_3, conv_4], size=2, act=paddle.activation.Softmax())


def stacked_lstm(words, layers=3):
    """Layers of LSTM that read in turn forwards and backwards."""
    linear = paddle.activation.Linear()
    embedded = paddle.layer.embedding(input=words, size=16)
    fc = paddle.layer.fc(input=embedded, size=64, act=linear)
    inputs = [fc, paddle.layer.lstmemory(input=fc, act=paddle.activation.Relu())]
    for number in range(2, layers + 1):
        fc = paddle.layer.fc(input=inputs, size=64, act=linear)
        lstm = paddle.layer.lstmemory(input=fc, reverse=number % 2 == 0, act=paddle.activation.Relu())
        inputs = [fc, lstm]
    pooled = [paddle.layer.pooling(input=one, pooling_type=paddle.pooling.Max()) for one in inputs]
    return paddle.layer.fc(input=pooled, size=2, act=paddle.activation.Softmax())


NETWORKS = {"convolution": convolution, "lstm": stacked_lstm}


def main(name, passes=2):
    paddle.init(trainer_count=1)
    ids = data.word_dict()
    words = paddle.layer.data("words", paddle.data_type.integer_value_sequence(len(ids)))
    label = paddle.layer.data("label", paddle.data_type.integer_value(2))
    predicted = NETWORKS[name](words)
    cost = paddle.layer.classification_cost(input=predicted, label=label)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(
        learning_rate=2e-3,
        regularization=paddle.optimizer.L2Regularization(rate=8e-4),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5),
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(data.test(ids), 32), feeding={"words": 0, "label": 1})
            wrong = tested.metrics["classification_error_evaluator"]
            print(f"{name}, pass {event.pass_id}: test {100 * wrong:.1f} % wrong")

    train = paddle.batch(paddle.reader.shuffle(data.train(ids), 1000), 32)
    trainer.train(train, num_passes=passes, event_handler=handler, feeding={"words": 0, "label": 1})
    with open(f"sentiment-{name}.tar", "wb") as file:
        trainer.save_parameter_to_tar(file)
    with open(f"sentiment-{name}.tar", "rb") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    samples = list(paddle.reader.firstn(data.test(ids), 5)())
    found = paddle.infer(output_layer=predicted, parameters=loaded, input=[(review,) for review, _ in samples])
    print("opinions", [opinion for _, opinion in samples], "predicted", found.argmax(axis=1).tolist())


if __name__ == "__main__":
    for one in sys.argv[1:] or NETWORKS:
        main(one)

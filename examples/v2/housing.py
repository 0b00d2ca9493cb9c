"""Prices of houses by linear regression: the Book's first chapter."""

import paddle.v2 as paddle

data = paddle.dataset.synthetic("uci_housing")  # paddle.dataset.uci_housing fetches the real one


def main():
    paddle.init(trainer_count=1)
    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(13))
    price = paddle.layer.data(name="price", type=paddle.data_type.dense_vector(1))
    predicted = paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear())
    cost = paddle.layer.square_error_cost(input=predicted, label=price)
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=1e-3))

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(data.test(), 32))
            print(f"pass {event.pass_id}: test cost {tested.cost:.4f}")

    trainer.train(paddle.batch(paddle.reader.shuffle(data.train(), 500), 32), num_passes=30, event_handler=handler)
    with open("housing.tar", "wb") as file:
        trainer.save_parameter_to_tar(file)
    with open("housing.tar", "rb") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    samples = list(paddle.reader.firstn(data.test(), 5)())
    found = paddle.infer(output_layer=predicted, parameters=loaded, input=[(features,) for features, _ in samples])
    for (_, wanted), [got] in zip(samples, found):
        print(f"price {wanted[0]:.2f}, predicted {got:.2f}")


if __name__ == "__main__":
    main()

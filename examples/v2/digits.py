"""Handwritten digits by three networks: softmax regression, a perceptron, and a convolutional network."""

import sys

import paddle.v2 as paddle

SIDE = 8


def softmax_regression(image):
    return paddle.layer.fc(input=image, size=10, act=paddle.activation.Softmax())


def multilayer_perceptron(image):
    hidden = paddle.layer.fc(input=image, size=64, act=paddle.activation.Relu())
    hidden = paddle.layer.fc(input=hidden, size=32, act=paddle.activation.Relu())
    return paddle.layer.fc(input=hidden, size=10, act=paddle.activation.Softmax())


def convolutional(image):
    pooled = paddle.networks.simple_img_conv_pool(
        input=image,
        filter_size=3,
        num_filters=16,
        num_channel=1,
        pool_size=2,
        pool_stride=2,
        act=paddle.activation.Relu(),
    )
    return paddle.layer.fc(input=pooled, size=10, act=paddle.activation.Softmax())


NETWORKS = {"softmax": softmax_regression, "perceptron": multilayer_perceptron, "convolution": convolutional}


def main(name="convolution", passes=8):
    paddle.init(trainer_count=1)
    image = paddle.layer.data(name="image", type=paddle.data_type.dense_vector(SIDE * SIDE), height=SIDE, width=SIDE)
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    predicted = NETWORKS[name](image)
    cost = paddle.layer.classification_cost(input=predicted, label=label)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.1 / 32, momentum=0.9, regularization=paddle.optimizer.L2Regularization(rate=0.0005 * 32)
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(paddle.dataset.digits.test(), 32))
            wrong = tested.metrics["classification_error_evaluator"]
            print(f"{name}, pass {event.pass_id}: test cost {tested.cost:.4f}, {100 * wrong:.1f} % wrong")

    train = paddle.batch(paddle.reader.shuffle(paddle.dataset.digits.train(), 1000), 32)
    trainer.train(reader=train, num_passes=passes, event_handler=handler)
    with open(f"digits-{name}.tar", "wb") as file:
        trainer.save_parameter_to_tar(file)
    with open(f"digits-{name}.tar", "rb") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    samples = list(paddle.dataset.digits.test()())[:5]
    found = paddle.infer(output_layer=predicted, parameters=loaded, input=[(pixels,) for pixels, _ in samples])
    print("digits", [digit for _, digit in samples], "predicted", found.argmax(axis=1).tolist())


if __name__ == "__main__":
    for one in sys.argv[1:] or NETWORKS:
        main(one)

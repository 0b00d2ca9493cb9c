"""Small coloured images by a residual network: the Book's chapter of image classification."""

import paddle.v2 as paddle

data = paddle.dataset.synthetic("cifar")  # paddle.dataset.cifar fetches the real one


def conv_bn(input, channels, filters, size, stride, padding, act=None):
    conv = paddle.layer.img_conv(
        input=input,
        filter_size=size,
        num_channels=channels,
        num_filters=filters,
        stride=stride,
        padding=padding,
        act=paddle.activation.Linear(),
        bias_attr=False,
    )
    return paddle.layer.batch_norm(input=conv, act=act or paddle.activation.Relu())


def block(input, channels, filters, stride):
    """Two convolutions, and beside them a short cut."""
    if channels != filters:
        short = conv_bn(input, channels, filters, 1, stride, 0, paddle.activation.Linear())
    else:
        short = input
    conv = conv_bn(input, channels, filters, 3, stride, 1)
    conv = conv_bn(conv, filters, filters, 3, 1, 1, paddle.activation.Linear())
    return paddle.layer.addto(input=[conv, short], act=paddle.activation.Relu())


def main(passes=1):
    paddle.init(trainer_count=1)
    image = paddle.layer.data(name="image", type=paddle.data_type.dense_vector(3 * 32 * 32), height=32, width=32)
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    layers = conv_bn(image, 3, 8, 3, 2, 1)
    layers = block(layers, 8, 8, 1)
    layers = block(layers, 8, 16, 2)
    pooled = paddle.layer.img_pool(input=layers, pool_size=8, stride=1, pool_type=paddle.pooling.Avg())
    predicted = paddle.layer.fc(input=pooled, size=10, act=paddle.activation.Softmax())
    cost = paddle.layer.classification_cost(input=predicted, label=label)
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=3e-3))

    def handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 8 == 0:
            print(f"pass {event.pass_id}, batch {event.batch_id}: cost {event.cost:.4f}")
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(paddle.reader.firstn(data.test10(), 64), 32))
            print(f"test {100 * tested.metrics['classification_error_evaluator']:.1f} % wrong")

    train = paddle.reader.firstn(data.train10(), 512)
    trainer.train(paddle.batch(train, 16), num_passes=passes, event_handler=handler)
    with open("images.tar", "wb") as file:
        trainer.save_parameter_to_tar(file)
    with open("images.tar", "rb") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    samples = list(paddle.reader.firstn(data.test10(), 5)())
    found = paddle.infer(output_layer=predicted, parameters=loaded, input=[(pixels,) for pixels, _ in samples])
    print("classes", [kind for _, kind in samples], "predicted", found.argmax(axis=1).tolist())


if __name__ == "__main__":
    main()

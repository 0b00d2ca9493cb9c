"""Ratings of films from the features of a user and of a film: the Book's recommender system."""

import paddle.v2 as paddle

data = paddle.dataset.synthetic("movielens")  # paddle.dataset.movielens fetches the real one
FEEDING = {
    "user": 0, "gender": 1, "age": 2, "job": 3, "movie": 4, "category": 5, "title": 6, "score": 7,
}  # fmt: skip


def embed(name, count, size):
    ids = paddle.layer.data(name=name, type=paddle.data_type.integer_value(count))
    return paddle.layer.fc(input=paddle.layer.embedding(input=ids, size=size), size=size)


def user_features():
    features = [
        embed("user", data.max_user_id() + 1, 32),
        embed("gender", 2, 16),
        embed("age", len(data.age_table), 16),
        embed("job", data.max_job_id() + 1, 16),
    ]
    return paddle.layer.fc(input=features, size=64, act=paddle.activation.Tanh())


def movie_features():
    movie = embed("movie", data.max_movie_id() + 1, 32)
    category = paddle.layer.data("category", paddle.data_type.sparse_binary_vector(len(data.movie_categories())))
    title = paddle.layer.data("title", paddle.data_type.integer_value_sequence(len(data.get_movie_title_dict())))
    convolved = paddle.networks.sequence_conv_pool(
        input=paddle.layer.embedding(input=title, size=32), hidden_size=32, context_len=3
    )
    features = [movie, paddle.layer.fc(input=category, size=32), convolved]
    return paddle.layer.fc(input=features, size=64, act=paddle.activation.Tanh())


def main(passes=4):
    paddle.init(trainer_count=1)
    rating = paddle.layer.cos_sim(a=user_features(), b=movie_features(), size=1, scale=5)
    score = paddle.layer.data(name="score", type=paddle.data_type.dense_vector(1))
    cost = paddle.layer.square_error_cost(input=rating, label=score)
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=3e-3))

    def handler(event):
        if isinstance(event, paddle.event.EndPass):
            tested = trainer.test(paddle.batch(data.test(), 64), feeding=FEEDING)
            print(f"pass {event.pass_id}: test cost {tested.cost:.4f}")

    train = paddle.batch(paddle.reader.shuffle(data.train(), 1024), 64)
    trainer.train(reader=train, event_handler=handler, feeding=FEEDING, num_passes=passes)
    with open("recommendation.tar", "wb") as file:
        parameters.to_tar(file)
    with open("recommendation.tar", "rb") as file:
        loaded = paddle.parameters.Parameters.from_tar(file)
    samples = list(paddle.reader.firstn(data.test(), 3)())
    found = paddle.infer(
        output_layer=rating,
        parameters=loaded,
        input=[sample[:-1] for sample in samples],
        feeding={name: place for name, place in FEEDING.items() if name != "score"},
    )
    for sample, [got] in zip(samples, found):
        print(f"rating {sample[-1][0]:.0f}, predicted {got:.2f}")


if __name__ == "__main__":
    main()

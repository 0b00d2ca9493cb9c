"""The network of the recommendation example in TensorFlow."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy_baseline.data import Ratings, find_windows
from numpy_baseline.parameters import Parameters

from tensorflow_baseline.values import Connected, load_matrix, take_windows

WIDTH, WINDOW = 256, 5
USER_FIELDS = 4  # the id and three further fields


class RecommendationGraph(tf.Module):
    """recommendation: the cosine of a vector of a film's fields and a vector of a user's fields predicts the score."""

    SIGNATURE = (
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([None, 18]),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([None, WINDOW], tf.int64),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([USER_FIELDS, None], tf.int64),
        tf.TensorSpec([None]),
    )

    def __init__(self, data: Ratings, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data = data
        self.tables = [load_matrix(parameters, f"___embedding_{k}__.w0", WIDTH) for k in range(6)]
        self.layers = [Connected(parameters, f"___fc_layer_{k}__", WIDTH) for k in range(7)]
        self.title = Connected(parameters, "___sequence_conv_pooling_0___conv_fc", WIDTH)
        self.film = Connected(parameters, "_movie_fusion", WIDTH, inputs=3)
        self.user = Connected(parameters, "_user_fusion", WIDTH, inputs=USER_FIELDS)

    def read(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Returns the arguments of `find_cost` for the ratings of these numbers."""
        data = self._data
        films, users = data.films[numbers], data.users[numbers]
        words, lengths = data.titles.take(films)
        titles = np.repeat(np.arange(len(lengths)), lengths)
        fields = np.concatenate([users[:, None], data.user_fields[users]], 1).T
        return [
            films,
            data.genres[films],
            words,
            find_windows(lengths, -2, WINDOW),
            titles,
            fields,
            data.scores[numbers],
        ]

    def find_cost(self, *slots: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the squared differences."""
        films, genres, words, windows, titles, fields, scores = slots
        title = self.title.add_up(take_windows(tf.gather(self.tables[1], words), windows, WINDOW * WIDTH))
        # tanh is increasing, so it can follow the maximum, on fewer elements
        title = tf.tanh(tf.math.segment_max(title, titles))
        film_id = self.layers[0](tf.gather(self.tables[0], films))
        film = self.film(tf.concat([film_id, title, self.layers[2](self.layers[1](genres))], 1))
        of_user = [
            self.layers[3 + field](tf.gather(self.tables[2 + field], fields[field])) for field in range(USER_FIELDS)
        ]
        user = self.user(tf.concat(of_user, 1))
        products = [tf.reduce_sum(one * other, 1) for one, other in ((film, user), (film, film), (user, user))]
        cosine = products[0] * tf.math.rsqrt(products[1] * products[2])
        return tf.reduce_sum(tf.math.squared_difference(cosine, scores))

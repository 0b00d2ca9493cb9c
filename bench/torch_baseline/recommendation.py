"""The network of the recommendation example in torch."""

from __future__ import annotations

import numpy as np
import torch
from numpy_baseline.data import Ratings, find_windows
from numpy_baseline.parameters import Parameters
from torch import Tensor, nn
from torch.nn import functional

from torch_baseline.values import Connected, load_matrix, pad_row

WIDTH = 256
USER_FIELDS = 4  # the id and three further fields


class RecommendationModule(nn.Module):
    """recommendation: the cosine of a vector of a film's fields and a vector of a user's fields predicts the score."""

    def __init__(self, data: Ratings, parameters: Parameters, keep: float) -> None:
        super().__init__()
        self._data = data
        self.tables = nn.ParameterList(load_matrix(parameters, f"___embedding_{k}__.w0", WIDTH) for k in range(6))
        self.layers = nn.ModuleList(Connected(parameters, f"___fc_layer_{k}__", WIDTH) for k in range(7))
        self.title = Connected(parameters, "___sequence_conv_pooling_0___conv_fc", WIDTH)
        self.film = Connected(parameters, "_movie_fusion", WIDTH, inputs=3)
        self.user = Connected(parameters, "_user_fusion", WIDTH, inputs=USER_FIELDS)

    def read(self, numbers: np.ndarray) -> list[Tensor]:
        """Returns the arguments of `forward` for the ratings of these numbers."""
        data = self._data
        films, users = data.films[numbers], data.users[numbers]
        words, lengths = data.titles.take(films)
        fields = np.concatenate([users[:, None], data.user_fields[users]], 1).T
        arrays = [films, data.genres[films], words, find_windows(lengths, -2, 5), lengths, fields, data.scores[numbers]]
        return [torch.from_numpy(array) for array in arrays]

    def forward(
        self,
        films: Tensor,
        genres: Tensor,
        words: Tensor,
        windows: Tensor,
        lengths: Tensor,
        fields: Tensor,
        scores: Tensor,
    ) -> Tensor:
        """Returns the sum of the squared differences."""
        rows = pad_row(functional.embedding(words, self.tables[1]))
        title = self.title.add_up(functional.embedding(windows, rows).flatten(1))
        title = torch.tanh(
            torch.segment_reduce(title, "max", lengths=lengths, axis=0)
        )  # tanh is increasing, so it can follow the maximum, on fewer elements
        film_id = self.layers[0](functional.embedding(films, self.tables[0]))
        film = self.film(torch.cat([film_id, title, self.layers[2](self.layers[1](genres))], 1))
        of_user = [
            self.layers[3 + field](functional.embedding(fields[field], self.tables[2 + field]))
            for field in range(USER_FIELDS)
        ]
        user = self.user(torch.cat(of_user, 1))
        return functional.mse_loss(functional.cosine_similarity(film, user), scores, reduction="sum")

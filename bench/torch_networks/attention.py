"""bench/network_configs/attention.py in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from torch_networks.data import Sequences
from torch_networks.recurrent import run_packed

WORDS, SIZE = 10000, 256


class Attention(nn.Module):
    """The encoder has two GRUs, and the decoder a GRU with attention.

    One matrix product computes the scores of the words for all steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(WORDS, SIZE)
        self.target = nn.Embedding(WORDS, SIZE)
        self.encoder = nn.GRU(SIZE, SIZE, bidirectional=True)
        self.project = nn.Linear(2 * SIZE, SIZE, bias=False)
        self.boot = nn.Linear(SIZE, SIZE, bias=False)
        self.transform = nn.Linear(SIZE, SIZE, bias=False)
        self.score = nn.Linear(SIZE, 1, bias=False)
        self.step = nn.GRUCell(3 * SIZE, SIZE)
        self.out = nn.Linear(SIZE, WORDS)

    def forward(self, slots: dict[str, Sequences]) -> Tensor:
        """Returns the sum of the costs of all words."""
        source, target = slots["source"], slots["target"]
        encoded = run_packed(self.encoder, self.source(source.ids), source.lengths)
        state = torch.tanh(self.boot(encoded[0, :, SIZE:]))
        projected, encoded = self.project(encoded).transpose(0, 1), encoded.transpose(0, 1)
        behind = ~source.mask.T
        states = []
        for word in self.target(target.ids):
            scores = self.score(torch.tanh(projected + self.transform(state)[:, None])).squeeze(2)
            weights = torch.softmax(scores.masked_fill(behind, -torch.inf), 1)
            context = torch.bmm(weights[:, None], encoded).squeeze(1)
            state = self.step(torch.cat([context, word], 1), state)
            states.append(state)
        mask = target.mask
        return functional.cross_entropy(self.out(torch.stack(states)[mask]), slots["next"].ids[mask], reduction="sum")

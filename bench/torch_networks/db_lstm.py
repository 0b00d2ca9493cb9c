"""bench/network_configs/db_lstm.py in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torch_networks.crf import Chain
from torch_networks.data import Sequences
from torch_networks.recurrent import turn

WORDS, VERBS, ROLES, SIZE, DEPTH = 44068, 3162, 59, 512, 8
CONTEXTS = ["word", "ctx_n2", "ctx_n1", "ctx_0", "ctx_p1", "ctx_p2"]


class DbLstm(nn.Module):
    """Eight LSTMs, alternately forward and backward.

    The inputs of the four gates of a layer are a linear function of the gate inputs and the outputs of the layer below.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.verbs, self.marks = nn.Embedding(WORDS, 32), nn.Embedding(VERBS, 32), nn.Embedding(2, 5)
        below = SIZE + SIZE // 4
        self.mixes = nn.ModuleList([nn.Linear(7 * 32 + 5, SIZE), *(nn.Linear(below, SIZE) for _ in range(DEPTH - 1))])
        self.reads = nn.ModuleList(Lstm() for _ in range(DEPTH))
        self.scores = nn.Linear(below, ROLES)
        self.chain = Chain(ROLES)

    def forward(self, slots: dict[str, Sequences]) -> Tensor:
        """Returns the sum of the costs of all sequences."""
        roles = slots["role"]
        features = [self.words(slots[name].ids) for name in CONTEXTS]
        below = torch.cat([*features, self.verbs(slots["verb"].ids), self.marks(slots["mark"].ids)], 2)
        for depth, (mix, read) in enumerate(zip(self.mixes, self.reads, strict=True)):
            hidden = mix(below)
            output = turn(read(turn(hidden, roles)), roles) if depth % 2 else read(hidden)
            below = torch.cat([hidden, output], 2)
        return self.chain(self.scores(below), roles.ids, roles.mask)


class Lstm(nn.Module):
    """An LSTM whose input contains the inputs of its four gates, without the part of the previous output.

    nn.LSTM would multiply its input by a further matrix, and would take three times as long. The shape of the input is
    (longest length, samples, SIZE).
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = nn.Linear(SIZE // 4, SIZE)

    def forward(self, gates: Tensor) -> Tensor:
        """Returns the outputs; the outputs for the padding of a sequence have no meaning."""
        output = cell = gates.new_zeros(gates.shape[1], SIZE // 4)
        outputs = []
        for of_input in gates:
            i, f, g, o = torch.chunk(of_input + self.state(output), 4, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            output = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(output)
        return torch.stack(outputs)

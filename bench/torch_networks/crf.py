"""bench/network_configs/crf.py in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torch_networks.data import Sequences
from torch_networks.recurrent import turn

WORDS, SIZE, TAGS = 10000, 64, 9


class Crf(nn.Module):
    """An LSTM in each direction, and a conditional random field over the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, SIZE)
        # two LSTMs are faster than one bidirectional LSTM over packed sequences
        self.forwards, self.backwards = nn.LSTM(SIZE, SIZE), nn.LSTM(SIZE, SIZE)
        self.scores = nn.Linear(2 * SIZE, TAGS)
        self.chain = Chain(TAGS)

    def forward(self, slots: dict[str, Sequences]) -> Tensor:
        """Returns the sum of the costs of all sequences."""
        words, tags = slots["word"], slots["tag"]
        rows = self.words(words.ids)
        turned, _ = self.backwards(turn(rows, words))
        read = torch.cat([self.forwards(rows)[0], turn(turned, words)], 2)
        return self.chain(self.scores(read), tags.ids, tags.mask)


class Chain(nn.Module):
    """A conditional random field with scores of the first tag, of the last tag, and of each pair of successive tags."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(tags))
        self.last = nn.Parameter(torch.zeros(tags))
        self.pairs = nn.Parameter(torch.zeros(tags, tags))

    def forward(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Returns the negative log likelihood of the tags.

        Shapes: scores: (longest sequence, samples, tags); tags, mask: (longest sequence, samples).
        """
        return (self._normalizer(scores, mask) - self._likelihood(scores, tags, mask)).sum()

    def _normalizer(self, scores: Tensor, mask: Tensor) -> Tensor:
        total = self.first + scores[0]
        for here, inside in zip(scores[1:], mask[1:], strict=True):
            after = torch.logsumexp(total[:, :, None] + self.pairs, 1) + here
            total = torch.where(inside[:, None], after, total)
        return torch.logsumexp(total + self.last, 1)

    def _likelihood(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        of_tags = (scores.gather(2, tags[:, :, None]).squeeze(2) * mask).sum(0)
        of_pairs = (self.pairs[tags[:-1], tags[1:]] * mask[1:]).sum(0)
        last = tags.gather(0, mask.sum(0, keepdim=True) - 1).squeeze(0)
        return of_tags + of_pairs + self.first[tags[0]] + self.last[last]

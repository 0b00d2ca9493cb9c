"""Recurrent layers over sequences of different lengths."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from torch_networks.data import Sequences


def run_packed(layer: nn.RNNBase, rows: Tensor, lengths: Tensor) -> Tensor:
    """Returns the outputs of a layer that does not compute the padding. Shapes: (longest length, samples, columns)."""
    packed, _ = layer(pack_padded_sequence(rows, lengths, enforce_sorted=False))
    return pad_packed_sequence(packed)[0]


def turn(rows: Tensor, sequences: Sequences) -> Tensor:
    """Reverses each sequence, but not its padding. Shapes of the result: (longest length, samples, columns)."""
    steps = torch.arange(len(rows))[:, None]
    places = torch.where(sequences.mask, sequences.lengths - 1 - steps, steps)
    return rows.gather(0, places[:, :, None].expand_as(rows))

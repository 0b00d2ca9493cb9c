"""Recurrent layers over sequences of several lengths."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from torch_networks.data import Sequences


def run_packed(layer: nn.RNNBase, rows: Tensor, lengths: Tensor) -> Tensor:
    """Returns the outputs (longest, samples, columns) of a layer that computes no row behind a sequence's end."""
    packed, _ = layer(pack_padded_sequence(rows, lengths, enforce_sorted=False))
    return pad_packed_sequence(packed)[0]


def turn(rows: Tensor, sequences: Sequences) -> Tensor:
    """Returns each sequence backward, with the rows behind its end where they are: (longest, samples, columns)."""
    steps = torch.arange(len(rows))[:, None]
    places = torch.where(sequences.mask, sequences.lengths - 1 - steps, steps)
    return rows.gather(0, places[:, :, None].expand_as(rows))

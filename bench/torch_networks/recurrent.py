"""Recurrent layers over sequences of several lengths."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def run_packed(layer: nn.RNNBase, rows: Tensor, lengths: Tensor) -> Tensor:
    """Returns the outputs (longest, samples, columns) of a layer that computes no row behind a sequence's end."""
    packed, _ = layer(pack_padded_sequence(rows, lengths, enforce_sorted=False))
    return pad_packed_sequence(packed)[0]

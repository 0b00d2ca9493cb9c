"""Digests of arrays, by which ranks find out whether they have the same bits without sending the arrays."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, plain

DIGEST_BYTES = 16
LANES = 4096  # the same number as in digests.c
_ROW_BYTES = 8 * LANES
_WORD = np.dtype(np.int64)


def digest_array(array: npt.NDArray[Any]) -> bytes:
    """Return DIGEST_BYTES bytes that differ for arrays of different bytes, except by chance.

    The type and the shape do not count. Nobody can be kept from making two arrays with the same digest, so it proves
    nothing about a sender who is not trusted.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = len(data) - len(data) % _ROW_BYTES
    lanes = np.arange(LANES, dtype=_WORD)
    words = data[:whole].view(_WORD)
    if compiled is not None and words.flags.aligned:
        compiled.fold_words(lanes, words)
    else:
        plain.fold_words(lanes, words)
    found = hashlib.blake2b(lanes.tobytes() if whole else b"", digest_size=DIGEST_BYTES)
    found.update(data[whole:].data)
    found.update(len(data).to_bytes(8, "little"))
    return found.digest()

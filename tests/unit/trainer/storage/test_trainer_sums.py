"""The sums of files: what changes is found, and how the bytes come does not matter."""

import hashlib
import itertools
import random

import numpy as np
import pytest

from trainer.storage.sums import HEAD, PIECE, Summing, sum_of

SIZE = HEAD + 2 * PIECE + 12345


@pytest.fixture(scope="module")
def data():
    return bytearray(np.random.default_rng(3).bytes(SIZE))


def test_how_the_bytes_are_parted_does_not_matter(data):
    dice = random.Random(2)
    for _ in range(8):
        cuts = [0, *sorted(dice.choices(range(SIZE), k=6)), SIZE]
        assert sum_of([data[a:b] for a, b in itertools.pairwise(cuts)]) == sum_of([data])
    values = np.frombuffer(data, np.float32, offset=HEAD, count=(SIZE - HEAD) // 4 // 3 * 3).reshape(3, -1)
    assert sum_of([data[:HEAD], values.data]) == sum_of([data[: HEAD + values.nbytes]])


def test_of_a_small_file_it_is_sha256(data):
    for size in (0, 1, HEAD, HEAD + 1, PIECE):
        assert sum_of([data[:size]]) == hashlib.sha256(data[:size]).hexdigest()


@pytest.mark.parametrize("seed", range(3))
def test_every_change_of_bits_words_and_blocks_is_found(data, seed):
    before, dice = sum_of([data]), random.Random(seed)
    row = 8 * 512
    start = HEAD + dice.randrange(2 * PIECE // row - 1) * row
    word = start + 8 * dice.randrange(512)

    def flip(*places):
        changed = bytearray(data)
        for place in places:
            changed[place] ^= 1 << 3
        return changed

    def swap(one, other, length):
        changed = bytearray(data)
        changed[one : one + length], changed[other : other + length] = (
            data[other : other + length],
            data[one : one + length],
        )
        return changed

    changes = {
        "a bit": flip(dice.randrange(SIZE)),
        "the same bit of two words of a row": flip(word, word + 8 if word + 8 < start + row else word - 8),
        "the same bit of two words of a column": flip(word, word + row),
        "the same bit of three words": flip(word, word + row, start),
        "two blocks of a disk": swap(start, start + row, row),
        "two pieces": swap(HEAD, HEAD + PIECE, PIECE),
        "two sectors": swap(start, start + 512, 512),
        "a block of zeros": data[:start] + bytes(row) + data[start + row :],
        "the end": data[:-1],
        "more": data + b"\0",
    }
    assert {what for what, changed in changes.items() if sum_of([changed]) == before} == set()


def test_a_thread_sums_what_is_large_and_all_results_come_together(data):
    with Summing() as sums:
        assert sums.add("large", iter([data[:HEAD], data[HEAD:]])) == [data[:HEAD], data[HEAD:]]
        sums.add("small", [b"a", b"b"])
        assert sums.result() == {"large": sum_of([data]), "small": sum_of([b"ab"])}

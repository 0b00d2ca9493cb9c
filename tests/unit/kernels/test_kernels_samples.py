"""Samples of a batch: the compiled loops and those in numpy against loops in Python."""

from array import array

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import plain, samples
from trainer.arrays.rng import Stream

MODULES = [plain, samples]  # in numpy, and compiled where that is there


@each("module", MODULES)
@each(("head", "taken", "size"), [(0, 8, 8), (0, 0, 0), (3, 5, 8), (2, 40, 100), (100, 0, 100)])
def test_samples_are_picked_by_the_legacys_rule(module, head, taken, size):
    draws = Stream(1).draws(taken)
    expected = list(range(size))
    for place, draw in enumerate(draws.tolist(), head):
        other = place + draw % (size - place)
        expected[place], expected[other] = expected[other], expected[place]
    pool = array("q", range(size))
    module.pick_samples(pool, head, draws)
    assert pool.tolist() == expected


@pytest.mark.parametrize("module", MODULES)
def test_the_documented_order_of_eight_samples(module):
    pool = array("q", range(8))
    module.pick_samples(pool, 0, Stream(1).draws(8))
    assert pool.tolist() == [1, 3, 6, 4, 5, 7, 2, 0]


@each("module", MODULES)
@each("rows", [[], [2], [0, 1, 2, 3], [3, 0, 3, 1]])
def test_spans_are_found(module, rows):
    bounds = np.array([0, 2, 2, 7, 8])
    starts, offsets = module.find_spans(bounds, np.array(rows, np.int64))
    lengths = [bounds[row + 1] - bounds[row] for row in rows]
    assert starts.tolist() == [bounds[row] for row in rows]
    assert offsets.tolist() == [sum(lengths[:place]) for place in range(len(rows) + 1)]
    assert starts.dtype == offsets.dtype == np.int64


@each("module", MODULES)
@each("lengths", [[], [0], [3], [2, 0, 5], [0, 1, 0, 0, 4, 0]])
def test_places_count_up_from_each_start(module, lengths):
    starts = np.random.default_rng(1).integers(0, 100, len(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    expected = [start + k for start, length in zip(starts.tolist(), lengths, strict=True) for k in range(length)]
    places = module.list_places(starts, offsets)
    assert places.tolist() == expected
    assert places.dtype == np.int64


@each("compiled", [kernels.compiled, None])
@each("lengths", [[], [0], [3], [2, 0, 5], [0, 1, 0, 0, 4, 0]])
def test_spans_are_joined(compiled, lengths, monkeypatch):
    monkeypatch.setattr(samples, "compiled", compiled)
    ids = np.arange(1000, 900, -1, dtype=np.int32)
    starts = np.random.default_rng(2).integers(0, 90, len(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    joined = samples.join_spans(ids, starts, offsets)
    assert joined.dtype == np.int64
    assert joined.tolist() == [
        1000 - start - k for start, length in zip(starts.tolist(), lengths, strict=True) for k in range(length)
    ]


@each("compiled", [kernels.compiled, None])
@each("shape", [(), (3,), (2, 2), (0,)])
@each("spans", [[], [(0, 4)], [(5, 5)], [(1, 3), (3, 3), (3, 9), (15, 20)], [(0, 2), (2, 3), (7, 19)]])
def test_spans_slide_to_the_start_in_place(compiled, shape, spans, monkeypatch):
    monkeypatch.setattr(samples, "compiled", compiled)
    monkeypatch.setattr(plain, "SLID_ITEMS", 3)
    store = np.arange(20 * int(np.prod(shape)), dtype=np.float32).reshape(20, *shape)
    expected = np.concatenate([store[:0], *(store[first:last] for first, last in spans)])
    starts = np.array([first for first, _ in spans], np.int64)
    offsets = np.cumsum([0, *(last - first for first, last in spans)], dtype=np.int64)
    samples.slide_spans(store, starts, offsets)
    assert np.array_equal(store[: offsets[-1]], expected)


@each("module", MODULES)
@each("is_reversed", [False, True])
@each("lengths", [[], [0], [3], [1, 1], [0, 2, 0, 3, 3, 1], [2, 5, 5, 0, 9, 1, 5]])
def test_frames_are_packed_step_by_step_with_the_longest_sequence_first(module, is_reversed, lengths):
    starts = np.cumsum([0, *lengths])
    longest_first = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    frames = [(step, number) for step in range(max(lengths, default=0)) for number in longest_first]
    frames = [(step, number) for step, number in frames if step < lengths[number]]
    wanted = [int(starts[number + 1] - 1 - step if is_reversed else starts[number] + step) for step, number in frames]
    order, begins, rows, places, previous = module.pack_order(starts, is_reversed=is_reversed)
    assert order.tolist() == longest_first
    assert begins.tolist() == [0, *(sum(step <= last for step, _ in frames) for last in range(max(lengths, default=0)))]
    assert rows.tolist() == wanted
    assert places[rows].tolist() == list(range(len(frames)))
    assert previous.tolist() == [frames.index((step - 1, number)) for step, number in frames if step]
    assert {one.dtype for one in (order, begins, rows, places, previous)} == {np.dtype(np.int64)}


@pytest.mark.skipif(kernels.compiled is None, reason="there is no compiled module")
def test_the_compiled_slide_refuses_what_does_not_fit():
    store = np.zeros(8, np.uint32)
    for start, offsets, words in [(7, [0, 2], 1), (2, [0, 3], 2), (1, [2, 3], 1), (0, [0, 2, 1], 1), (-1, [0, 1], 1)]:
        with pytest.raises(ValueError, match=r"not in the store|do not fit"):
            kernels.compiled.slide_spans(store, np.array([start]), np.array(offsets), words)
    with pytest.raises(ValueError, match="do not fit"):
        kernels.compiled.slide_spans(store, np.array([0]), np.array([0, 1]), 0)


@pytest.mark.skipif(kernels.compiled is None, reason="there is no compiled module")
def test_a_span_beyond_the_store_is_refused():
    for row in (-1, 2):
        with pytest.raises(ValueError, match="not in the store"):
            samples.find_spans(np.array([0, 1, 4]), np.array([row]))
    with pytest.raises(ValueError, match="not in the store"):
        samples.join_spans(np.zeros(4, np.int32), np.array([2]), np.array([0, 3]))


@pytest.mark.skipif(kernels.compiled is None, reason="there is no compiled module")
def test_the_compiled_loops_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="the sequences do not fit their arrays"):
        samples.pack_order(np.array([0, 3, 2, 4]), is_reversed=False)
    with pytest.raises(ValueError, match="the pool has fewer samples"):
        kernels.compiled.pick_samples(array("q", range(3)), 1, np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="the pool has fewer samples"):
        kernels.compiled.pick_samples(array("q", range(3)), -1, np.zeros(1, np.uint32))
    for offsets in ([0, 3], [0, 2, 1], [1, 2, 4], [0, 4, 3]):
        with pytest.raises(ValueError, match="the offsets do not fit"):
            kernels.compiled.list_places(np.empty(3, np.int64), np.zeros(2, np.int64), np.array(offsets))

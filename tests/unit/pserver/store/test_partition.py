"""Placement as the legacy's (check values of distributed.md 3.2 and 3.15), and copies that lose nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import BugError
from pserver.client.server_channel import VectorLayout
from pserver.optim.settings import ParameterSpec
from pserver.store import partition
from pserver.wire import protocol

WEIGHT, BIAS = "___fc_layer_0__.w0", "___fc_layer_0__.wbias"


@pytest.mark.parametrize("name, expected", [(WEIGHT, 0x74E448BE002533B2), (BIAS, 0xD5AB6944E8224EFD)])
def test_names_hash_as_in_libstdcxx(name, expected):
    assert partition.hash_name(name) == expected


@pytest.mark.parametrize(
    "name, services, expected", [(WEIGHT, 2, [0, 1, 0, 1]), (WEIGHT, 4, [2, 3, 0, 1]), (BIAS, 2, [1]), (BIAS, 4, [3])]
)
def test_blocks_lie_where_the_legacy_put_them(name, services, expected):
    places = [partition.place_block(block, partition.hash_name(name), services) for block in range(len(expected))]
    assert places == expected


def test_blocks_of_a_negative_hash_run_backwards():
    assert [partition.place_block(b, partition.hash_name(BIAS), 4) for b in range(4)] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    "total, services, expected", [(10**6, 6, 2048), (10**8, 4, 262144), (2500, 3, 1024), (1, 8, 1024), (0, 1, 1024)]
)
def test_block_sizes(total, services, expected):
    assert partition.block_size(total, services) == expected


def test_one_parameter_of_2500_elements_lies_on_three_services_in_turn():
    parameters = [ParameterSpec("w", 2500)]
    first = partition.place_block(0, partition.hash_name("w"), 3)
    direction = partition.place_block(1, partition.hash_name("w"), 3) - first
    found = partition.layout(parameters, 3)
    assert found[first] == [(0, 0, 1024)]
    assert found[(first + direction) % 3] == [(0, 1024, 2048)]
    assert found[(first + 2 * direction) % 3] == [(0, 2048, 2500)]
    assert sum(partition.count_slots(ranges, 1024) for ranges in found) == 3 * 1024


def test_a_single_service_has_whole_parameters_and_static_ones_are_nowhere():
    parameters = [ParameterSpec("a", 5000), ParameterSpec("s", 7, is_static=True), ParameterSpec("b", 3)]
    assert partition.whole(parameters) == [(0, 0, 5000), (2, 0, 3)]
    assert partition.find_runs(parameters, partition.whole(parameters)) == [partition.StridedRun(0, 0, 5003, 0, 1)]


def test_no_service_is_a_bug():
    with pytest.raises(BugError, match="at least one"):
        partition.layout([ParameterSpec("a", 1)], 0)


def test_many_blocks_are_few_copies():
    parameters = [ParameterSpec("w", 1_000_000), ParameterSpec("wbias", 10)]
    for ranges in partition.layout(parameters, 3):
        assert len(partition.find_runs(parameters, ranges)) <= 3


def test_digest_sees_names_sizes_and_order_but_not_static_parameters():
    a, b, static = ParameterSpec("a", 3), ParameterSpec("b", 4), ParameterSpec("s", 9, is_static=True)
    digests = {
        partition.digest(p) for p in ([a, b], [b, a], [a], [a, ParameterSpec("b", 5)], [a, ParameterSpec("c", 4)])
    }
    assert len(digests) == 5
    assert partition.digest([a, static, b]) == partition.digest([a, b])


sizes = st.lists(st.tuples(st.integers(1, 9000), st.booleans()), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(sizes, st.integers(1, 7), st.sampled_from([400, 4096, 1 << 20]))
def test_every_element_lies_on_one_service_and_comes_back_from_it(sizes, services, piece_bytes):
    parameters = [ParameterSpec(f"p{i}", size, is_static=static) for i, (size, static) in enumerate(sizes)]
    total = partition.count_elements(parameters)
    flat = np.arange(total, dtype=np.float32)
    back = np.full(total, -1, np.float32)
    ends = np.cumsum([0 if p.is_static else p.size for p in parameters])
    whole = [flat[end - p.size : end] for p, end in zip(parameters, ends, strict=True)]
    seen = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "PIECE_BYTES", piece_bytes)
        for ranges in partition.layout(parameters, services):
            layout = VectorLayout(partition.find_runs(parameters, ranges))
            parts = [b"".join(layout.gather(flat, piece)) for piece in range(layout.pieces)]
            assert sum(map(len, parts)) == 4 * layout.size == 4 * sum(stop - start for _, start, stop in ranges)
            assert b"".join(parts) == b"".join(whole[index][start:stop].tobytes() for index, start, stop in ranges)
            for piece, part in enumerate(parts):
                into = layout.parts_of(back, piece)
                if into is None or piece % 2:
                    layout.scatter(memoryview(part), back, piece)
                    continue
                for place in into:
                    place[:], part = part[: len(place)], part[len(place) :]
                assert not part
            seen += layout.size
    assert seen == total
    np.testing.assert_array_equal(back, flat)

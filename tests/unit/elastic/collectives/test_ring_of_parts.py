"""Over connections a ring reduces the arrays of a batch where they are, and sends narrow types as they are."""

from __future__ import annotations

import numpy as np
import pytest
from collective_ranks import groups, on_all
from collective_references import reduced, some_numbers, widen

from paddle_cluster.elastic.collectives.dtypes import BFLOAT16
from paddle_cluster.elastic.collectives.fusion import Batch
from paddle_cluster.elastic.collectives.mesh import Mesh
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction

COUNTS = [7, 300_001, 3, 64, 640_000, 50_000]  # pieces of 2**20 bytes lie in several of these arrays, or in one


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dtype", [*map(np.dtype, (np.float32, np.float16, np.int8)), BFLOAT16], ids=str)
def test_the_arrays_of_a_batch_are_reduced_in_their_place(
    size: int, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All arrays were copied to one array of 64 MiB of new memory, and back; float16 arrays were sent as float32."""
    send, sent = Mesh.send, []

    def count(mesh, number, kind, sequence, note=b"", payload=(), piece=0):  # type: ignore[no-untyped-def]
        sent.append(sum(one.nbytes for one in payload))
        send(mesh, number, kind, sequence, note, payload, piece)

    def refuse(batch: Batch) -> None:
        raise AssertionError("the arrays of a batch are copied to one array")

    monkeypatch.setattr(Mesh, "send", count)
    monkeypatch.setattr(Batch, "load_target", refuse)

    def work(group):  # type: ignore[no-untyped-def]
        arrays = [some_numbers(dtype, count, group.rank) for count in COUNTS]
        outputs = [one if number % 2 else None for number, one in enumerate(arrays)]
        handle = group.submit_group(CollectiveKind.ALLREDUCE, arrays, argument=Reduction.AVERAGE, outputs=outputs)
        return group.wait_group(handle)

    with groups(size, with_memory=False) as made:
        results = on_all(made, work)
    for number, length in enumerate(COUNTS):
        assert len({one[number].tobytes() for one in results}) == 1
        wanted = reduced([some_numbers(dtype, length, rank) for rank in range(size)], Reduction.AVERAGE)
        tolerance = 1e-6 if dtype.itemsize > 2 else 1e-2
        np.testing.assert_allclose(widen(results[0][number]), widen(wanted), rtol=tolerance)
    # each rank sends a chunk raw, size - 2 chunks of partial results, and size - 1 chunks of results
    own, partial = dtype.itemsize, max(4, dtype.itemsize)
    assert sum(sent) == pytest.approx(sum(COUNTS) * (size * own + (size - 2) * partial), rel=1e-3)

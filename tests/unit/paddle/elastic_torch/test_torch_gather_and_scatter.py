"""All-gathers, broadcasts, all-to-alls and reduce-scatters of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

from torch_ranks import torch_ranks  # noqa: E402

import paddle.elastic.torch as hvd  # noqa: E402

OnRanks = Callable[[Callable[[int], Any]], list[Any]]
DTYPES = (
    torch.bfloat16, torch.float16, torch.float32, torch.float64,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip


def rows(rank: int, count: int, dtype: Any = torch.float32) -> Any:
    """Rows of two numbers that tell their rank; the second one counts."""
    return torch.tensor([[rank, number] for number in range(count)]).reshape(count, 2).to(dtype)


def refused(call: Callable[[], Any]) -> str:
    """Returns the error of a call."""
    try:
        return f"no error: {call()}"
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def test_a_gather_has_the_rows_of_all_ranks_in_every_type(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        good = torch.equal(hvd.allgather(torch.tensor(float(rank))), torch.tensor([0.0, 1.0, 2.0]))
        for dtype in DTYPES:
            got = hvd.allgather(rows(rank, rank + 1, dtype))
            good &= got.dtype == dtype and torch.equal(got, torch.cat([rows(one, one + 1, dtype) for one in range(3)]))
        return good and hvd.allgather(torch.empty(0, 4) if rank else torch.ones(2, 4)).shape == (2, 4)

    assert three(work) == [True] * 3


def test_a_group_of_gathers_has_one_handle(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        tensors = [rows(rank, rank), rows(rank, 2, torch.int64), rows(rank, 0)]
        want = [
            torch.cat([rows(one, one) for one in range(3)]),
            torch.cat([rows(one, 2, torch.int64) for one in range(3)]),
            rows(0, 0),
        ]
        now = hvd.grouped_allgather(tensors, name="now")
        later = hvd.synchronize(hvd.grouped_allgather_async(tensors, name="later"))
        return all(map(torch.equal, now, want)) and all(map(torch.equal, later, want))

    assert three(work) == [True] * 3


def test_a_group_of_broadcasts_has_one_handle(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        tensors, want = [rows(rank, 3), rows(rank, 2, torch.bool)], [rows(1, 3), rows(1, 2, torch.bool)]
        now = hvd.grouped_broadcast(tensors, 1)
        later = hvd.synchronize(hvd.grouped_broadcast_async(tensors, 1))
        written = hvd.grouped_broadcast_(tensors, 1, name="in place")
        return all(all(map(torch.equal, one, want)) for one in (now, later, written, tensors))

    assert three(work) == [True] * 3


@pytest.mark.parametrize("collective", [hvd.allgather, hvd.alltoall])
def test_different_rows_or_types_fail_on_all_ranks(collective: Callable[..., Any], three: OnRanks) -> None:
    def work(rank: int) -> list[str]:
        cases = {
            "width": torch.ones(3, 2 + rank),
            "type": torch.ones(3, dtype=torch.int8 if rank else torch.uint8),
            "dimensions": torch.ones(3, 2) if rank else torch.ones(3),
        }
        return [refused(partial(collective, one, name=name)).partition(":")[0] for name, one in cases.items()]

    assert three(work) == [["CollectiveMismatchError"] * 3] * 3


def test_a_broadcast_is_the_tensor_of_the_root_in_every_type(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        good = True
        for root in range(3):
            for dtype in DTYPES:
                tensor = rows(rank, 4, dtype)
                kept = tensor.clone()
                good &= torch.equal(hvd.broadcast(tensor, root), rows(root, 4, dtype)) and torch.equal(tensor, kept)
                handle = hvd.broadcast_async(tensor, root)
                good &= torch.equal(hvd.synchronize(handle), rows(root, 4, dtype))
                place = tensor.data_ptr()
                good &= hvd.broadcast_(tensor, root) is tensor and tensor.data_ptr() == place
                good &= torch.equal(tensor, rows(root, 4, dtype))
        return good and hvd.broadcast(torch.tensor(float(rank)), 2).item() == 2.0

    assert three(work) == [True] * 3


def test_a_root_that_no_rank_has_is_refused(three: OnRanks) -> None:
    def work(rank: int) -> list[str]:
        return [refused(partial(hvd.broadcast, torch.ones(1), root)) for root in (7, -1)]

    wanted = [f"ValueError: broadcast received invalid root rank {root} for provided process set" for root in (7, -1)]
    for errors in three(work):
        for error, text in zip(errors, wanted, strict=True):
            assert error.startswith(text)


def test_ranks_with_different_roots_get_the_same_error(three: OnRanks) -> None:
    errors = three(lambda rank: refused(lambda: hvd.broadcast(torch.ones(1), rank, name="roots")))
    assert [error.partition(":")[0] for error in errors] == ["CollectiveMismatchError"] * 3


def test_an_all_to_all_without_splits_sends_equal_parts(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        good = True
        for dtype in DTYPES:
            got = hvd.alltoall(rows(rank, 6, dtype))
            want = torch.cat([rows(one, 6, dtype)[2 * rank : 2 * rank + 2] for one in range(3)])
            good &= isinstance(got, torch.Tensor) and got.dtype == dtype and torch.equal(got, want)
        return good

    assert three(work) == [True] * 3


def test_an_all_to_all_with_splits_tells_how_many_rows_came(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        parts = [rank, 0, 2]  # rows for each rank; one more is not sent
        tensor = rows(rank, sum(parts) + 1)
        want = torch.cat([rows(one, one + 2)[slice(*((0, one), (0, 0), (one, one + 2))[rank])] for one in range(3)])
        counts = torch.tensor([[0, 1, 2], [0, 0, 0], [2, 2, 2]][rank], dtype=torch.int32)
        good = True
        for splits in (parts, torch.tensor(parts, dtype=torch.int32)):
            received, came = hvd.alltoall(tensor, splits)
            good &= torch.equal(received, want) and torch.equal(came, counts)
        handle = hvd.alltoall_async(tensor, torch.tensor(parts, dtype=torch.int32), name="splits")
        received, came = hvd.synchronize(handle)
        good &= torch.equal(received, want) and torch.equal(came, counts) and came.dtype == torch.int32
        received, came = hvd.synchronize(hvd.alltoall_async(rows(rank, 3)))
        return good and came.tolist() == [1, 1, 1] and received.tolist() == [[0, rank], [1, rank], [2, rank]]

    assert three(work) == [True] * 3


def test_an_all_to_all_of_nothing_is_empty(three: OnRanks) -> None:
    def work(rank: int) -> Any:
        received, came = hvd.alltoall(torch.empty(0, 2), [0, 0, 0])
        alone, _ = hvd.alltoall(rows(rank, rank), [0, rank, 0])
        return received.shape, came.tolist(), alone.tolist()

    shape, none = torch.Size([0, 2]), [0, 0, 0]
    everything = [[1.0, 0.0], [2.0, 0.0], [2.0, 1.0]]
    assert three(work) == [(shape, none, []), (shape, none, everything), (shape, none, [])]


def test_splits_that_do_not_fit_are_refused_before_anything_is_sent(three: OnRanks) -> None:
    cases = (
        (
            torch.ones(4),
            None,
            "splits not provided, but first dimension of tensor is not an even multiple of the number of workers",
        ),
        (torch.ones(4), [1, 2], ""),
        (torch.ones(4), [2, 2, 2], ""),
        (torch.ones(4), [2, -1, 2], ""),
        (torch.ones(4), torch.tensor([1.5, 1.0, 1.0]), ""),
        (torch.ones(4), torch.tensor([[1, 1, 1]]), ""),
        (torch.tensor(1.0), [1, 0, 0], ""),
        (torch.ones(3), torch.empty(3, dtype=torch.int32, device="meta"), "a tensor of the device meta has no values"),
    )

    def work(rank: int) -> list[str]:
        return [refused(partial(hvd.alltoall, tensor, splits)) for tensor, splits, _ in cases]

    for errors in three(work):
        for error, (_, splits, text) in zip(errors, cases, strict=True):
            kind, _, found = error.partition(": ")
            assert kind in ("ValueError", "ScalarError"), (splits, error)
            assert found.startswith(text), (splits, error)


def test_a_reduce_scatter_gives_each_rank_its_rows(three: OnRanks) -> None:
    shares = {
        7: (slice(0, 3), slice(3, 5), slice(5, 7)),
        1: (slice(0, 1), slice(1, 1), slice(1, 1)),
        0: (slice(0),) * 3,
    }

    def work(rank: int) -> bool:
        good = True
        for dtype in DTYPES[:-1]:
            for count, share in shares.items():
                for op in (hvd.Sum, hvd.Average):
                    got = hvd.reducescatter(rows(rank, count, dtype), op=op)
                    want = sum(rows(one, count, torch.float64) for one in range(3)) / (1 if op == hvd.Sum else 3)
                    want = (want if dtype.is_floating_point else want.trunc()).to(dtype)[share[rank]]
                    good &= got.dtype == dtype and got.shape == want.shape and torch.allclose(got, want, rtol=1e-2)
        return good

    assert three(work) == [True] * 3


def test_a_reduce_scatter_with_factors_in_groups_and_later(three: OnRanks) -> None:
    def work(rank: int) -> list[Any]:
        tensors = [torch.full((3,), 7), torch.full((3, 2), 7.0)]
        return [
            one.tolist()
            for one in (
                hvd.reducescatter(tensors[0], op=hvd.Sum, prescale_factor=0.5, postscale_factor=2.0),
                hvd.synchronize(hvd.reducescatter_async(tensors[1], name="later")),
                *hvd.grouped_reducescatter(tensors, name="group", op=hvd.Sum),
                *hvd.synchronize(hvd.grouped_reducescatter_async(tensors, postscale_factor=2.0)),
                *hvd.grouped_reducescatter([tensors[1]], compression=hvd.Compression.fp16),
                hvd.reducescatter(tensors[1], compression=hvd.Compression.bf16),
            )
        ]

    seven = [[7.0, 7.0]]
    assert three(work) == [[[18], seven, [21], [[21.0, 21.0]], [14], [[14.0, 14.0]], seven, seven]] * 3


def test_reduce_scatters_that_cannot_be_are_refused(three: OnRanks) -> None:
    text = "Reducescatter currently only supports AVERAGE and SUM."

    def work(rank: int) -> list[str]:
        return [
            *(
                refused(partial(hvd.reducescatter, torch.ones(3), op=op))
                for op in (hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
            ),
            refused(lambda: hvd.grouped_reducescatter([torch.ones(3)], op=hvd.Min)),
            refused(lambda: hvd.reducescatter(torch.tensor(1.0))),
            refused(lambda: hvd.reducescatter(torch.ones(3 + rank), name="rows")),
            refused(lambda: hvd.reducescatter(torch.ones(3, dtype=torch.int32 if rank else torch.int64), name="type")),
            refused(lambda: hvd.reducescatter(torch.ones(3), op=hvd.Sum if rank else hvd.Average, name="op")),
        ]

    for errors in three(work):
        assert [error.partition(text)[:2] for error in errors[:5]] == [("HorovodInternalError: ", text)] * 5
        assert errors[5].startswith("ScalarError: ")
        assert [error.partition(":")[0] for error in errors[6:]] == ["CollectiveMismatchError"] * 3


def test_objects_of_plain_data_with_different_ones_on_each_rank(three: OnRanks) -> None:
    """In Horovod a call with an object of another type on each rank never ends."""

    def work(rank: int) -> Any:
        obj = {"hello": 123, 0: [1, 2]} if rank == 1 else None
        return hvd.broadcast_object(obj, 1), hvd.allgather_object({"rank": rank}, name="objects")

    assert three(work) == [({"hello": 123, 0: [1, 2]}, [{"rank": rank} for rank in range(3)])] * 3


def test_a_barrier_between_other_collectives(three: OnRanks) -> None:
    def work(rank: int) -> float:
        handles = [hvd.allreduce_async(torch.ones(5) * number, op=hvd.Sum) for number in range(10)]
        hvd.barrier()
        return sum(hvd.synchronize(handle)[0].item() for handle in handles)

    assert three(work) == [135.0] * 3


def test_a_single_worker_and_groups_of_nothing() -> None:
    def work(_: int) -> list[Any]:
        tensor = torch.tensor([1.0, 2.0], requires_grad=True)
        scalar = hvd.allreduce_(torch.tensor(3.0), op=hvd.Sum, postscale_factor=2.0)
        results = [
            hvd.allreduce(tensor, op=hvd.Sum),
            hvd.allgather(tensor),
            hvd.broadcast(tensor, 0),
            hvd.alltoall(tensor),
            hvd.reducescatter(tensor),
            hvd.SyncBatchNorm(1)(tensor.unsqueeze(1)).flatten(),
        ]
        sum(one.sum() for one in results).backward()
        nothing = [hvd.grouped_allreduce([]), hvd.grouped_allreduce_([]), hvd.grouped_allgather([])]
        nothing += [hvd.grouped_reducescatter([]), hvd.grouped_broadcast([], 0)]
        return [*(one.tolist() for one in results[:-1]), scalar.item(), tensor.grad.tolist(), nothing]

    with torch_ranks(1) as on_rank:
        assert on_rank(work) == [[*[[1.0, 2.0]] * 5, 6.0, [5.0, 5.0], [[]] * 5]]

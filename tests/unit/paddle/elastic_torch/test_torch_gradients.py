"""Gradients through every collective, and SyncBatchNorm against BatchNorm of the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")


import paddle.elastic.torch as hvd  # noqa: E402
from paddle.elastic.torch import asynchronous  # noqa: E402

OnRanks = Callable[[Callable[[int], Any]], list[Any]]


def leaf(rank: int, *shape: int) -> Any:
    return (torch.arange(int(torch.Size(shape).numel()), dtype=torch.float64).reshape(shape) + rank).requires_grad_()


def weights(rank: int, like: Any) -> Any:
    """What a rank's loss multiplies its results by: the gradient of the result."""
    return torch.arange(like.numel(), dtype=like.dtype).reshape(like.shape) * (rank + 1) + 1


def gradient_of(rank: int, results: Any, *leaves: Any) -> list[list[float]]:
    torch.autograd.backward(results, [weights(rank, result) for result in results])
    return [one.grad.tolist() for one in leaves]


def all_weights(shape: tuple[int, ...]) -> list[Any]:
    return [weights(rank, torch.empty(shape, dtype=torch.float64)) for rank in range(3)]


@pytest.mark.parametrize("op", [0, 1], ids=["average", "sum"])
def test_the_gradient_of_an_all_reduce_is_the_same_all_reduce(three: OnRanks, op: int) -> None:
    def work(rank: int) -> Any:
        one, two, other = leaf(rank, 2, 3), leaf(rank, 4), leaf(rank, 2)
        results = [
            hvd.allreduce(one, op=op, prescale_factor=0.5, postscale_factor=3.0),
            *hvd.grouped_allreduce([two, other], op=op),
        ]
        return gradient_of(rank, results, one, two, other)

    def reduced(*shape: int) -> Any:
        return sum(all_weights(shape)) / (1 if op else 3)

    want = [(reduced(2, 3) * 1.5).tolist(), reduced(4).tolist(), reduced(2).tolist()]
    for got in three(work):
        for one, right in zip(got, want, strict=True):
            torch.testing.assert_close(torch.tensor(one), torch.tensor(right))


def test_the_gradient_of_a_gather_is_the_own_rows_of_the_average(three: OnRanks) -> None:
    def work(rank: int) -> Any:
        one, two, scalar = leaf(rank, rank + 1, 2), leaf(rank, 2), leaf(rank)
        gathered = hvd.allgather(one)
        return gradient_of(rank, [gathered, *hvd.grouped_allgather([two, scalar])], one, two, scalar)

    big, small, single = (sum(all_weights(shape)) / 3 for shape in ((6, 2), (6,), (3,)))
    for rank, (one, two, scalar) in enumerate(three(work)):
        start = (0, 1, 3)[rank]
        torch.testing.assert_close(torch.tensor(one).double(), big[start : start + rank + 1])
        torch.testing.assert_close(torch.tensor(two).double(), small[2 * rank : 2 * rank + 2])
        torch.testing.assert_close(torch.tensor(scalar).double(), single[rank])


def test_the_gradient_of_a_broadcast_is_the_average_at_the_root_and_zero_elsewhere(three: OnRanks) -> None:
    def work(rank: int) -> Any:
        one = leaf(rank, 2, 2)
        return gradient_of(rank, [hvd.broadcast(one, 1)], one)[0]

    average = sum(all_weights((2, 2))) / 3
    assert three(work) == [[[0.0, 0.0]] * 2, average.tolist(), [[0.0, 0.0]] * 2]


def test_the_gradient_of_an_all_to_all_goes_the_way_back(three: OnRanks) -> None:
    def work(rank: int) -> Any:
        one, two = leaf(rank, 3, 2), leaf(rank, 4)
        received, _ = hvd.alltoall(two, [1, rank, 0])  # the last rows are not sent
        return gradient_of(rank, [hvd.alltoall(one), received], one, two)

    even = all_weights((3, 2))
    for rank, (one, two) in enumerate(three(work)):
        assert one == [even[other][rank].tolist() for other in range(3)]
        first = 1.0 + rank  # the gradient at rank 0, where this rank's row is the one of its number
        at_one = all_weights((3,))[1][
            [0, 0, 1][rank] : [0, 1, 3][rank]
        ].tolist()  # ranks 1 and 2 send 1 and 2 rows to rank 1
        assert two == [first, *at_one, *[0.0] * (3 - rank)]


@pytest.mark.parametrize("op", [0, 1], ids=["average", "sum"])
def test_the_gradient_of_a_reduce_scatter_is_the_gather_times_the_size_for_a_sum(three: OnRanks, op: int) -> None:
    def work(rank: int) -> Any:
        one, two = leaf(rank, 4, 2), leaf(rank, 3)
        scattered = hvd.reducescatter(one, op=op, prescale_factor=0.5)
        return gradient_of(rank, [scattered, *hvd.grouped_reducescatter([two], op=op)], one, two)

    factor = 3 if op else 1
    big = torch.cat([weights(rank, torch.empty(2 if rank == 0 else 1, 2).double()) for rank in range(3)]) * factor * 0.5
    assert three(work) == [[big.tolist(), [1.0 * factor] * 3]] * 3


def test_a_tensor_without_gradient_and_integers_go_through(three: OnRanks) -> None:
    def work(rank: int) -> list[bool]:
        results = [
            hvd.allreduce(torch.ones(2)),
            hvd.allgather(torch.ones(2, dtype=torch.int32)),
            hvd.broadcast(torch.ones(2), 0),
        ]
        with torch.no_grad():
            results.append(hvd.allreduce(leaf(rank, 2)))
        return [one.requires_grad for one in results]

    assert three(work) == [[False] * 4] * 3


# ----- SyncBatchNorm -----

SIZES = (2, 5, 3)  # samples of each rank


def batch(*more: int, mean: float = 3.0) -> Any:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(sum(SIZES), 4, *more, generator=generator, dtype=torch.float64) * 2 + mean


def prepare(norm: Any) -> Any:
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 1.0, 2.0, -1.0]))
        norm.bias.copy_(torch.tensor([1.0, 0.0, 0.5, 2.0]))
    return norm.double()


@pytest.mark.parametrize("more", [(), (3,), (3, 2)], ids=["rows", "sequences", "images"])
@pytest.mark.parametrize("momentum", [0.1, None], ids=["momentum", "cumulative"])
def test_sync_batch_norm_is_batch_norm_of_the_whole_batch(three: OnRanks, more: tuple[int, ...], momentum: Any) -> None:
    whole = batch(*more).requires_grad_()
    of_whole = prepare(
        {0: torch.nn.BatchNorm1d, 1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm2d}[len(more)](4, momentum=momentum)
    )
    expected = of_whole(whole)
    (expected * weights(0, expected)).sum().backward()
    parts = torch.split(batch(*more), SIZES)

    def work(rank: int) -> Any:
        norm, part = prepare(hvd.SyncBatchNorm(4, momentum=momentum)), parts[rank].clone().requires_grad_()
        result = norm(part)
        (result * torch.split(weights(0, expected), SIZES)[rank]).sum().backward()
        sums = [hvd.allreduce(one.grad, op=hvd.Sum) for one in (norm.weight, norm.bias)]
        return result.detach(), part.grad, sums, norm

    results = three(work)
    torch.testing.assert_close(torch.cat([one[0] for one in results]), expected.detach())
    torch.testing.assert_close(torch.cat([one[1] for one in results]), whole.grad)
    for _, _, (weight, bias), norm in results:
        torch.testing.assert_close(weight, of_whole.weight.grad)
        torch.testing.assert_close(bias, of_whole.bias.grad)
        torch.testing.assert_close(norm.running_mean, of_whole.running_mean)
        torch.testing.assert_close(norm.running_var, of_whole.running_var)
        assert norm.num_batches_tracked == of_whole.num_batches_tracked


def test_sync_batch_norm_has_one_all_reduce_in_each_direction(three: OnRanks) -> None:
    """Counted by the names of requests without a name: the next one is the third."""

    def work(rank: int) -> Any:
        norm = hvd.SyncBatchNorm(4)
        before = hvd.allreduce_async(torch.ones(1))
        norm(torch.randn(3, 4, requires_grad=True)).sum().backward()
        after = hvd.allreduce_async(torch.ones(1))
        names = [numbers(handle) for handle in (before, after)]
        hvd.synchronize(before), hvd.synchronize(after)
        return names[1] - names[0]

    def numbers(handle: int) -> int:
        pending = asynchronous.HANDLES._started[handle].pending
        return int(pending.handle.request.name.rpartition(".")[2])

    assert three(work) == [3] * 3


def test_sync_batch_norm_computes_halves_in_float32(three: OnRanks) -> None:
    parts = torch.split(batch(2, mean=30.0), SIZES)
    expected = torch.nn.BatchNorm1d(4)(torch.cat(parts).to(torch.bfloat16).float())

    def work(rank: int) -> Any:
        return hvd.SyncBatchNorm(4)(parts[rank].to(torch.bfloat16))

    results = torch.cat(three(work))
    assert results.dtype == torch.bfloat16
    torch.testing.assert_close(results.float(), expected, rtol=1e-2, atol=1e-2)


def test_sync_batch_norm_with_a_rank_without_samples_and_without_parameters(three: OnRanks) -> None:
    whole = torch.arange(12.0).reshape(3, 4)

    def work(rank: int) -> Any:
        norm = hvd.SyncBatchNorm(4, affine=False)
        return norm(whole[:2] if rank == 0 else whole[2:] if rank == 2 else whole[:0])

    torch.testing.assert_close(torch.cat(three(work)), torch.nn.BatchNorm1d(4, affine=False)(whole))


def test_sync_batch_norm_refuses_a_single_value_and_other_shapes(three: OnRanks) -> None:
    def work(rank: int) -> list[str]:
        norm, errors = hvd.SyncBatchNorm(4), []
        for tensor in (torch.ones(rank // 2, 4), torch.ones(4)):
            with pytest.raises(ValueError) as caught:
                norm(tensor)
            errors.append(str(caught.value))
        return errors

    for first, second in three(work):
        assert first.startswith("Expected more than 1 value per channel when training")
        assert second == "expected at least 2D input (got 1D input)"


@pytest.mark.parametrize("tracks", [True, False], ids=["averages", "own batch"])
def test_sync_batch_norm_that_does_not_train_waits_for_nobody(three: OnRanks, tracks: bool) -> None:
    """Often one rank tests alone."""

    def work(rank: int) -> Any:
        norm = hvd.SyncBatchNorm(1, track_running_stats=tracks).eval()
        result = norm(torch.tensor([[1.0], [3.0]])).flatten().tolist() if rank == 1 else None
        hvd.barrier()
        return result

    _, result, _ = three(work)
    assert result == pytest.approx([1, 3] if tracks else [-1, 1], abs=1e-4)

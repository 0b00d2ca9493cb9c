"""All-reduces of tensors: types, reductions, factors, in place, in groups, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="paddle.elastic.torch is an extra (make test installs torch)")

from torch_ranks import torch_ranks  # noqa: E402

import paddle.elastic.torch as hvd  # noqa: E402
from paddle.elastic.torch import handles, tensors  # noqa: E402
from paddle_cluster.elastic.process import operations  # noqa: E402

OnRanks = Callable[[Callable[[int], Any]], list[Any]]
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def values(rank: int, dtype: Any = torch.float32, shape: tuple[int, ...] = (4, 3)) -> Any:
    """Numbers of a rank that every type has."""
    count = int(torch.Size(shape).numel())
    return ((torch.arange(count) * (rank + 2)) % 7 + 1).to(dtype).reshape(shape)


def whole(op: Any, dtype: Any, shape: tuple[int, ...] = (4, 3), size: int = 3) -> Any:
    """The reduction, computed in float64."""
    all_values = torch.stack([values(rank, dtype, shape) for rank in range(size)]).double()
    if op == hvd.Average:
        mean = all_values.sum(0) / size
        return (mean if dtype in REAL else mean.trunc()).to(dtype)
    of_op = {hvd.Sum: all_values.sum(0), hvd.Min: all_values.amin(0), hvd.Max: all_values.amax(0)}
    return of_op.get(op, all_values.prod(0)).to(dtype)


def test_every_reduction_of_every_type(three: OnRanks) -> None:
    cases = [
        (op, dtype, shape)
        for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product)
        for dtype in (*REAL, *WHOLE)
        for shape in ((4, 3), (), (0, 2))
        if not (op == hvd.Product and dtype == torch.int8)  # 7 * 7 * 7 is too much for it
    ]

    def work(rank: int) -> list[str]:
        wrong = []
        for op, dtype, shape in cases:
            got = hvd.allreduce(values(rank, dtype, shape), op=op)
            want = whole(op, dtype, shape)
            if got.dtype != dtype or got.shape != want.shape or not torch.allclose(got, want, rtol=1e-2):
                wrong.append(f"{op!r} {dtype} {shape}: {got}, not {want}")
        return wrong

    assert three(work) == [[], [], []]


def test_truth_values_are_reduced_as_or_and_and(three: OnRanks) -> None:
    """Horovod refuses them."""

    def work(rank: int) -> list[list[bool]]:
        tensor = torch.tensor([rank == 1, False, True])
        return [hvd.allreduce(tensor, op=op).tolist() for op in (hvd.Max, hvd.Min)]

    assert three(work) == [[[True, False, True], [False, False, True]]] * 3


def test_in_place_the_memory_of_the_tensor_gets_the_result(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        tensor = values(rank, torch.bfloat16)
        real = values(rank).requires_grad_()
        before = tensor.data_ptr()
        is_same = hvd.allreduce_(tensor, op=hvd.Sum) is tensor and hvd.allreduce_(real) is real
        return (
            is_same
            and tensor.data_ptr() == before
            and torch.equal(tensor, whole(hvd.Sum, torch.bfloat16))
            and torch.allclose(real, whole(hvd.Average, torch.float32))
        )

    assert three(work) == [True] * 3


def test_a_result_has_memory_of_its_own_and_the_tensor_stays(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        tensor = values(rank)
        result = hvd.allreduce(tensor, op=hvd.Sum)
        return result.data_ptr() != tensor.data_ptr() and torch.equal(tensor, values(rank))

    assert three(work) == [True] * 3


def test_factors_before_and_after(three: OnRanks) -> None:
    def work(rank: int) -> list[Any]:
        half = torch.full((2,), 1000.0, dtype=torch.float16)
        return [
            hvd.allreduce(torch.full((2,), 7), op=hvd.Sum, prescale_factor=0.5).tolist(),  # 3 + 3 + 3
            hvd.allreduce(torch.full((2,), 7), op=hvd.Sum, postscale_factor=0.5).tolist(),
            hvd.allreduce(half, op=hvd.Sum, prescale_factor=0.1).tolist(),
            hvd.allreduce_(torch.ones(2), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5).tolist(),
        ]

    assert three(work) == [[[9, 9], [10, 10], [300.0, 300.0], [3.0, 3.0]]] * 3


def test_a_group_goes_together_and_has_one_handle(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        tensors = [values(rank, dtype) for dtype in (torch.float32, torch.float64, torch.int32)]
        want = [whole(hvd.Sum, tensor.dtype) for tensor in tensors]
        results = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="group")
        handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum, name="group in place")
        assert isinstance(handle, int)
        written = hvd.synchronize(handle)
        again = hvd.grouped_allreduce_([one.clone() for one in results], op=hvd.Max)
        return (
            all(map(torch.equal, results, want))
            and all(
                one is tensor and torch.equal(one, right)
                for one, tensor, right in zip(written, tensors, want, strict=True)
            )
            and all(map(torch.equal, again, want))
        )

    assert three(work) == [True] * 3


def test_many_at_once_in_another_order_on_each_rank(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        names = [(number * (rank + 1)) % 50 for number in range(50)] if rank != 1 else list(range(50))
        names = list(dict.fromkeys([*names, *range(50)]))
        handles = {n: hvd.allreduce_async(torch.full((9,), n + rank), op=hvd.Sum, name=f"many {n}") for n in names}
        while not all(hvd.poll(handle) for handle in handles.values()):
            pass  # the collectives' own thread runs them
        return all(hvd.synchronize(handles[n]).tolist() == [3 * n + 3] * 9 for n in reversed(names))

    assert three(work) == [True] * 3


def test_both_names_of_the_reduction_are_refused_and_the_older_one_warns(three: OnRanks) -> None:
    tensor = torch.ones(2)
    for function in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_):
        with pytest.raises(ValueError, match=r"^The op parameter supersedes average\. Please provide"):
            function(tensor, average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="Please provide only one"):
        hvd.grouped_allreduce([tensor], average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match=r"op is 9; use hvd\.Average, hvd\.Sum"):
        hvd.allreduce(tensor, op=9)

    def work(rank: int) -> list[float]:
        return hvd.allreduce(torch.ones(1) * rank, average=False).tolist()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert three(work) == [[3.0]] * 3
    assert {one.category for one in caught} == {DeprecationWarning}
    assert caught[0].filename == __file__


def test_a_tensor_that_no_collective_takes_is_refused_before_anything_is_sent(three: OnRanks) -> None:
    cases = (
        (
            torch.ones(3, 4).t(),
            ValueError,
            r"^Tensor is required to be contiguous\. The strides of one of shape \(4, 3\)",
        ),
        (torch.ones(2, device="meta"), ValueError, r"of the device meta has no values to send; its shape is \(2,\)"),
        (
            torch.ones(2, dtype=torch.complex64),
            ValueError,
            r"^Tensor type torch\.ComplexFloatTensor is not supported\. Convert it into one of bfloat16, bool, ",
        ),
        (torch.eye(2).to_sparse(), ValueError, r"sparse_allreduce_async, or its to_dense"),
        ([1.0, 2.0], TypeError, "takes tensors, and not a list; use torch.as_tensor"),
    )
    for function in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
        for tensor, kind, text in cases:
            with pytest.raises(kind, match=text):
                function(tensor)
            with pytest.raises(kind, match=text):
                hvd.grouped_allreduce([torch.ones(1), tensor])
            with pytest.raises(kind, match=text):
                hvd.broadcast(tensor, 0)
            with pytest.raises(kind, match=text):
                hvd.allreduce_(tensor, op=hvd.Adasum)


def test_two_tensors_of_a_group_in_place_may_not_share_memory(three: OnRanks) -> None:
    """A view of a tensor got the result of the tensor reduced once more, or not, as the sizes were."""
    cases = [lambda one: [one, torch.ones(1), one], lambda one: [torch.ones(1), one, one[:2]]]

    def work(rank: int) -> str:
        for case in cases:
            with pytest.raises(ValueError, match=r"arrays [01] and 2 of a group in place have the same memory"):
                hvd.grouped_allreduce_(case(torch.ones(3)), name="group")
        empty = torch.ones(0)
        return str(hvd.grouped_allreduce_([empty, torch.ones(1), empty], name="group", op=hvd.Sum)[1])

    assert three(work) == ["tensor([3.])"] * 3


def test_ranks_that_disagree_get_the_same_error_and_go_on(three: OnRanks) -> None:
    def work(rank: int) -> list[str]:
        cases: list[Callable[[], Any]] = [
            lambda: hvd.allreduce(torch.ones(2 + rank), name="shape"),
            lambda: hvd.allreduce(torch.ones(2, 3) if rank else torch.ones(6), name="dimensions"),
            lambda: hvd.allreduce(torch.ones(2, dtype=torch.int32 if rank else torch.float32), name="type"),
            lambda: hvd.allreduce(torch.ones(2), op=hvd.Sum if rank else hvd.Max, name="op"),
            lambda: hvd.allreduce(torch.ones(2), prescale_factor=1.0 + rank, name="factor"),
            lambda: hvd.allreduce(torch.ones(2), name="kind") if rank else hvd.allgather(torch.ones(2), name="kind"),
        ]
        errors = []
        for case in cases:
            try:
                case()
                errors.append("none")
            except RuntimeError as error:
                errors.append(type(error).__name__)
        return [*errors, str(hvd.allreduce(torch.ones(1), op=hvd.Sum).item())]

    assert three(work) == [[*["CollectiveMismatchError"] * 6, "3.0"]] * 3


def test_a_name_that_waits_is_refused_on_that_rank_only(three: OnRanks) -> None:
    def work(rank: int) -> list[float]:
        handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum, name="same")
        if rank == 0:
            with pytest.raises(ValueError, match="'same' waits already"):
                hvd.allreduce_async(torch.ones(2), name="same")
        return hvd.synchronize(handle).tolist()

    assert three(work) == [[3.0, 3.0]] * 3


def test_a_handle_counts_once(three: OnRanks) -> None:
    def work(rank: int) -> Any:
        handle = hvd.allreduce_async(torch.ones(1), op=hvd.Sum)
        first, second = hvd.synchronize(handle), hvd.synchronize(handle)
        with pytest.raises(ValueError, match=rf"^Handle {handle} was not created or has been cleared\.$"):
            hvd.poll(handle)
        return first.item(), second, hvd.synchronize(10**9)

    assert three(work) == [(3.0, None, None)] * 3


def test_compression_sends_two_bytes_and_gives_the_type_back(three: OnRanks) -> None:
    def work(rank: int) -> bool:
        good = True
        for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
            for dtype in (*REAL, torch.int32):
                sent, context = compression.compress(values(rank, dtype))
                assert sent.dtype == (compression.dtype if dtype in REAL else dtype)
                assert compression.decompress(sent, context).dtype == dtype
                got = hvd.allreduce(values(rank, dtype), compression=compression, op=hvd.Sum)
                (grouped,) = hvd.grouped_allreduce([values(rank, dtype)], compression=compression, op=hvd.Sum)
                good &= torch.equal(got, whole(hvd.Sum, dtype)) and torch.equal(grouped, got)
        tensor = values(rank)
        return good and hvd.Compression.none.compress(tensor) == (tensor, None)

    assert three(work) == [True] * 3


def test_sparse_tensors_are_added_by_two_gathers(three: OnRanks) -> None:
    def dense(rank: int) -> Any:
        tensor = torch.zeros(5, 2)
        tensor[rank] = rank + 1.0
        tensor[4] = 3.0
        return tensor

    def work(rank: int) -> bool:
        sums = [
            hvd.sparse_allreduce_async(dense(rank).to_sparse(1), f"sparse {number}", op)
            for number, op in enumerate((hvd.Sum, hvd.Average))
        ]
        whole = sum(dense(one) for one in range(3))
        total, average = (wait().to_dense() for wait in sums)
        return torch.equal(total, whole) and torch.allclose(average, whole / 3)

    assert three(work) == [True] * 3
    with pytest.raises(ValueError, match=r"hvd\.Average or hvd\.Sum"):
        hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "sparse", hvd.Max)


def test_a_tensor_of_a_device_goes_through_the_memory_of_the_host(
    three: OnRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played with CPU tensors: no test of this project has a GPU."""
    monkeypatch.setattr(tensors, "is_on_host", lambda _: False)

    def work(rank: int) -> bool:
        tensor, half = values(rank), values(rank, torch.bfloat16)
        handle = hvd.grouped_allreduce_async_([tensor, half], op=hvd.Sum)
        hvd.broadcast(tensor, 0)  # ends after the all-reduce, which has written into the copies only
        is_kept = torch.equal(tensor, values(rank))
        hvd.synchronize(handle)
        return (
            is_kept
            and torch.equal(tensor, whole(hvd.Sum, torch.float32))
            and torch.equal(half, whole(hvd.Sum, torch.bfloat16))
        )

    assert three(work) == [True] * 3


def test_what_a_generation_has_left_is_forgotten_in_the_next_one() -> None:
    """The tensors of a failed step would stay in memory for the life of the worker."""
    table = handles.HandleTable()
    with torch_ranks(1) as first, torch_ranks(1) as second:

        def begin(_: int) -> tuple[int, int]:
            handle = table.add(operations.allreduce_async(np.ones(1)), lambda array: array)
            return handle, len(table._started)

        (old, _), (_, count), (_, after) = first(begin)[0], first(begin)[0], second(begin)[0]
    assert (count, after) == (2, 1)
    assert table.synchronize(old) is None

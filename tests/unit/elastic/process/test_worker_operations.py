"""The collectives that a program calls, in a job with a single worker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from collective_ranks import groups

import paddle.elastic as hvd
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.elastic.process import operations, seals
from paddle_cluster.elastic.process.membership import WORKER


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    hvd.init()
    yield
    WORKER.end()
    WORKER.forget()


@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "strided"])
def test_factors_count_in_place_too(step: int) -> None:
    whole = np.full(8, 7, np.int32)
    part = whole[::step]
    assert hvd.allreduce_(part, op=hvd.Sum, prescale_factor=0.5, postscale_factor=2.0) is part
    assert whole.tolist() == ([6] * 8 if step == 1 else [6, 7] * 4)  # 3.5 is cut to 3, as Horovod does
    assert hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.0).tolist() == [0] * 8
    first, second = hvd.grouped_allreduce([np.ones(2), np.ones(0)], op=hvd.Sum, postscale_factor=3.0)
    assert (first.tolist(), second.tolist()) == ([3.0, 3.0], [])


def test_an_array_that_must_not_be_written_is_refused_in_place() -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        hvd.allreduce_(array)


def test_a_disagreement_is_a_runtime_error_as_in_horovod() -> None:
    assert issubclass(hvd.CollectiveMismatchError, RuntimeError)
    assert not issubclass(hvd.CollectiveMismatchError, hvd.HorovodInternalError)  # the loop must not try it again


def test_a_handle_that_is_used_twice_changes_the_array_once() -> None:
    """The second call multiplied an array in place by postscale_factor once more."""
    array = np.ones(2)
    handle = hvd.allreduce_async_(array, op=hvd.Sum, postscale_factor=3.0)
    assert hvd.synchronize(handle).tolist() == [3, 3]
    array += 1  # of the program, after it has the result
    assert hvd.synchronize(handle) is array and array.tolist() == [4, 4]


def test_a_group_with_an_array_of_a_wrong_type_leaves_no_request_behind() -> None:
    """The first array waited under its name for ever, so that the next call with this name raised ValueError."""
    with pytest.raises(TypeError, match="complex64"):
        hvd.grouped_allreduce([np.ones(1), np.ones(1, np.complex64)], name="group")
    assert hvd.grouped_allreduce([np.ones(1)], name="group")[0].tolist() == [1]


def test_a_single_worker_gets_its_pickles_back() -> None:
    assert hvd.broadcast_object({1, 2}, unsafe_pickle=True) == {1, 2}
    assert hvd.allgather_object({1, 2}, unsafe_pickle=True) == [{1, 2}]


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('code of a stranger runs')",)


def test_a_pickle_that_a_rank_has_not_signed_for_this_operation_is_not_read() -> None:
    """A program that could change packets ran code on a rank."""
    seal = seals.PickleSeal(b"secret", b"operation", b"nonces")
    sealed = seal.sign(1, pickle.dumps([1])) + pickle.dumps([1])
    assert seals.load_sealed(sealed, 1, seal) == [1]
    bomb = pickle.dumps(Bomb())
    for data, sender, reader in (
        (sealed[:32] + bomb, 1, seal),  # changed on the way
        (seal._replace(secret=b"another").sign(1, bomb) + bomb, 1, seal),
        (seal.sign(1, bomb) + bomb, 0, seal),  # another rank's
        (seal.sign(1, bomb) + bomb, 1, seal._replace(nonces=b"others")),
        (seal.sign(1, bomb) + bomb, 1, seal._replace(operation=b"other")),
        (bomb, 1, seal),
        (b"", 1, seal),
    ):
        with pytest.raises(DataError, match="not the one that it has signed"):
            seals.load_sealed(data, sender, reader)


@pytest.mark.parametrize("length", [-1, -(1 << 63), 1 << 50, (1 << 63) - 1])
def test_a_length_that_no_object_has_is_an_error_of_the_data(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that could change packets caused a ValueError or a MemoryError."""
    monkeypatch.setattr(operations, "rank", lambda: 1)
    monkeypatch.setattr(operations, "broadcast", lambda *_: np.array([length]))
    with pytest.raises(DataError, match=f"rank 0 sent an object of {length} bytes, for which"):
        hvd.broadcast_object(root_rank=0)


@pytest.mark.parametrize("lengths", [[-7, 20], [1 << 62, 1 << 62], [6, 6], [14, 0]])
def test_lengths_that_do_not_fit_to_the_objects_are_an_error_of_the_data(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "allgather", lambda array, *_: np.array(lengths if array.dtype == "i8" else [1]))
    with pytest.raises(DataError, match="the lengths"):
        hvd.allgather_object(1)


def test_pickles_need_a_secret() -> None:
    with groups(2, secret="") as made, pytest.raises(ConfigError, match="unsafe_pickle=True needs a secret of the job"):
        seals.PickleSeal.agree("gather", None, made[0], "")


def test_a_number_that_is_scaled_stays_an_array() -> None:
    """An array without dimensions came back as a numpy scalar, which cannot be changed in place."""
    assert isinstance(hvd.allreduce(np.array(1.0), postscale_factor=2.0), np.ndarray)

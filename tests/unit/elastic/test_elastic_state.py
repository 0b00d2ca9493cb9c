"""List T of spec/elastic.md with numpy states: commit, restore, sync, notices, the sampler.

T3 to T6 are T1 with the states of TensorFlow and Keras, for which those of numpy stand here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import paddle.elastic as hvd
from paddle_cluster.elastic.callbacks import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.errors import HostsUpdatedInterrupt
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.absent import REPLACEMENTS
from paddle_cluster.elastic.process.fresh_memory import FreshMemory
from paddle_cluster.elastic.process.sameness import list_stale
from paddle_cluster.elastic.sampler import ElasticSampler
from paddle_cluster.elastic.state import ArrayState, ObjectState, State


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    operations.init()
    yield
    operations.shutdown()


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the sampler believe in ranks."""

    def set_ranks(rank: int, size: int) -> None:
        monkeypatch.setattr(operations, "rank", lambda: rank)
        monkeypatch.setattr(operations, "size", lambda: size)

    return set_ranks


# ----- What a state cannot hold -----


class OwnSampler:
    """A sampler of the user."""


def test_a_sampler_in_an_object_state_is_refused_at_once_with_the_state_that_takes_it() -> None:
    """The first sync or commit of a long run failed instead, and said only that an ElasticSampler cannot be sent."""
    with pytest.raises(TypeError, match=r"^ObjectState\(sampler=\.\.\.\): .*; use ArrayState\(sampler=\.\.\.\)"):
        ObjectState(sampler=ElasticSampler(range(4)), epoch=0)


def test_a_sampler_is_refused_also_with_a_broadcast_that_sends_anything() -> None:
    """Every rank would take over rank 0's share of the samples."""
    with pytest.raises(TypeError, match="use ArrayState"):
        ObjectState(lambda value: value, sampler=ElasticSampler(range(4)))


@pytest.mark.parametrize("kind", [ObjectState, ArrayState])
def test_an_attribute_that_cannot_be_sent_is_refused_at_once_by_its_name(kind: type[ObjectState]) -> None:
    said = rf"^{kind.__name__}\(order=\.\.\.\): order\[1\] is a OwnSampler; .*hvd\.elastic\.State"
    with pytest.raises(TypeError, match=said):
        kind(epoch=0, order=[1, OwnSampler()])


@pytest.mark.parametrize("kind", [ObjectState, ArrayState])
def test_an_attribute_is_refused_where_it_gets_a_value_that_cannot_be_sent(kind: type[ObjectState]) -> None:
    """The next change of workers failed instead, in each worker in turn, until the job ended."""
    state = kind(epoch=0, best=None)
    state.other = state.best = {"error": 0.5}
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(best=\.\.\.\): best is a OwnSampler; "):
        state.best = OwnSampler()
    state.other = OwnSampler()  # no part of the state
    state.commit()
    state.epoch = 1
    state.restore()
    assert (state.epoch, state.best) == (0, {"error": 0.5})


def test_a_broadcast_of_the_users_own_may_send_anything() -> None:
    sampler = OwnSampler()
    state = ObjectState(lambda value: value, sampler=sampler)
    assert state.sampler is sampler
    state.sampler = None
    state.sampler = sampler


# ----- T1: states -----


def test_t1_restore_undoes_and_commit_keeps() -> None:
    state = ObjectState(batch=20, epoch=10)
    state.sync()
    state.batch, state.epoch = 21, 11
    state.restore()
    assert (state.batch, state.epoch) == (20, 10)
    state.batch, state.epoch = 21, 11
    state.commit()
    state.restore()
    assert (state.batch, state.epoch) == (21, 11)


def test_t1_sync_gives_the_attributes_of_rank_0() -> None:
    first = ObjectState(lambda value: value, lambda: 0, batch=20)
    sent: list[object] = []
    first._bcast_object = lambda value: sent.append(value) or value
    first.batch = 25
    first.sync()
    second = ObjectState(lambda value: sent[0], lambda: 1, batch=30)
    second.sync()
    assert second.batch == 25
    second.batch = 1
    second.restore()
    assert second.batch == 25


def test_the_collectives_of_a_sync_have_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning about a collective that waits for ranks called the sync of an ObjectState 'noname.0'."""
    submit, names = RankGroup.submit, []

    def record(group: RankGroup, *args: Any, **kwargs: Any) -> Any:
        handle = submit(group, *args, **kwargs)
        names.append(handle.request.name)
        return handle

    monkeypatch.setattr(RankGroup, "submit", record)
    state = ArrayState(weights=np.ones(2), moments={"m": np.ones(2)}, sampler=ElasticSampler(range(4)), epoch=0)
    state.sync()
    parts = ["moments.m", "weights.", "length", "content", "length", "content"]
    assert names == [f"state.sync.{part}" for part in parts]


@pytest.mark.parametrize(
    ("theirs", "sent"),
    [
        ({}, []),
        ({"weights": np.full(2, -0.0)}, ["weights."]),
        ({"moments": {"m": np.ones(2), "n": np.ones(3)}}, ["moments.m", "weights."]),
        (None, ["moments.m", "weights."]),
    ],
    ids=["the same bits", "other bits", "other names", "a newcomer"],
)
def test_a_sync_sends_the_arrays_that_differ(
    monkeypatch: pytest.MonkeyPatch, replicas: Any, theirs: dict[str, Any] | None, sent: list[str]
) -> None:
    """After the loss of a worker all arrays were sent to ranks that had them: 100 MB took 0.2 s on a busy machine."""
    rows: dict[str, Any] = {}
    names: list[str] = []
    is_own = False

    def gather(own: Any, name: str) -> Any:
        if not is_own:
            rows["theirs"] = own if theirs is not None else own[:0]
            return own
        return np.concatenate([own, rows["theirs"]])

    monkeypatch.setattr(operations, "allgather", gather)
    monkeypatch.setattr(operations, "broadcast_async_", lambda array, root, name: names.append(name))
    monkeypatch.setattr(operations, "synchronize", lambda handle: None)
    monkeypatch.setattr(operations, "broadcast_object", lambda value, name=None: value)
    monkeypatch.setattr(operations.WORKER, "has_state", True)
    replicas(0, 2)
    same = {"weights": np.zeros(2), "moments": {"m": np.ones(2)}}
    ArrayState(**{**copy.deepcopy(same), **(theirs or {})}).sync()
    names.clear()
    is_own = True
    ArrayState(**same).sync()
    assert names == [f"state.sync.{name}" for name in sent]


def test_a_sync_without_a_state_on_this_rank_sends_all(monkeypatch: pytest.MonkeyPatch, replicas: Any) -> None:
    monkeypatch.setattr(operations, "allgather", lambda own, name: own)
    replicas(0, 2)
    assert list_stale([np.ones(1), np.ones(2)], b"names", "state") == {0, 1}


def test_fresh_memory_is_aligned_and_nobody_elses() -> None:
    memory = FreshMemory()
    taken = [memory.take(nbytes) for nbytes in (0, 10, 70_001, 4 << 20, 3 << 20, 100_000) * 3]
    for number, one in enumerate(taken):
        one[:] = number
    assert all((one == number).all() for number, one in enumerate(taken))
    assert {one.ctypes.data % 16 for one in taken if len(one)} == {0}


def test_t1_arrays_are_restored_in_their_memory() -> None:
    weights, moments = np.arange(3.0), {"m": np.ones(2)}
    state = ArrayState(weights=weights, moments=moments, epoch=1)
    weights += 1
    moments["m"] += 1
    state.epoch = 2
    state.restore()
    np.testing.assert_array_equal(weights, [0, 1, 2])
    np.testing.assert_array_equal(moments["m"], [1, 1])
    assert state.epoch == 1
    weights += 1
    state.commit()
    weights += 1
    state.restore()
    np.testing.assert_array_equal(weights, [1, 2, 3])
    assert state.weights is weights


def test_a_list_that_changes_in_place_is_restored() -> None:
    """Horovod keeps references, so that such a change survives a restore."""
    state = ObjectState(seen=[1], counts={"a": 1})
    state.seen.append(2)
    state.counts["a"] = 2
    state.restore()
    assert (state.seen, state.counts) == ([1], {"a": 1})
    state.seen.append(3)
    state.restore()
    assert state.seen == [1]


# ----- Notices -----


def test_a_notice_interrupts_at_the_next_commit_once() -> None:
    state = ObjectState(batch=0)
    state.commit()
    state.on_hosts_updated(1.0, 1)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    state.commit()


def test_two_changes_within_a_second_are_both_seen() -> None:
    """N4: the original's time stamps are whole seconds."""
    state = ObjectState(batch=0)
    for timestamp in (100.25, 100.5):
        state.on_hosts_updated(timestamp, 2)
        with pytest.raises(HostsUpdatedInterrupt):
            state.check_host_updates()


def test_everybody_syncs_after_a_host_was_removed() -> None:
    """G3: a spare host may have taken its place, and its worker has no state."""
    state = ObjectState(batch=0)
    state.on_hosts_updated(1.0, 1)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is False


def test_every_rank_raises_where_rank_0_has_heard() -> None:
    state = ObjectState(lambda value: (0, 5.0, 1), lambda: 1, batch=0)
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()


def test_callbacks_run_in_order_after_the_reset() -> None:
    calls: list[str] = []

    class Told(ObjectState):
        def reset(self) -> None:
            calls.append("reset")

    state = Told(batch=0)
    state.register_reset_callbacks([lambda: calls.append("first"), lambda: calls.append("second")])
    state.on_reset()
    assert calls == ["reset", "first", "second"]


def test_notices_from_before_the_new_rank_are_dropped() -> None:
    state = ObjectState(batch=0)
    state.on_hosts_updated(1.0, 1)
    state.forget_host_updates()
    state.on_reset()
    state.commit()


def test_a_state_of_ones_own_says_what_it_keeps() -> None:
    for call in (State.save, State.restore, State.sync):
        with pytest.raises(NotImplementedError):
            call(State())


# ----- T2: the sampler -----


def test_t2_elastic_sampler(replicas: Any) -> None:
    replicas(0, 2)
    data = list(range(16))
    sampler = ElasticSampler(data, shuffle=False)
    state = ArrayState(sampler=sampler)
    assert list(sampler) == [0, 2, 4, 6, 8, 10, 12, 14]
    sampler.record_batch(0, 2)
    assert sampler.processed_num == 4
    state.commit()
    sampler.record_batch(1, 2)
    assert sampler.processed_num == 8
    state.restore()
    assert sampler.processed_num == 4
    replicas(2, 3)  # what is left is divided anew
    state.on_reset()
    assert list(sampler) == [6, 9, 12, 15]
    assert len(sampler) == 4
    sampler.set_epoch(1)
    assert sampler.processed_num == 0
    assert len(sampler) == 6


@pytest.mark.parametrize("left", [0, 1, 3, 4, 5])
def test_every_rank_has_as_many_samples_however_few_are_left(replicas: Any, left: int) -> None:
    """The original fails where more samples are repeated than are left."""
    seen: list[int] = []
    for rank in range(4):
        replicas(rank, 4)
        sampler = ElasticSampler(range(20))
        sampler.load_state_dict({"epoch": 3, "processed_num": 20 - left})
        assert len(list(sampler)) == len(sampler) == -(-left // 4)
        seen += sampler
    assert set(seen) == set(sampler.remaining_indices)


def test_no_sample_of_an_epoch_is_lost_or_counted_twice_when_the_ranks_change(replicas: Any) -> None:
    done: list[int] = []
    progress = {"epoch": 2, "processed_num": 0}
    for size, batches in ((4, 2), (3, 1), (9, 10)):
        samplers = []
        for rank in range(size):
            replicas(rank, size)
            samplers.append(ElasticSampler(range(60), seed=7))
            samplers[-1].load_state_dict(progress)
        for batch in range(batches):
            indices = [sampler.get_indices(batch, 3) for sampler in samplers]
            done += [one for some in indices for one in some]
            if any(indices):
                for sampler in samplers:
                    sampler.record_batch(batch, 3)
        progress = samplers[0].state_dict()
    assert sorted(done) == list(range(60))


def test_epochs_have_different_orders_and_all_ranks_the_same(replicas: Any) -> None:
    orders = []
    for epoch in (0, 1):
        sampler = ElasticSampler(range(50), seed=3)
        sampler.set_epoch(epoch)
        orders.append(sampler.remaining_indices)
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(50))


# ----- Callbacks -----


def test_callbacks_commit_and_count() -> None:
    state = ObjectState(batch=0, epoch=3)
    commits: list[int] = []
    state.commit = lambda: commits.append(state.batch)  # type: ignore[method-assign]
    commit, batches, epochs = (
        CommitStateCallback(state, 2),
        UpdateBatchStateCallback(state, 10),
        UpdateEpochStateCallback(state),
    )
    epochs.on_train_begin()
    for batch in range(5):
        batches.on_batch_end(batch)
        commit.on_batch_end(batch)
    assert commits == [2, 4]
    assert batches.steps_of_epoch() == 5
    batches.on_epoch_end(0)
    epochs.on_epoch_end(0)
    commit.on_epoch_end(0)
    assert (state.batch, state.epoch, commits) == (0, 4, [2, 4, 0])


# ----- Attributes that the program replaces -----


@pytest.mark.parametrize("value", [np.ones(5), np.ones(1, np.float32), np.arange(1)])
def test_restore_replaces_an_array_that_has_another_shape_or_type_since_the_commit(value: Any) -> None:
    """`restore` raised ValueError, or filled the new array by broadcasting, or cast the committed values."""
    state = ArrayState(w=np.full(1, 1 / 3))
    state.w = value
    state.restore()
    assert state.w.tolist() == [1 / 3] and state.w.dtype == np.float64


def test_a_commit_keeps_the_type_that_an_array_has_now() -> None:
    """The commit wrote float64 values into the float32 copy of the commit before, and lost half of their digits."""
    state = ArrayState(w=np.zeros(1, np.float32))
    state.w = np.full(1, 1 / 3)
    state.commit()
    state.w[:] = 7
    state.restore()
    assert state.w.tolist() == [1 / 3]


def test_restore_gives_a_dictionary_of_arrays_its_committed_keys() -> None:
    """`restore` raised KeyError for an array that was added since the commit, and lost an array that was deleted."""
    weights = {"a": np.zeros(2), "b": np.ones(1)}
    state = ArrayState(w=weights)
    weights["c"] = weights.pop("b")
    state.restore()
    assert state.w is weights and list(weights) == ["a", "b"] and weights["b"].tolist() == [1]


def test_a_sampler_that_replaces_another_one_is_committed_and_restored() -> None:
    """The state went on with the sampler of its first call, so that the place of the new sampler was never restored."""
    state = ArrayState(sampler=ElasticSampler(range(10)))
    state.sampler = ElasticSampler(range(10))
    state.sampler.record_batch(0, 4)
    state.commit()
    state.sampler.record_batch(1, 2)
    state.restore()
    assert state.sampler.processed_num == 4


@pytest.mark.parametrize("dtype", [complex, object, ">f4"])
def test_an_array_that_cannot_be_sent_is_refused_where_the_state_is_made(dtype: Any) -> None:
    """The first sync failed."""
    with pytest.raises(TypeError, match=r"ArrayState: optimizer\.m is an array of .*; the types that can be sent are"):
        ArrayState(optimizer={"m": np.zeros(2, dtype)})


def test_a_read_only_array_is_refused_where_the_state_is_made() -> None:
    """The first sync of a rank that is not rank 0 failed."""
    with pytest.raises(TypeError, match="ArrayState: w is a read-only array; give a copy of this array"):
        ArrayState(w=np.frombuffer(bytes(8)))


def test_an_attribute_with_the_name_of_a_method_is_refused() -> None:
    for state, value in ((ObjectState, 1), (ArrayState, np.zeros(2)), (ArrayState, 1)):
        with pytest.raises(TypeError, match=rf"^{state.__name__}\(save=\.\.\.\): save is a method of the state"):
            state(save=value)


def test_a_negative_number_of_processed_samples_is_refused() -> None:
    sampler = ElasticSampler(range(4))
    with pytest.raises(ValueError, match="processed_num is -1"):
        sampler.load_state_dict({"epoch": 1, "processed_num": -1})
    assert (sampler.epoch, sampler.processed_num) == (0, 0)


def test_names_that_only_horovod_has_are_answered_with_their_replacement() -> None:
    torch = r"with PyTorch, `import paddle\.elastic\.torch as hvd`; otherwise"
    cases = {
        "DistributedOptimizer": f"{torch} call hvd.allreduce with the gradients",
        "Compression": rf"{torch} delete the argument compression=\.\.\.; for smaller",
        "Adasum": rf"{torch} use op=hvd\.Average or op=hvd\.Sum",
        "DistributedGradientTape": "call hvd.allreduce with the gradients",
    }
    for name, said in cases.items():
        with pytest.raises(AttributeError, match=f"'{name}': {said}"):
            getattr(hvd, name)
    with pytest.raises(AttributeError, match=r"'TorchState': `import paddle\.elastic\.torch as hvd` has it"):
        hvd.elastic.TorchState  # noqa: B018
    assert not hasattr(hvd, "anything")
    present = set(REPLACEMENTS) & {*dir(hvd), *dir(hvd.elastic)}
    assert present == set()

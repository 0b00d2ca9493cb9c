"""`TorchState`: commit, restore and sync of models, optimizers and what else a script of torch keeps."""

from __future__ import annotations

import collections
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch_ranks import RANK, torch_ranks  # noqa: E402

from paddle.elastic.torch.elastic import ElasticSampler, TorchState, plain_data, sending  # noqa: E402
from paddle.elastic.torch.elastic.state import (  # noqa: E402
    StateHandler,
    get_handler_registry,
    set_handler_registry,
)
from paddle_base.runtime.errors import ConfigError, DataError  # noqa: E402
from paddle_cluster.elastic.errors import HorovodInternalError  # noqa: E402
from paddle_cluster.elastic.process import operations  # noqa: E402
from paddle_cluster.elastic.process.membership import WORKER  # noqa: E402

T = TypeVar("T")


def as_ranks(size: int, work: Callable[[int], T]) -> list[T]:
    """Calls a function on all ranks; a rank whose function fails leaves, so that the others end, too."""

    def run(rank: int) -> T:
        try:
            return work(rank)
        except BaseException:
            RANK.group.leave()
            raise

    with torch_ranks(size) as on_ranks, mock.patch.object(WORKER, "secret", "s3cret"):
        return on_ranks(run)


@pytest.fixture
def alone() -> Iterator[None]:
    operations.init()
    yield
    operations.shutdown()


def make_model(seed: int) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def train(model: Any, optimizer: Any, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(5, 3) + torch.randn(5, 3)).square().sum().backward()
        optimizer.step()


def bits(value: Any) -> Any:
    """Plain data that are equal if and only if all bits of a value are."""
    plan, tensors = plain_data.take_apart(value)
    return repr(plan), [sending._view(one.clone()).tobytes() for one in tensors]


def take(state: TorchState) -> Any:
    return copy.deepcopy([bits(dict(state.model.state_dict())), bits(state.optimizer.state_dict()), state.epoch])


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1),
    "plain": lambda params: torch.optim.SGD(params, lr=0.1),
    "adam": lambda params: torch.optim.AdamW(params, lr=torch.tensor(0.01), amsgrad=True),
    "rprop": lambda params: torch.optim.Rprop(params),
}


# ----- One rank -----


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_restore_gives_the_bits_of_the_last_commit(kind: str, alone: None) -> None:
    model = make_model(1)
    optimizer = OPTIMIZERS[kind](model.parameters())
    state = TorchState(model, optimizer, epoch=0, losses=[])
    first = take(state)
    train(model, optimizer)
    state.epoch = 1
    state.losses.append(torch.ones(2))
    state.restore()
    assert take(state) == first
    assert state.losses == []
    assert state.model is model and state.optimizer is optimizer
    train(model, optimizer)
    state.epoch = 2
    state.commit()
    second = take(state)
    for _ in range(2):  # a restore changes nothing of the commit
        train(model, optimizer)
        state.restore()
        assert take(state) == second


def test_a_commit_writes_into_the_memory_of_the_last_one(alone: None) -> None:
    """A commit took as long as a deepcopy, most of it for new memory."""
    model = make_model(1)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    train(model, optimizer)
    state = TorchState(model, optimizer, extra=torch.ones(3), array={"a": [torch.zeros(2)]})

    def places() -> list[int]:
        kept = [handler._saved for handler in state._handlers.values()]  # type: ignore[attr-defined]
        return [one.data_ptr() for one in plain_data.take_apart([kept, state._saved_state])[1]]

    before = places()
    train(model, optimizer)
    state.commit()
    assert places() == before
    assert len(set(before)) == len(before) > 30
    live = [*model.state_dict().values(), *plain_data.take_apart(optimizer.state_dict())[1]]
    assert not set(before) & {one.data_ptr() for one in live}


def test_an_assigned_model_replaces_the_old_one_and_is_saved(alone: None) -> None:
    state = TorchState(make_model(1), OPTIMIZERS["plain"](make_model(1).parameters()), epoch=0)
    other = make_model(2)
    expected = bits(dict(other.state_dict()))
    state.model = other
    with torch.no_grad():
        other[0].weight.zero_()
    state.restore()
    assert state.model is other
    assert bits(dict(other.state_dict())) == expected
    state.epoch = torch.optim.lr_scheduler.StepLR(state.optimizer, 3)  # data become what has a state_dict
    state.optimizer.step()
    state.epoch.step()
    state.restore()
    assert state.epoch.last_epoch == 0
    state.epoch = 7
    state.restore()
    assert state.epoch == 7


def test_a_state_without_a_model_is_one_of_data(alone: None) -> None:
    state = TorchState(epoch=1)
    assert (state.model, state.optimizer, state.epoch) == (None, None, 1)
    state.model = model = make_model(1)
    train(model, OPTIMIZERS["plain"](model.parameters()))
    state.restore()
    assert bits(dict(model.state_dict())) == bits(dict(make_model(1).state_dict()))


def test_a_loss_with_its_graph_is_saved_without_it(alone: None) -> None:
    state = TorchState(loss=None)
    state.loss = torch.ones(2, requires_grad=True) * 2
    state.commit()
    state.restore()
    assert state.loss.tolist() == [2, 2]
    assert not state.loss.requires_grad


class OwnThing:
    """Something of the user's that plain data cannot be."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnThing)


class OwnModel(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model with a state beside its tensors."""

    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, extra: Any) -> None:
        self.extra = extra


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"thing": OwnThing()}, r"^TorchState\(thing=\.\.\.\): thing is a OwnThing; .*unsafe_pickle=True [^=]*$"),
        ({"a": [{"b": OwnThing()}]}, r"^TorchState\(a=\.\.\.\): a\[0\]\['b'\] is a OwnThing; "),
        ({"w": torch.nn.Parameter(torch.ones(2))}, r"\(w=\.\.\.\): w is a Parameter; "),
        ({"w": lambda: torch.ones(2, device="meta")}, r"w is a tensor of torch.strided on meta, which cannot be sent"),
        ({"w": lambda: torch.ones(2, 2).to_sparse_csr()}, "w is a tensor of torch.sparse_csr on cpu, which"),
        ({"w": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}, "is a quantised.*unsafe_pickle"),
        ({"w": {plain_data.MARK: 1}}, "w has the key 'paddle.elastic.torch', which is reserved"),
        ({"model": OwnModel({1, 2})}, r"\(model=\.\.\.\): model\['_extra_state'\] is a set; .* can be sent$"),
        ({"save": 1}, "save is a method of the state"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*Sparse CSR", "ignore:.*quant")
def test_what_cannot_be_sent_is_refused_at_once_by_its_name(given: Any, said: str, alone: None) -> None:
    made = {
        name: value() if callable(value) and not isinstance(value, torch.nn.Module) else value
        for name, value in given.items()
    }
    with pytest.raises(TypeError, match=said):
        TorchState(epoch=0, **made)


def test_a_value_that_cannot_be_sent_is_refused_where_it_is_assigned(alone: None) -> None:
    """The next change of workers failed instead, in each worker in turn, until the job ended."""
    state = TorchState(make_model(0), best=None, unit=make_model(1))
    for name in ("best", "unit"):  # the second has a handler
        before = getattr(state, name)
        with pytest.raises(
            TypeError, match=rf"^TorchState\({name}=\.\.\.\): {name} is a OwnThing; .*unsafe_pickle=True"
        ):
            setattr(state, name, OwnThing())
        state.restore()
        assert getattr(state, name) is before
    state.best = {"loss": torch.ones(1)}
    state.commit()
    TorchState(unsafe_pickle=True, best=None).best = OwnThing()


def test_a_value_that_contains_itself_is_refused(alone: None) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError, match="value contains itself"):
        plain_data.take_apart(value, "value")


# ----- Several ranks -----


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_newcomer_gets_the_bits_of_rank_0_and_all_go_on_alike(kind: str) -> None:
    """Horovod takes a step to make the state of an optimizer, and weight decay changes the parameters in it."""

    def work(rank: int) -> Any:
        model = make_model(rank)
        optimizer = OPTIMIZERS[kind](model.parameters())
        if rank == 0:
            train(model, optimizer)
        state = TorchState(model, optimizer, epoch=5 * (1 - rank))
        before = take(state)
        state.sync()
        synced = take(state)
        assert rank or synced == before
        inputs = torch.linspace(-1, 1, 15).reshape(5, 3)
        for _ in range(2):
            optimizer.zero_grad()
            model(inputs).square().sum().backward()
            optimizer.step()
        went_on = take(state)
        state.restore()
        assert take(state) == synced
        return synced, went_on

    found = as_ranks(3, work)
    assert found[0] == found[1] == found[2]


VALUES = {
    "scalar": lambda: torch.tensor(3.5, dtype=torch.float64),
    "bfloat16": lambda: torch.tensor([[1.5, -2.25]], dtype=torch.bfloat16),
    "half": lambda: torch.tensor([0.1, 2], dtype=torch.float16),
    "bool": lambda: torch.tensor([True, False]),
    "complex": lambda: torch.tensor([1 + 2j, 3], dtype=torch.complex64),
    "empty": lambda: torch.ones(0, 3),
    "strided": lambda: torch.arange(12.0).reshape(3, 4).t()[::2],
    "conjugated": lambda: torch.tensor([1 + 2j, 3]).conj(),
    "wants gradient": lambda: torch.ones(2, requires_grad=True),
    "size": lambda: torch.Size([2, 3]),
    "type": lambda: torch.bfloat16,
    "device": lambda: torch.device("cpu", 0),
    "nested": lambda: {1: (torch.ones(2), [None, "x", b"y", {"z": np.arange(3), ("t",): True}]), "big": 1 << 90},
    "ordered": lambda: collections.OrderedDict([("b", 1), ("a", torch.zeros(1))]),
    "counter": lambda: collections.Counter({3: 2, 5: 1}),
}


def test_values_arrive_with_their_types_and_bits() -> None:
    made = {name: make() for name, make in VALUES.items()}

    def work(rank: int) -> Any:
        return sending.sync_value({name: make() for name, make in VALUES.items()} if rank == 0 else None, "value")

    _, found = as_ranks(2, work)
    for name, value in made.items():
        assert type(found[name]) is type(value), name
        assert bits(found[name]) == bits(value) or name == "conjugated", name
    assert torch.equal(found["conjugated"], made["conjugated"])
    assert found["nested"][1][1][3]["z"].tolist() == [0, 1, 2]


def test_a_sync_of_ranks_that_have_the_state_sends_the_tensors_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the loss of a worker the whole model and twice as much of its optimizer were sent to ranks with them."""
    broadcast, sent = operations.broadcast_async_, []

    def record(tensor: Any, root_rank: int, name: str) -> Any:
        sent.append(name)
        return broadcast(tensor, root_rank, name)

    model = make_model(1)
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    pairs = [copy.deepcopy((model, optimizer)) for _ in range(2)]
    pairs[1][0][0].bias.data[1] += 1
    pairs[1][1].state[pairs[1][0][2].weight]["exp_avg"].neg_()

    def work(rank: int) -> Any:
        model, optimizer = pairs[rank]
        state = TorchState(model, optimizer, epoch=rank)
        state.sync()
        return take(state)

    monkeypatch.setattr(operations, "broadcast_async_", record)
    monkeypatch.setattr(WORKER, "has_state", True)
    first, second = as_ranks(2, work)
    assert first == second
    kinds = [name.split(".")[2] for name in sent]
    assert {kind: kinds.count(kind) // 2 for kind in set(kinds)} == {"model": 1, "optimizer": 1}


def test_a_sparse_tensor_arrives_as_one() -> None:
    def work(rank: int) -> Any:
        indices, values = torch.tensor([[0, 2, 2], [1, 0, 0]]), torch.tensor([1.0, 2.0, 3.0])
        made = torch.sparse_coo_tensor(indices, values, (3, 2), check_invariants=True)
        empty = torch.sparse_coo_tensor(indices[:, :0], values[:0], (2, 2), check_invariants=True)
        given = [made, made.coalesce(), empty] if rank == 0 else None
        return sending.sync_value(given, "value")

    for first, second in zip(*as_ranks(2, work), strict=True):
        assert second.is_coalesced() == first.is_coalesced()
        assert second._nnz() == first._nnz()
        assert torch.equal(first.to_dense(), second.to_dense())


def test_schedulers_generators_and_samplers_keep_their_identity_and_take_rank_0s_state() -> None:
    def work(rank: int) -> Any:
        model = make_model(1)
        optimizer = OPTIMIZERS["plain"](model.parameters())
        schedules = torch.optim.lr_scheduler
        given = {
            "steps": schedules.MultiStepLR(optimizer, [2, 4]),
            "function": schedules.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1)),
            "plateau": schedules.ReduceLROnPlateau(optimizer),
            "cosine": schedules.CosineAnnealingWarmRestarts(optimizer, 3),
            "chain": schedules.SequentialLR(
                optimizer, [schedules.ConstantLR(optimizer), schedules.StepLR(optimizer, 2)], [2]
            ),
            "generator": torch.Generator().manual_seed(rank),
            "old": np.random.RandomState(rank),
            "new": np.random.default_rng(rank),
            "own": random.Random(rank),
            "sampler": ElasticSampler(range(20), seed=3),
        }
        state = TorchState(model, optimizer, **given)
        if rank == 0:
            optimizer.step()
            for name in ("steps", "function", "cosine", "chain"):
                given[name].step()
            given["plateau"].step(0.5)
            given["sampler"].record_batch(0, 2)
        state.sync()
        assert all(getattr(state, name) is value for name, value in given.items())

        def draw() -> Any:
            return [
                torch.rand(3, generator=given["generator"]).tolist(), given["old"].rand(3).tolist(),
                given["new"].random(3).tolist(), given["own"].random(),
            ]  # fmt: skip

        drawn = draw()
        state.restore()
        assert draw() == drawn
        kept = [bits(given[name].state_dict()) for name in ("steps", "function", "plateau", "cosine", "chain")]
        return list(given["sampler"]), drawn, kept, optimizer.param_groups[0]["lr"]

    first, second = as_ranks(2, work)
    assert first[1:] == second[1:]
    assert len(first[0]) == len(second[0]) == 8
    assert len({*first[0], *second[0]}) == 16


def test_unsafe_pickle_sends_what_is_no_plain_data() -> None:
    def work(rank: int) -> Any:
        state = TorchState(unsafe_pickle=True, thing=OwnThing() if rank == 0 else None, epoch=3 - rank)
        state.sync()
        return state.thing, state.epoch

    assert as_ranks(2, work) == [(OwnThing(), 3)] * 2


def test_ranks_that_differ_about_pickle_are_told() -> None:
    def work(rank: int) -> Any:
        state = TorchState(unsafe_pickle=rank == 0, thing=OwnThing() if rank == 0 else None)
        try:
            state.sync()
        except HorovodInternalError:
            return None

    with pytest.raises(ConfigError, match="rank 0 sends thing by pickle: pass unsafe_pickle=True to TorchState on all"):
        as_ranks(2, work)


def test_a_model_that_does_not_fit_is_refused_by_its_attribute() -> None:
    def work(rank: int) -> Any:
        state = TorchState(model=make_model(0) if rank == 0 else torch.nn.Linear(3, 4))
        try:
            state.sync()
        except HorovodInternalError:
            return None

    with pytest.raises(ConfigError, match=r"(?s)^model of this worker cannot take the state of rank 0's; .*0\.weight"):
        as_ranks(2, work)


def test_a_worker_with_another_torch_is_refused_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would compute other parameters than the rest."""
    check = sending._check_version
    monkeypatch.setattr(sending, "_check_version", lambda version, root: check("1.13", root))

    def work(rank: int) -> Any:
        return TorchState(make_model(0)).sync()

    with pytest.raises(ConfigError, match=r"this worker has torch \d+\.\d+, and rank 0 has torch 1\.13: .*; install"):
        as_ranks(2, work)


def test_a_rank_that_is_lost_during_a_sync_leaves_the_others_their_own_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new model beside an old optimizer would be what the next generation begins with."""

    def work(rank: int) -> Any:
        model = make_model(rank)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        train(model, optimizer)
        state = TorchState(model, optimizer, epoch=rank)
        before = take(state)
        if rank == 0:
            monkeypatch.setattr(state, "_sync_attributes", lambda: 1 / 0)  # after model and optimizer
        try:
            state.sync()
        except HorovodInternalError:
            assert take(state) != before
        state.restore()
        return take(state) == before

    results: list[bool] = []

    def note(rank: int) -> None:
        results.append(work(rank))

    with pytest.raises(ZeroDivisionError):
        as_ranks(2, note)
    assert results == [True]


PLANS: list[Any] = [
    {plain_data.MARK: None},
    {plain_data.MARK: []},
    {plain_data.MARK: ["code", "x"]},
    {plain_data.MARK: [["x"], "x"]},
    {plain_data.MARK: ["tensor", "float32", [1 << 40, 1 << 40], False]},
    {plain_data.MARK: ["tensor", "float32", [-1], False]},
    {plain_data.MARK: ["tensor", "float32", [1.5], False]},
    {plain_data.MARK: ["tensor", "nn", [1], False]},
    {plain_data.MARK: ["tensor", "float32", [1] * 99, False]},
    {plain_data.MARK: ["sparse", [2], True, False, ["tensor", "int64", [1, 1], False], ["sparse"]]},
    {plain_data.MARK: ["device", "x" * 99]},
    {plain_data.MARK: ["counter", {1: {plain_data.MARK: ["dtype", "object"]}}]},
    {plain_data.MARK: ["size", 3]},
    {plain_data.MARK: ["size", [2]], "more": 1},
]


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_no_state_is_refused(plan: Any) -> None:
    with pytest.raises(DataError, match="rank 3 sent a state"):
        plain_data.put_together(plan, sending.allocate_tensors(plan, 3), 3)


def test_a_handler_of_the_users_own_counts_and_the_registry_can_be_replaced(alone: None) -> None:
    class OwnHandler(StateHandler):
        def save(self) -> None: ...
        def restore(self) -> None: ...
        def sync(self) -> None:
            self.value = "synced"

    before = get_handler_registry()
    try:
        set_handler_registry([(OwnThing, OwnHandler), *before])
        state = TorchState(thing=OwnThing())
        state.sync()
        assert state._handlers["thing"].value == "synced"
    finally:
        set_handler_registry(before)

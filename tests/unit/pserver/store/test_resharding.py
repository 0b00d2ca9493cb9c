"""A state that is divided anew: every element keeps its bits, and training goes on as it would have."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import ConfigError, DamagedError
from pserver.optim import averaging, sgd
from pserver.optim.methods import METHODS
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.resharding import reshard
from pserver.store.shard_loader import make_dense_shard, make_sparse_shard
from pserver.store.snapshot import Part, put_back, take
from pserver.store.sparse_partition import SparseTable

WIDTH = 3


@dataclasses.dataclass
class Servers:
    """All services of one kind, and the steps of a job on them."""

    parameters: Sequence[ParameterSpec]
    optimization: Optimization
    shards: list[Any]

    @classmethod
    def make(cls, parameters: Sequence[ParameterSpec], optimization: Optimization, services: int) -> Servers:
        if parameters[0].sparse_update:
            shards = [make_sparse_shard(parameters, optimization, one, services) for one in range(services)]
            return cls(parameters, optimization, shards)
        ranges = partition.layout(parameters, services)
        return cls(parameters, optimization, [make_dense_shard(parameters, optimization, one) for one in ranges])

    @property
    def by_rows(self) -> bool:
        return bool(self.parameters[0].sparse_update)

    def step(self, random: np.random.Generator) -> None:
        samples = int(random.integers(1, 9))
        if not self.by_rows:
            whole = random.standard_normal(partition.count_elements(self.parameters)).astype(np.float32)
            for service, shard in enumerate(self.shards):
                shard.step(self.cut(whole, service), samples)
            return
        touched = []
        for spec in self.parameters:
            rows = np.flatnonzero(random.random(spec.size // WIDTH) < 0.5).astype(np.uint32)
            touched.append((rows, random.standard_normal((len(rows), WIDTH)).astype(np.float32)))
        for service, shard in enumerate(self.shards):
            gradients = []
            for spec, (rows, gradient) in zip(self.parameters, touched, strict=True):
                dealt = SparseTable.of(spec, len(self.shards)).deal(rows)
                part = slice(dealt.starts[service], dealt.starts[service + 1])
                gradients.append((dealt.local[part], gradient[dealt.order[part]]))
            shard.step_sparse([gradients], samples)

    def cut(self, whole: Array, service: int) -> Array:
        starts = np.cumsum([0, *(0 if one.is_static else one.size for one in self.parameters)])
        ranges = partition.layout(self.parameters, len(self.shards))[service]
        return np.concatenate([whole[:0], *(whole[starts[one] + a : starts[one] + b] for one, a, b in ranges)])

    def fill(self, random: np.random.Generator) -> None:
        """Begin with the same values, however many services there are."""
        for number, spec in enumerate(self.parameters):
            values = random.standard_normal(spec.size).astype(np.float32)
            for service, shard in enumerate(self.shards):
                self._view(shard.values, number, service)[...] = self._own(values, number, service)

    def _own(self, values: Array, number: int, service: int) -> Array:
        if self.by_rows:
            return values.reshape(-1, WIDTH)[SparseTable.of(self.parameters[number], len(self.shards)).part(service)]
        ranges = partition.layout(self.parameters, len(self.shards))[service]
        return np.concatenate([values[:0], *(values[a:b] for one, a, b in ranges if one == number)])

    def _view(self, values: Array, number: int, service: int) -> Array:
        if self.by_rows:
            group = self.shards[service].groups[number]
            return values[group.start : group.stop].reshape(-1, WIDTH)
        ranges = partition.layout(self.parameters, len(self.shards))[service]
        before = sum(b - a for one, a, b in ranges if one < number)
        return values[before : before + sum(b - a for one, a, b in ranges if one == number)]

    def finish_pass(self) -> None:
        for shard in self.shards:
            shard.finish_pass()

    def parts(self) -> list[Part]:
        """As a checkpoint has them."""
        found = [take(shard) for shard in self.shards]
        return [
            Part(json.loads(json.dumps(one.counters)), {name: array.copy() for name, array in one.arrays.items()})
            for one in found
        ]

    def divide(self, services: int, *, begins_pass: bool = False, parts: list[Part] | None = None) -> list[Part]:
        return reshard(
            self.parts() if parts is None else parts,
            self.parameters,
            self.optimization,
            services,
            by_rows=self.by_rows,
            origins=[],
            begins_pass=begins_pass,
        )

    def go_on(self, services: int, *, begins_pass: bool = False) -> Servers:
        found = Servers.make(self.parameters, self.optimization, services)
        for shard, part in zip(found.shards, self.divide(services, begins_pass=begins_pass), strict=True):
            put_back(shard, part)
        return found

    def values(self) -> list[bytes]:
        """The averages, or else the values, of every parameter: what a pass directory would have."""
        found = []
        averages = [shard.averages() for shard in self.shards]
        for number, spec in enumerate(self.parameters):
            if spec.is_static:
                continue
            if self.by_rows:
                whole = np.empty((spec.size // WIDTH, WIDTH), np.float32)
                for service, values in enumerate(averages):
                    whole[SparseTable.of(spec, len(self.shards)).part(service)] = self._view(values, number, service)
            else:
                whole = np.empty(spec.size, np.float32)
                for service, values in enumerate(averages):
                    at = 0
                    for one, a, b in partition.layout(self.parameters, len(self.shards))[service]:
                        if one == number:
                            whole[a:b] = values[at : at + b - a]
                        at += b - a
            found.append(whole.tobytes())
        return found


def bits(parts: Sequence[Part]) -> list[Any]:
    return [(part.counters, {name: array.tobytes() for name, array in part.arrays.items()}) for part in parts]


DECAYS: list[dict[str, Any]] = [
    {},
    {"decay_rate": 0.01},
    {"decay_rate_l1": 0.02},
    {"num_batches_regularization": 3, "decay_rate": 0.05},
]
SCHEDULES: list[dict[str, Any]] = [
    {},
    {"learning_rate_schedule": "poly", "learning_rate_decay_a": 0.1, "learning_rate_decay_b": 0.7},
    {"learning_rate_schedule": "pass_manual", "learning_rate_args": "0:1.0,1:0.5,2:0.25"},
]
AVERAGES: list[dict[str, Any]] = [{}, {}, {"average_window": 0.5, "max_average_window": 3}, {"average_window": 0.3}]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[ParameterSpec], Optimization, int]:
    """Parameters, an optimisation and the elements of a block."""
    by_rows = draw(st.booleans())
    method = draw(st.sampled_from(sorted(name for name in METHODS if name != "sparse_momentum" or not by_rows)))
    parameters = []
    for number in range(draw(st.integers(1, 4))):
        decay = draw(st.sampled_from(DECAYS))
        mu = draw(st.sampled_from([0.0, 0.9])) if not decay else 0.0
        size = draw(st.integers(1, 40))
        if by_rows:
            table = {"sparse_update": True, "row_width": WIDTH, "momentum": mu}
            parameters.append(ParameterSpec(f"table{number}", size * WIDTH, **table, **decay))
        else:
            is_static = bool(number) and draw(st.booleans())
            parameters.append(ParameterSpec(f"w{number}", size, is_static=is_static, momentum=mu, **decay))
    optimization = Optimization(method, 0.05, **draw(st.sampled_from(SCHEDULES)), **draw(st.sampled_from(AVERAGES)))
    return parameters, optimization, draw(st.integers(1, 8))


@settings(max_examples=60, deadline=None)
@given(jobs(), st.lists(st.integers(1, 5), min_size=2, max_size=2), st.integers(0, 2**31), st.integers(0, 3))
def test_training_goes_on_with_any_number_of_services_in_the_same_bits(
    job: tuple[list[ParameterSpec], Optimization, int], numbers: list[int], seed: int, steps: int
) -> None:
    """A run on N services that goes on with M and then with N again ends as one that never was divided."""
    parameters, optimization, block = job
    before, after = numbers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "block_size", lambda total, services: block)
        patch.setattr(averaging, "LEAST_WINDOW", 2)
        patch.setattr(averaging, "FOLD_PERIOD", 3)
        patch.setattr(sgd, "ALPHA_LIMIT", np.float32(1.3))
        ends, divided = [], []
        for path in ([before, before, before], [before, after, before]):
            random = np.random.default_rng(seed)
            servers = Servers.make(parameters, optimization, before)
            servers.fill(random)
            for services in path:
                if len(servers.shards) != services or servers.shards[0].steps:
                    servers = servers.go_on(services)
                for _ in range(steps):
                    servers.step(random)
                servers.finish_pass()
            ends.append(servers.values())
            divided.append(bits(servers.divide(before)))
        assert ends[0] == ends[1]
        assert divided[0] == divided[1]
        once = servers.divide(before)
        there_and_back = reshard(
            servers.divide(after),
            parameters,
            optimization,
            before,
            by_rows=servers.by_rows,
            origins=[],
            begins_pass=False,
        )
        assert bits(there_and_back) == bits(once)


ONE_ROW = ParameterSpec("table", WIDTH, sparse_update=True, row_width=WIDTH, decay_rate=0.01)


@settings(max_examples=60, deadline=None)
@given(jobs(), st.integers(1, 4), st.integers(1, 4), st.booleans())
@example(([ONE_ROW], Optimization("adagrad", 0.05), 1), 2, 1, False)
def test_inside_a_pass_all_is_brought_up_to_date_first(
    job: tuple[list[ParameterSpec], Optimization, int], before: int, after: int, begins_pass: bool
) -> None:
    parameters, optimization, block = job
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "block_size", lambda total, services: block)
        random = np.random.default_rng(1)
        servers = Servers.make(parameters, optimization, before)
        servers.fill(random)
        for _ in range(4):
            servers.step(random)
        following = servers.go_on(after, begins_pass=begins_pass)
        for shard in servers.shards:
            shard.catch_up()
        assert following.values() == servers.values()
        shard = following.shards[0]
        assert (shard.steps, shard.samples, shard.passes) == (4, servers.shards[0].samples, 0)
        assert shard.data.batch == (0 if begins_pass else 4)
        assert not begins_pass or all(group.decayed == 0 for one in following.shards for group in one.groups)


def test_lazy_rows_of_a_dense_parameter_are_made_up_for() -> None:
    """A table that lies whole on one service is lazy there; on several it is cut, and every element takes its steps."""
    parameters = [ParameterSpec("table", 1 << 15, row_width=64)]
    optimization = Optimization("rmsprop", 0.1)
    ends = []
    for path in ([1, 1], [1, 3], [3, 1]):
        random = np.random.default_rng(3)
        servers = Servers.make(parameters, optimization, path[0])
        for services in path:
            servers = servers.go_on(services) if servers.shards[0].steps else servers
            for _ in range(3):
                gradient = np.zeros((512, 64), np.float32)
                gradient[np.sort(random.choice(512, 3, replace=False))] = random.standard_normal((3, 64))
                for service, shard in enumerate(servers.shards):
                    rows = np.flatnonzero(gradient.any(axis=1))
                    shard.step(
                        servers.cut(gradient.reshape(-1), service), 1, {0: rows} if len(servers.shards) == 1 else {}
                    )
        ends.append(np.frombuffer(servers.values()[0], np.float32))
    assert servers.shards[0].groups[0].rows == 512
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ends[2], ends[0], rtol=1e-5, atol=1e-7)


def test_asynchronous_services_that_differ_by_a_step_go_on_from_the_last_one() -> None:
    parameters = [ParameterSpec("table", 30, sparse_update=True, row_width=WIDTH)]
    optimization = Optimization("adagrad", 0.1, algorithm="async_sgd")
    servers = Servers.make(parameters, optimization, 2)
    servers.step(np.random.default_rng(1))
    rows = np.zeros(1, np.uint32)
    servers.shards[1].step_sparse([[(rows, np.ones((1, WIDTH), np.float32))]], 5)
    following = servers.go_on(3)
    assert {shard.steps for shard in following.shards} == {2}
    assert {shard.samples for shard in following.shards} == {servers.shards[1].samples}
    assert following.values() == servers.values()
    stepped = sorted(clock for shard in servers.shards for clock in shard.data.row_clocks["step"].tolist())
    assert stepped == sorted(clock for shard in following.shards for clock in shard.data.row_clocks["step"].tolist())


def test_what_trainers_left_goes_to_the_service_where_each_looks_for_it() -> None:
    servers = Servers.make([ParameterSpec("w", 9)], Optimization("momentum"), 2)
    parts = servers.parts()
    for trainer in range(3):
        parts[trainer % 2].arrays[f"own.{trainer}"] = np.full(trainer + 1, trainer, np.uint8)
    found = reshard(
        parts, servers.parameters, servers.optimization, 3, by_rows=False, origins=[0, 1, 2, 0, 1], begins_pass=True
    )
    blobs = [{name: array.tolist() for name, array in one.arrays.items() if name.startswith("own.")} for one in found]
    assert blobs == [{"own.0": [0], "own.3": [0]}, {"own.1": [1, 1], "own.4": [1, 1]}, {"own.2": [2, 2, 2]}]
    assert not any(part.arrays for part in parts), "the old arrays would stay in memory"


def test_more_services_than_blocks_have_nothing_and_count_all_the_same() -> None:
    servers = Servers.make([ParameterSpec("w", 9)], Optimization("adam"), 1)
    servers.step(np.random.default_rng(1))
    found = servers.go_on(4)
    assert sorted(shard.size for shard in found.shards) == [0, 0, 0, 9] and {one.steps for one in found.shards} == {1}
    assert found.go_on(1).values() == servers.values()


@pytest.mark.parametrize(
    ("parameters", "optimization", "message"),
    [
        ([ParameterSpec("w", 40)], Optimization("momentum"), r"learning_method 'adam', but the config has 'momentum'"),
        ([ParameterSpec("w", 50)], Optimization("adam"), r"its elements: "),
        ([ParameterSpec("w", 40)], Optimization("adam", average_window=0.5), r"its arrays: "),
    ],
)
def test_a_state_of_something_else_is_refused(
    parameters: list[ParameterSpec], optimization: Optimization, message: str
) -> None:
    parts = Servers.make([ParameterSpec("w", 40)], Optimization("adam"), 2).parts()
    with pytest.raises(ConfigError, match=message):
        reshard(parts, parameters, optimization, 3, by_rows=False, origins=[], begins_pass=False)


@pytest.mark.parametrize("wrong", ["schedule", "segments", "averaging"])
def test_counters_that_cannot_be_are_named(wrong: str) -> None:
    servers = Servers.make([ParameterSpec("w", 40)], Optimization("adam", average_window=0.5), 2)
    parts = servers.parts()
    parts[1].counters[wrong] = None if wrong != "averaging" else {"updates": {}}
    with pytest.raises((DamagedError, ConfigError), match=r"cannot be divided anew|does not fit"):
        servers.divide(1, parts=parts)

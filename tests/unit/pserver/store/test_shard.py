"""The shard: one step over parameter groups with their own settings, whatever the chunks."""

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import BugError, ConfigError
from pserver.optim.methods import METHODS
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition, shard
from pserver.store.shard import DenseShard
from pserver.store.updates import shard_state

MOMENTUM = Optimization("momentum", 0.5)


def build(parameters, optimization=MOMENTUM, per_parameter=False, values=None):
    made = DenseShard(parameters, partition.whole(parameters), optimization, per_parameter=per_parameter)
    if values is not None:
        made.values[:] = values
    return made


def full(value, size=1):
    return np.full(size, value, np.float32)


def test_synchronous_check_value_of_the_spec():
    """N = 2, SGD 0.1, value 1.0, gradients 0.5 and 0.3 -> 0.92, ten samples (distributed.md 3.15)."""
    made = build([ParameterSpec("w", 1)], Optimization("momentum", 0.1), values=1.0)
    made.step([full(0.5), full(0.3)], 10)
    assert float(made.values[0]) == pytest.approx(0.92, rel=1e-6) and made.samples == 10


def test_every_parameter_has_its_own_rate_momentum_and_decay():
    parameters = [
        ParameterSpec("a", 2),
        ParameterSpec("b", 1, learning_rate=2.0),
        ParameterSpec("c", 1, momentum=0.5),
        ParameterSpec("d", 1, decay_rate=0.5),
    ]
    made = build(parameters, values=2.0)
    for _ in range(2):
        made.step(full(1, 5), 1)
    assert made.values.tolist() == [1, 1, 0, 0.75, 0.25]


def test_neighbours_with_equal_settings_are_one_stretch():
    parameters = [ParameterSpec("a", 2), ParameterSpec("b", 3), ParameterSpec("c", 1, momentum=0.5)]
    assert [(s.start, s.stop) for s in build(parameters).groups] == [(0, 5), (5, 6)]


@pytest.mark.parametrize("clip, expected", [(True, [0.0, 3.0, -1.0]), (False, [-49.0, 51.0, -1.0])])
def test_only_a_server_clips_element_by_element(clip, expected):
    """A local dense run of the legacy does not clip (trainer.md 4.2)."""
    parameters = [ParameterSpec("a", 2, gradient_clipping_threshold=2.0), ParameterSpec("b", 1)]
    made = build(parameters, per_parameter=clip, values=1.0)
    gradient = np.array([100, -100, 4], np.float32)
    made.step(gradient, 1)
    assert made.values.tolist() == [expected[0], expected[1] if clip is False else 2.0, expected[2]]
    assert gradient.tolist() == [100, -100, 4], "the gradient is the caller's"


def test_steps_go_on_in_the_array_that_takes_the_values_over():
    """The chunks of a group are recorded in the first step; another array for the values makes them anew."""
    made = build([ParameterSpec("a", 2)], Optimization("momentum", 1.0), values=3.0)
    before = made.values
    made.step(full(1, 2), 1)
    other = before.copy()
    made.work_on(other)
    made.step(full(1, 2), 1)
    assert (before.tolist(), other.tolist()) == ([2, 2], [1, 1]) and made.values is other


def test_the_pieces_of_a_step_go_on_in_the_array_that_takes_the_values_over():
    """A server's steps come piece by piece; the groups and chunks of a piece are recorded, too."""
    made = build([ParameterSpec("a", 2), ParameterSpec("b", 2, learning_rate=2.0)], Optimization("momentum", 1.0))

    def step():
        made.begin_step(1)
        made.step_range(0, [full(1, 3)])
        made.step_range(3, [full(1)])
        made.finish_step()

    step()
    before, other = made.values, made.values.copy()
    made.work_on(other)
    step()
    assert (before.tolist(), other.tolist()) == ([-1, -1, -2, -2], [-2, -2, -4, -4])


def test_the_sum_is_clipped_not_its_parts():
    made = build([ParameterSpec("a", 1, gradient_clipping_threshold=2.0)], per_parameter=True)
    made.step([full(3), full(-3)], 1)
    assert made.values[0] == 0


def test_a_schedule_counts_the_current_batch_and_adam_ignores_it():
    schedule = Optimization("momentum", 1.0, "manual", learning_rate_args="10:1,20:0.5")
    made = build([ParameterSpec("w", 1)], schedule)
    for _ in range(3):
        made.step(full(-1), 10)
    assert made.values[0] == 1 + 0.5 + 0.5
    plain, scheduled = (
        build([ParameterSpec("w", 1)], Optimization("adam", 1.0, kind, learning_rate_args="1:0"))
        for kind in ("constant", "manual")
    )
    for made in (plain, scheduled):
        made.step(full(1), 100)
    assert plain.values.tobytes() == scheduled.values.tobytes()


def test_a_schedule_by_pass_moves_when_the_pass_ends():
    made = build([ParameterSpec("w", 1)], Optimization("momentum", 1.0, "pass_manual", learning_rate_args="0:1,1:0.5"))
    made.step(full(-1), 1)
    made.finish_pass()
    made.step(full(-1), 1)
    assert made.values[0] == 1.5


@pytest.mark.parametrize("method, momentum", [("momentum", 0.0), ("momentum", 0.9), ("adam", 0.0)])
def test_chunks_do_not_change_a_bit(monkeypatch, method, momentum):
    parameters = [
        ParameterSpec("a", 700, momentum=momentum, gradient_clipping_threshold=1.0),
        ParameterSpec("b", 301, momentum=momentum, learning_rate=0.1),
    ]
    results = []
    for chunk in (1 << 20, 64):
        monkeypatch.setattr(shard_state, "CHUNK", chunk)
        monkeypatch.setattr(shard, "FLUSH_PERIOD", 2)
        random = np.random.default_rng(3)
        made = build(parameters, Optimization(method, 0.01), per_parameter=True, values=random.standard_normal(1001))
        for _ in range(4):
            made.step([random.standard_normal(1001).astype(np.float32) for _ in range(3)], 5)
        results.append(made.values.tobytes())
    assert results[0] == results[1]


def test_pieces_of_a_parameter_on_many_services_step_as_the_whole():
    parameters = [ParameterSpec("a", 5000, momentum=0.9), ParameterSpec("b", 1500, learning_rate=3.0)]
    random = np.random.default_rng(5)
    gradient, values = (random.standard_normal(6500).astype(np.float32) for _ in range(2))
    starts = [0, 5000]
    one = build(parameters, values=values)
    one.step(gradient, 1)
    for ranges in partition.layout(parameters, 3):
        index = np.concatenate([np.arange(starts[p] + a, starts[p] + b) for p, a, b in ranges] or [np.arange(0)])
        part = DenseShard(parameters, ranges, MOMENTUM, per_parameter=True)
        part.values[:] = values[index]
        part.step(gradient[index], 1)
        np.testing.assert_array_equal(part.values, one.values[index])


def test_state_too_small_to_be_normal_becomes_zero(monkeypatch):
    """As the legacy's flush-to-zero did; such numbers would stay for ever and cost many times their weight."""
    monkeypatch.setattr(shard, "FLUSH_PERIOD", 1)
    made = build([ParameterSpec("w", 2, momentum=0.5)])
    made.state["velocity"][:] = [1e-40, 1.0]
    made.step(full(0, 2), 1)
    assert made.state["velocity"].tolist() == [0.0, 0.5]


def test_a_service_without_elements_steps_too():
    made = DenseShard([ParameterSpec("w", 3)], [], MOMENTUM, per_parameter=True)
    made.step(np.empty(0, np.float32), 4)
    assert made.samples == 4 and made.values.size == 0


@pytest.mark.parametrize(
    "gradient", [np.zeros(2, np.float32), np.zeros(3, np.float64), []], ids=["size", "type", "none"]
)
def test_a_gradient_that_does_not_fit_is_a_bug(gradient):
    with pytest.raises(BugError, match="3 elements"):
        build([ParameterSpec("w", 3)]).step(gradient, 1)


@each("method", METHODS)
@each("touched", [{}, {0: np.arange(3)}])
def test_a_gradient_may_lie_anywhere_in_a_message(method, touched):
    """The bytes of a frame begin where the frame does, not where a float32 would."""
    gradient = np.arange(20_000, dtype=np.float32) % 7
    loose = np.frombuffer(b"x" + gradient.tobytes(), np.float32, offset=1)
    assert not loose.flags.aligned
    results = []
    for one in (gradient, loose):
        made = build([ParameterSpec("w", 20_000, row_width=10)], Optimization(method, 0.1))
        made.step(one, 1, touched)
        results.append(made.values.tobytes())
    assert results[0] == results[1]


def test_an_unknown_method_is_refused_when_the_shard_is_built():
    with pytest.raises(ConfigError, match="owlqn"):
        build([ParameterSpec("w", 3)], Optimization("owlqn"))

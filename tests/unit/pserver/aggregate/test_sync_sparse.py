"""Arrays of rows as they come from the wire: what is none of these tables is refused, and nothing has changed then."""

import numpy as np
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import BugError
from pserver.aggregate.async_sparse import SparseSteps
from pserver.aggregate.staleness import StalenessLimits
from pserver.aggregate.sync_sparse import SparseRounds
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store.sparse_shard import SparseShard
from pserver.wire import protocol
from pserver.wire.protocol import MessageFlag

TABLES = [
    ParameterSpec("a", 10 * 2, sparse_update=True, row_width=2),
    ParameterSpec("b", 6 * 3, sparse_update=True, row_width=3),
]


def shard(tables=TABLES, **settings):
    made = SparseShard(tables, Optimization("momentum", 1.0, **settings))
    made.values[:] = np.arange(made.size)
    return made


def array(*rows, counts=None, more=()):
    """The array that names rows of each table, with these numbers behind them."""
    head = [len(one) for one in rows] if counts is None else counts
    numbers = np.array([*head, *(row for one in rows for row in one)], np.uint32)
    return numbers.tobytes() + np.array(more, np.float32).tobytes()


def add(rounds, trainer, content, length=None, piece=0, samples=1, flags=MessageFlag.NONE):
    rounds.add(trainer, piece, content, samples, flags, len(content) if length is None else length)


def test_rows_are_looked_up_table_after_table():
    rounds = SparseRounds(shard())
    content = array([0, 9], [5])
    answer = rounds.look_up(0, 0, content, len(content))
    assert np.frombuffer(answer, np.float32).tolist() == [0, 1, 18, 19, 35, 36, 37]


def test_a_round_steps_when_every_trainer_has_pushed():
    rounds = SparseRounds(shard())
    add(rounds, 1, array([3], [], more=[1, 2]))
    assert rounds.is_open and rounds.has_all_of(1) and not rounds.has_all_of(0)
    assert rounds.step([0], [0, 1]) == [] and rounds.finish() is None
    add(rounds, 0, array([3], [0], more=[10, 20, 5, 5, 5]))
    assert rounds.step([0], [0, 1]) == [0] and rounds.finish() == MessageFlag.NONE
    assert not rounds.is_open
    assert rounds.shard.values.tolist()[6:8] == [6 - 11, 7 - 22] and rounds.shard.values.tolist()[20:23] == [15, 16, 17]


def test_a_push_that_asks_for_rows_gets_them_after_the_step():
    rounds = SparseRounds(shard())
    add(rounds, 0, array([3], [0], more=[10, 20, 5, 5, 5]) + array([2, 3], []), flags=MessageFlag.ROWS)
    add(rounds, 1, array([3], [], more=[1, 2]))
    assert rounds.step([0], [0, 1]) == [0]
    assert np.frombuffer(rounds.take_wanted(0), np.float32).tolist() == [4, 5, 6 - 11, 7 - 22]
    assert rounds.take_wanted(0) is None and rounds.take_wanted(1) is None


@each("room", [0, 12, 16, 32])
def test_rows_that_a_push_asks_for_are_written_into_shared_memory_that_has_room(room):
    """They were written into other memory first, and then copied."""
    rounds = SparseRounds(shard())
    shared = memoryview(bytearray(room))
    add(rounds, 0, array([3], [], more=[1, 2]) + array([2, 3], []), flags=MessageFlag.ROWS)
    rounds.step([0], [0])
    found = rounds.take_wanted(0, shared)
    assert np.frombuffer(found, np.float32).tolist() == [4, 5, 5, 5]
    assert (found.obj is shared.obj) == (room >= 16) and any(shared) == (room >= 16)


def test_no_rows_that_a_push_asks_for_need_no_memory():
    rounds = SparseRounds(shard())
    add(rounds, 0, array([3], [], more=[1, 2]) + array([], []), flags=MessageFlag.ROWS)
    rounds.step([0], [0])
    assert len(rounds.take_wanted(0)) == 0


def test_rows_that_a_push_asks_for_are_forgotten_with_its_gradients():
    rounds = SparseRounds(shard())
    add(rounds, 0, array([3], [], more=[1, 2]) + array([2], []), flags=MessageFlag.ROWS)
    rounds.drop(0)
    assert rounds.take_wanted(0) is None


def test_an_asynchronous_service_gives_no_rows_with_a_push():
    """The rows of another time than the next batch; the reason must reach the trainer."""
    steps = SparseSteps(SparseShard(TABLES, Optimization("momentum", 1.0), is_asynchronous=True), 2, StalenessLimits())
    with pytest.raises(BugError, match="trainer 0 asks for rows in a push"):
        add(steps, 0, array([3], [], more=[1, 2]) + array([2], []), flags=MessageFlag.ROWS)


def test_row_numbers_that_change_after_the_check_have_no_effect():
    """An array in shared memory still belongs to the trainer: a number beyond the table would write anywhere."""
    rounds = SparseRounds(shard())
    content = bytearray(array([3], [], more=[1, 2]))
    add(rounds, 0, content)
    content[8:12] = (2**31).to_bytes(4, "little")
    rounds.step([0], [0])
    assert rounds.shard.values.tolist()[6:8] == [6 - 1, 7 - 2]


def test_a_long_array_comes_in_pieces_in_any_order(monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 1 << 20)
    table = [ParameterSpec("wide", 3000 * 100, sparse_update=True, row_width=100)]
    rounds = SparseRounds(shard(table))
    content = memoryview(array(range(3000), more=np.ones(300_000)))
    pieces = protocol.count_pieces(len(content))
    assert pieces == 2
    for piece in reversed(range(pieces)):
        assert not rounds.has_all_of(0)
        add(rounds, 0, protocol.cut(content, piece), len(content), piece)
    rounds.step([0], [0])
    assert (rounds.shard.values == np.arange(300_000, dtype=np.float32) - 1).all()


BAD = {
    "no counts": b"\1\0\0\0",
    "more rows than there are numbers": array([1], [], counts=[5, 0]),
    "counts whose sum goes around": array([1], [], counts=[2**32 - 1, 2**32 - 1]),
    "a row beyond the table": array([10], [], more=[1, 1]),
    "rows that fall": array([3, 2], [], more=[1] * 4),
    "a row twice": array([3, 3], [], more=[1] * 4),
    "too few gradients": array([3], [], more=[1]),
    "too many gradients": array([3], [], more=[1, 1, 1]),
    "half a number": array([3], [], more=[1, 1]) + b"\0",
}


@each("content", BAD.values(), ids=BAD.keys())
def test_what_is_no_array_of_rows_is_refused(content):
    rounds = SparseRounds(shard())
    before = rounds.shard.values.tobytes()
    with pytest.raises(BugError):
        add(rounds, 0, content)
    with pytest.raises(BugError):
        add(rounds, 1, array([3], [], more=[1, 1]) + content, flags=MessageFlag.ROWS)
    with pytest.raises(BugError):
        add(rounds, 2, content + array([3], []), flags=MessageFlag.ROWS)
    assert not any(rounds.has_all_of(trainer) for trainer in range(3)) and rounds.shard.values.tobytes() == before


@pytest.mark.parametrize("length", [-1, 4 * (2 + 16 + 20 + 18) + 4, 2**62])
def test_no_memory_is_taken_for_more_rows_than_there_are(length):
    rounds = SparseRounds(shard())
    with pytest.raises(BugError, match="announces rows of"):
        add(rounds, 0, b"", length)
    with pytest.raises(BugError, match="announces rows of"):
        rounds.look_up(0, 0, b"", length)


def test_a_piece_that_is_none_of_the_announced_ones_is_refused(monkeypatch):
    monkeypatch.setattr(protocol, "PIECE_BYTES", 1 << 20)
    table = [ParameterSpec("wide", 3000 * 100, sparse_update=True, row_width=100)]
    rounds = SparseRounds(shard(table))
    content = memoryview(array(range(3000), more=np.ones(300_000)))
    add(rounds, 0, protocol.cut(content, 0), len(content), 0)
    for piece, part in ((0, protocol.cut(content, 0)), (1, content[:8]), (2, b""), (-1, b"")):
        with pytest.raises(BugError, match="piece"):
            add(rounds, 0, part, len(content), piece)


def test_gradients_come_once_a_round():
    rounds = SparseRounds(shard())
    add(rounds, 0, array([3], [], more=[1, 2]))
    with pytest.raises(BugError, match="trainer 0 pushes the gradients of rows twice"):
        add(rounds, 0, array([3], [], more=[1, 2]))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=12), st.binary(max_size=40), st.booleans(), st.booleans())
def test_no_bytes_whatever_harm_the_tables(numbers, tail, asks, at_once):
    rounds = SparseRounds(shard())
    before = rounds.shard.values.tobytes()
    content = np.array(numbers, np.uint32).tobytes() + tail
    try:
        if asks:
            rounds.look_up(0, 0, content, len(content))
        else:
            add(rounds, 0, content, flags=MessageFlag.ROWS if at_once else MessageFlag.NONE)
    except BugError:
        assert not rounds.has_all_of(0)
    assert rounds.shard.values.tobytes() == before


def test_asynchronous_gradients_are_steps_at_once_and_the_old_ones_are_discarded():
    steps = SparseSteps(SparseShard(TABLES, Optimization("momentum", 1.0), is_asynchronous=True), 2, StalenessLimits())
    assert steps.staleness.threshold == 3
    for trainer in (0, 0, 0, 1):  # that of trainer 1 is the fourth since it began
        add(steps, trainer, array([trainer], [], more=[1, 1]), samples=5)
        assert steps.apply(trainer) is not None
    assert steps.shard.values.tolist()[:4] == [-3, -3, 0, 0]
    assert (steps.shard.samples, steps.shard.steps) == (15, 3)
    assert steps.apply(1) is None

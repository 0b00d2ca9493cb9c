"""Where the rows of a table lie."""

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import BugError, ConfigError
from pserver.optim.settings import ParameterSpec
from pserver.store import sparse_partition
from pserver.store.partition import hash_name, place_block
from pserver.store.sparse_partition import SparseTable, local_specs


def spec(name="emb", rows=50, width=4):
    return ParameterSpec(name, rows * width, row_width=width, sparse_update=True)


# the hash of "emb" is below 2^63, that of "___embedding_0__.w0" is above: there the rows run backwards
@each("name", ["emb", "___embedding_0__.w0", "word_table"])
@each("services", [1, 2, 3, 6])
def test_every_row_lies_where_the_legacy_put_it(name, services):
    made = SparseTable.of(spec(name), services)
    where = [place_block(row, hash_name(name), services) for row in range(50)]
    dealt = made.deal(np.arange(50, dtype=np.uint32))
    for service in range(services):
        mine = [row for row in range(50) if where[row] == service]
        part = slice(dealt.starts[service], dealt.starts[service + 1])
        assert dealt.order[part].tolist() == mine
        assert dealt.local[part].tolist() == list(range(len(mine)))
        assert list(range(50)[made.part(service)]) == mine
        assert made.count(service) == len(mine)


def test_the_names_of_the_test_above_run_both_ways():
    assert {hash_name(name) >> 63 for name in ("emb", "___embedding_0__.w0", "word_table")} == {0, 1}


def test_some_rows_keep_their_order_and_their_local_numbers():
    made = SparseTable.of(spec(), 3)
    ids = np.array([2, 3, 5, 40, 44, 49], np.uint32)
    dealt = made.deal(ids)
    for service in range(3):
        rows = np.arange(50)[made.part(service)]
        part = slice(dealt.starts[service], dealt.starts[service + 1])
        assert rows[dealt.local[part]].tolist() == ids[dealt.order[part]].tolist()


def test_a_table_with_fewer_rows_than_services_leaves_some_empty():
    parts = [local_specs([spec(rows=2)], 5, service)[0].size for service in range(5)]
    assert sorted(parts) == [0, 0, 0, 4, 4]


@pytest.mark.parametrize("start", [(1 << 63) - 3, (1 << 64) - 3])
def test_a_hash_whose_sum_changes_its_sign_on_the_way_still_gives_every_row_one_place(monkeypatch, start):
    monkeypatch.setattr(sparse_partition, "hash_name", lambda name: start)
    made = SparseTable.of(spec(), 3)
    taken = np.concatenate([np.arange(50)[made.part(service)] for service in range(3)])
    assert sorted(taken) == list(range(50))


def test_a_table_with_more_rows_than_can_be_numbered_is_refused():
    with pytest.raises(ConfigError, match="emb has 4294967297 rows"):
        SparseTable.of(ParameterSpec("emb", (1 << 32) + 1, row_width=1), 1)


def test_rows_that_do_not_fill_a_table_are_refused():
    with pytest.raises(BugError, match="emb"):
        SparseTable.of(ParameterSpec("emb", 10, row_width=4), 1)

"""The seals of pickles among several ranks: a pickle is read only in the operation for which it was signed.

The nonces of all operations are equal here, because nobody signs them: a program that can change packets can make them
equal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from collective_ranks import groups, on_all

from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.objects import dump_object
from paddle_cluster.elastic.process.operations import PickleSeal

PICKLE = dump_object([1], unsafe_pickle=True)


class RankMembership(threading.local):
    """The membership of the rank whose thread asks."""

    secret = "s3cret"
    group: RankGroup


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RankMembership]:
    made = RankMembership()
    monkeypatch.setattr(operations, "WORKER", made)
    monkeypatch.setattr(operations.secrets, "token_bytes", bytes)
    yield made


def test_a_pickle_is_not_read_in_another_operation_or_job(worker: RankMembership) -> None:
    """A program without the secret made a rank unpickle in one broadcast what its root had signed for the next one."""

    def work(group: RankGroup) -> list[PickleSeal]:
        worker.group = group
        gather, root_0, root_1 = "gather", "broadcast from 0", "broadcast from 1"
        return [
            *(PickleSeal.agree(*one) for one in ((root_0, None), (root_0, None), (root_1, None), (gather, None))),
            *(PickleSeal.agree(root_0, name) for name in ("a", "a", "b")),
        ]

    seals: list[PickleSeal] = []
    for _ in ("a job", "another job"):
        with groups(2) as made:
            first, second = on_all(made, work)
        assert first == second
        seals += first
    assert len({seal.nonces for seal in seals}) == 1
    for signer in seals:
        data = signer.sign(0, PICKLE) + PICKLE
        for reader in seals:
            if reader is signer:
                assert operations._load(data, 0, reader) == [1]
            else:
                with pytest.raises(DataError, match="not the one that it has signed"):
                    operations._load(data, 0, reader)

"""The seals of pickles among several ranks: a pickle is read only in the operation for which it was signed.

The nonces of all operations are equal here, because nobody signs them: a program that can change packets can make them
equal.
"""

from __future__ import annotations

import secrets

import pytest
from collective_ranks import groups, on_all

from paddle_base.runtime.errors import DataError
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.process.objects import dump_object
from paddle_cluster.elastic.process.seals import PickleSeal, load_sealed

SECRET = "s3cret"
PICKLE = dump_object([1], unsafe_pickle=True)


def test_a_pickle_is_not_read_in_another_operation_or_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without the secret made a rank unpickle in one broadcast what its root had signed for the next one."""

    monkeypatch.setattr(secrets, "token_bytes", bytes)

    def work(group: RankGroup) -> list[PickleSeal]:
        gather, root_0, root_1 = "gather", "broadcast from 0", "broadcast from 1"
        return [
            *(
                PickleSeal.agree(*one, group, SECRET)
                for one in ((root_0, None), (root_0, None), (root_1, None), (gather, None))
            ),
            *(PickleSeal.agree(root_0, name, group, SECRET) for name in ("a", "a", "b")),
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
                assert load_sealed(data, 0, reader) == [1]
            else:
                with pytest.raises(DataError, match="not the one that it has signed"):
                    load_sealed(data, 0, reader)

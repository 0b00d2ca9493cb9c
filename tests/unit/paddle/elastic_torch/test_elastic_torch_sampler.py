"""`hvd.elastic.ElasticSampler` as a sampler of a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch.utils.data import DataLoader, Sampler  # noqa: E402

from paddle.elastic.torch.elastic import ElasticSampler, TorchState, sampler  # noqa: E402
from paddle_cluster.elastic import sampler as samplers  # noqa: E402
from paddle_cluster.elastic.process import operations  # noqa: E402
from paddle_cluster.elastic.process.membership import WORKER  # noqa: E402


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    operations.init()
    yield
    operations.shutdown()


class Numbers:
    """A dataset, each of whose samples says which rank its process takes itself for."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> tuple[int, int, bool]:
        return number, operations.rank(), WORKER.is_member


def test_it_is_a_sampler_of_torch_with_the_account_of_the_other_one() -> None:
    mine, other = ElasticSampler(range(20), seed=3), samplers.ElasticSampler(range(20), seed=3)
    assert isinstance(mine, Sampler) and isinstance(mine, samplers.ElasticSampler)
    for one in (mine, other):
        one.record_batch(0, 4)
    assert list(mine) == list(other)
    assert (len(mine), mine.state_dict()) == (len(other), other.state_dict())
    with pytest.raises(ValueError, match="processed_num is -1"):
        mine.load_state_dict({"epoch": 0, "processed_num": -1})


def test_a_dataloader_with_a_process_reads_each_sample_once_and_continues_where_the_state_was() -> None:
    """The process reads ahead; only what `record_batch` has counted is done."""
    it = TorchState(sampler=ElasticSampler(Numbers()), epoch=0)
    begun = iter(DataLoader(Numbers(), 2, sampler=it.sampler, num_workers=1, prefetch_factor=4))
    first, ranks, _ = next(begun)
    assert ranks.tolist() == [0, 0]  # a script may ask for its rank in a dataset
    it.sampler.record_batch(0, 2)
    it.commit()
    next(begun)
    it.sampler.record_batch(1, 2)
    del begun
    it.restore()
    rest = [number for batch, _, _ in DataLoader(Numbers(), 2, sampler=it.sampler) for number in batch.tolist()]
    assert sorted(first.tolist() + rest) == list(range(10))


def test_the_place_of_a_rank_can_be_replaced_as_horovods_own_test_does() -> None:
    with mock.patch.object(sampler, "rank", lambda: 1), mock.patch.object(sampler, "size", lambda: 3):
        some = ElasticSampler(range(9), shuffle=False)
    assert list(some) == [1, 4, 7]

"""The samples of an epoch, divided among the ranks, for a DataLoader of torch."""

from __future__ import annotations

from torch.utils.data import Sampler

from paddle_cluster.elastic import sampler
from paddle_cluster.elastic.process.operations import rank, size


class ElasticSampler(sampler.ElasticSampler, Sampler):  # type: ignore[misc, type-arg]
    """Divides the unprocessed samples of an epoch among the ranks, as a sampler of a `torch.utils.data.DataLoader`.

        loader = DataLoader(dataset, batch_size, sampler=sampler)
        state = TorchState(model, optimizer, sampler=sampler)
        for number, batch in enumerate(loader):
            ...
            state.sampler.record_batch(number, batch_size)
            state.commit()
        state.sampler.set_epoch(epoch + 1)

    The account is that of `paddle_cluster.elastic.sampler.ElasticSampler`. The processes of the DataLoader only read
    the dataset; the sampler stays in the worker.
    """

    def _find_place(self) -> tuple[int, int]:
        return rank(), size()  # Horovod's own test replaces these names of the module

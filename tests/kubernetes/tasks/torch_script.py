"""The worker of a job of k8s/allreduce in a test: examples/allreduce/torch/digits_elastic.py, which notes its commits.

python torch_script.py EPOCHS    PYTHONPATH has the folders of the example and of allreduce_notes.py

The model, the loop and the state are those of the example. A step trains the same number of samples with any number of
workers, as the checks of tests/chaos/allreduce/verdict.py expect.
"""

import digits
import digits_elastic as example
import torch
from allreduce_notes import BATCH, SAMPLES, Notes, pace

import paddle.elastic.torch as hvd


class NotedSampler(hvd.elastic.ElasticSampler):
    """A sampler that knows which samples it has given since the last commit."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.taken = []

    def __iter__(self):
        self.taken = []
        for sample in super().__iter__():
            self.taken.append(sample)
            yield sample


class NotedState(hvd.elastic.TorchState):
    """A state that notes its commits, and counts them as steps; at the end of an epoch, one has no samples."""

    def __init__(self, *parts, **more):
        super().__init__(*parts, step=0, batch=[], **more)

    def sync(self):
        """Sync, and divide a step among the workers that are there now."""
        super().sync()
        example.BATCH = BATCH // hvd.size()

    def commit(self):
        """Commit a step with the samples of all workers."""
        pace()
        taken, self.sampler.taken = self.sampler.taken, []
        self.batch = sorted(hvd.allgather(torch.tensor(taken, dtype=torch.int64), name="taken").tolist())
        self.step += 1
        super().commit()

    def save(self):
        """Save the state and write the line; nothing can happen between these two actions."""
        super().save()
        values = [*self.model.state_dict().values()]
        values += [slot["momentum_buffer"] for slot in self.optimizer.state_dict()["state"].values()]
        notes.commit(self, [value.numpy() for value in values])


notes = Notes()
digits.SAMPLES = SAMPLES
hvd.elastic.TorchState, hvd.elastic.ElasticSampler = NotedState, NotedSampler
example.main()

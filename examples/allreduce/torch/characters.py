"""A PyTorch model that predicts the next character of a text; other processes of the DataLoader prepare the samples.

paddle elastic run -np 2 python characters.py [EPOCHS]
"""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import paddle.elastic.torch as hvd

TEXT = "every worker reads its own part of the text, and all workers have the same model after each step. " * 20
CHARACTERS = sorted(set(TEXT))
LENGTH, WIDTH, BATCH = 24, 32, 16


class Windows(Dataset):
    """The windows of the text: LENGTH characters, and the character that follows each of them."""

    def __init__(self):
        self.codes = torch.tensor([CHARACTERS.index(one) for one in TEXT])

    def __len__(self):
        return len(self.codes) - LENGTH

    def __getitem__(self, begin):
        return self.codes[begin : begin + LENGTH], self.codes[begin + 1 : begin + LENGTH + 1]


class Model(torch.nn.Module):
    """Character codes -> scores of the next character. Shapes: (batch, LENGTH) -> (batch, LENGTH, characters)."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(len(CHARACTERS), WIDTH, sparse=True)
        self.memory = torch.nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.scores = torch.nn.Linear(WIDTH, len(CHARACTERS))

    def forward(self, codes):
        return self.scores(self.memory(self.embedding(codes))[0])


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    hvd.init()
    torch.set_num_threads(1)
    data = Windows()
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=1)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        losses = []
        for codes, following in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(codes).flatten(0, 1), following.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        loss = hvd.allreduce(torch.stack(losses[-10:]).mean(), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch}: {hvd.size()} workers, loss {loss:.2f}", flush=True)


if __name__ == "__main__":
    main()

"""bench/network_configs/vgg.py in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Vgg(nn.Module):
    """Four groups of convolutions with batch normalisation, and two fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for filters, rates in ((64, [0.3, 0]), (128, [0.4, 0]), (256, [0.4, 0.4, 0]), (512, [0.4, 0.4, 0])):
            for rate in rates:
                layers += [nn.Conv2d(before, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()]
                layers += [nn.Dropout(rate)] if rate else []
                before = filters
            layers.append(nn.MaxPool2d(2))
        layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(512, 512), nn.Dropout(0.5)]
        self.layers = nn.Sequential(*layers, nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 10))
        self.to(memory_format=torch.channels_last)

    def forward(self, slots: dict[str, Tensor]) -> Tensor:
        """Returns the sum of the costs of all images."""
        images = slots["image"].view(-1, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        scores = self.layers(images)
        return functional.cross_entropy(scores, slots["label"], reduction="sum")

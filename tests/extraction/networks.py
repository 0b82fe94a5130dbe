"""Small models and data sets, made alike in every process."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset


class Network(nn.Module):
    """A convolution, an operation that is no module, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3)) + 1)


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network().eval()


def images(count: int = 20, seed: int = 1) -> Tensor:
    return torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(seed))


class Slow(Dataset[Tensor]):
    """Takes its time, so that a process can be killed at any point of it."""

    def __init__(self, count: int, seconds: float) -> None:
        self.values, self.seconds = images(count), seconds

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> Any:
        time.sleep(self.seconds)
        return self.values[row]


class Fragile(nn.Module):
    """Raises when a sample has a value that is not a number."""

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        if x.isnan().any():
            raise ValueError("a number was expected")
        return x + 1


class Tokens(nn.Module):
    """Keeps the sequence, so shapes follow its length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return torch.tanh(self.mix(self.embed(input_ids)))


class Crowd(nn.Module):
    """Values of which the first dimension is not that of the samples."""

    def forward(self, x: Tensor) -> Tensor:
        turned = x.t() + 1
        return turned.sum(0) * x.mean()

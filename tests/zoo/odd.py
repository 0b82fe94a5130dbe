"""Models that must not pass, for the test of the zoo itself."""

from __future__ import annotations

import torch
from tests.zoo.build import Built
from torch import Tensor, nn


class Hidden(nn.Module):
    """Computes out of the tracer's sight."""

    def forward(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return (x * 2).relu()


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("not on this machine")


class Counting(nn.Module):
    """Gives another result each time."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += 1
        return x * Counting.calls


def build(name: str) -> Built:
    model = {"hidden": Hidden, "raises": Raises, "counting": Counting}[name]()
    return Built(model, [torch.ones(3)])

"""The models of torchvision in train mode: dropout, statistics of the batch, auxiliary outputs, losses of detection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tests.zoo import vision
from tests.zoo.build import Built, first_that_runs


def names() -> list[str]:
    """All but the quantized ones, which can't be trained."""
    return [name for name in vision.names() if not name.startswith("quantized_")]


def build(name: str) -> Built:
    return first_that_runs(vision.model(name).train(), _batches(name))


def _batches(name: str) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Two of each: there are no statistics of one."""
    if name.startswith(vision.DETECTION):
        yield [[torch.rand(3, 96, 112) for _ in range(2)], [_found(name) for _ in range(2)]], {}
    elif name.startswith("raft"):
        yield [torch.rand(2, 3, 128, 128), torch.rand(2, 3, 128, 128)], {"num_flow_updates": 2}
    else:
        for size in (28,) if name == "vit_h_14" else (32, 64, 96, 224, 299):
            yield [torch.rand(2, 3, size, size)], {}
        for frames, size in ((8, 64), (16, 64), (16, 224)):
            yield [torch.rand(2, 3, frames, size, size)], {}


def _found(name: str) -> dict[str, torch.Tensor]:
    """One thing in a picture: where it is, what it is, and what else the model is trained to find."""
    thing = {"boxes": torch.tensor([[10.0, 12.0, 70.0, 60.0]]), "labels": torch.tensor([1])}
    if name.startswith("mask"):
        thing["masks"] = torch.ones(1, 96, 112, dtype=torch.uint8)
    if name.startswith("keypoint"):
        thing["keypoints"] = torch.tensor([[[30.0, 30.0, 1.0]] * 17])
    return thing

"""How long it takes to find out what was written to a tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture.tensor_memory import address_of, layout_of, overlap
from torchlens.capture.writes import Writes


class Recurrence(nn.Module):
    """Fills a tensor step by step, each from the one before."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros(self.steps) + x
        for t in range(1, self.steps):
            out[t] += out[t - 1] + 1
        return out


class Counted(list[Any]):
    """Counts how often a member is looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        Counted.looks += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Any:
        Counted.looks += len(self)
        return super().__iter__()


def looks_at_writes(steps: int, monkeypatch: pytest.MonkeyPatch) -> int:
    add = Writes.add

    def counting(self: Writes, tensor: Tensor, *args: Any) -> None:
        address = address_of(tensor)
        assert address is not None
        self.by_storage.setdefault(address, Counted())
        add(self, tensor, *args)

    Counted.looks = 0
    with monkeypatch.context() as patch:
        patch.setattr(Writes, "add", counting)
        log = tl.log_forward_pass(Recurrence(steps), torch.rand(1))
    assert torch.equal(log["output"].activation, Recurrence(steps)(log["input"].activation))
    return Counted.looks


def test_the_writes_to_a_tensor_are_not_looked_at_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = looks_at_writes(100, monkeypatch), looks_at_writes(400, monkeypatch)
    assert few > 100  # it was counted
    assert many < 6 * few  # four times as many, each found by bisection


MEMORY = torch.arange(60.0)
PARTS = {
    "all": MEMORY,
    "begin": MEMORY[:7],
    "end": MEMORY[50:],
    "one": MEMORY[13],
    "none": MEMORY[5:5],
    "even": MEMORY[::2],
    "odd": MEMORY[1::2],
    "matrix": MEMORY.view(6, 10),
    "column": MEMORY.view(6, 10)[:, 3],
    "columns": MEMORY.view(6, 10)[:, 4:6],
    "transposed": MEMORY.view(6, 10).T,
    "repeated": MEMORY[20].expand(4),
    "sparse": MEMORY.as_strided((2, 2, 2), (1, 1, 5), 30),
    "middle": MEMORY[33:35],
}


@pytest.mark.parametrize("one", PARTS)
@pytest.mark.parametrize("other", PARTS)
def test_overlaps(one: str, other: str) -> None:
    places = [set(PARTS[name].long().flatten().tolist()) for name in (one, other)]
    assert overlap(layout_of(PARTS[one]), layout_of(PARTS[other])) == bool(places[0] & places[1])


class Gathered(nn.Module):
    """As FSDP gathers parameters: a write that torch is told not to count, then another name for the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = [torch.zeros(12)]
        self.weights = [self.memory[0].view(3, 4)]

    def forward(self, x: Tensor) -> Tensor:
        with torch.autograd._unsafe_preserve_version_counter(self.memory[0]):
            self.memory[0].view(2, 6).copy_(x.view(2, 6))
        return self.weights[0] + 1


def test_a_write_that_torch_does_not_count() -> None:
    log = tl.log_forward_pass(Gathered(), torch.rand(3, 4))
    assert log.validate()
    assert log["implicitview"].parent_layers == ["copy_1_4"] and log["add"].has_input_ancestor

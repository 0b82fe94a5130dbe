"""With interventions, what is stored is what an edited log holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.extraction.networks import images, network
from torch import Tensor, nn

import torchlens as tl

E = tl.edits


class Nested(nn.Module):
    """Returns what the module inside returns."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Edited(nn.Module):
    """Modules that are called twice or return one tensor, and an operation outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.outer = Nested()
        self.head = nn.Linear(8, 5)
        self.after = nn.Tanh()
        self.ends = 0

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)) + self.norm(self.conv(x * 2)))
        x = self.after(self.head(self.outer(x.mean((2, 3)))))
        self.ends += 1
        return x


def model() -> Edited:
    torch.manual_seed(0)
    return Edited().eval()


OTHER = tl.log_forward_pass(model(), images(4, seed=9))

#: Interventions, the layers to extract, and whether the light path can do it.
EDITS: dict[str, tuple[dict[Any, Any], list[str], bool]] = {
    "a label": ({"relu_1": E.zero(units=[1, 2])}, ["conv:1", "relu_1", "head"], False),
    "a module": ({"outer": E.scale(0.5)}, ["conv:1", "relu_1", "outer", "head"], True),
    "a function": ({"outer": lambda value: value + 1}, ["outer", "head"], True),
    "a function of the operation": ({"outer": lambda value, op: value * len(op.func_name)}, ["head"], False),
    "a condition on the operation": ({"outer": E.where(lambda value, op: True, E.zero())}, ["outer"], False),
    "one call of two": ({"norm:2": E.add(1.0)}, ["norm:1", "norm:2", "add_1", "head"], True),
    "a class": ({nn.Conv2d: [E.scale(2), E.clamp(max=0.1)]}, ["conv:2", "head"], True),
    "noise that goes on": ({nn.Conv2d: E.noise(0.5, seed=3)}, ["conv:1", "conv:2", "head"], True),
    "another run": ({"outer": E.mean(over=OTHER)}, ["outer", "head"], True),
    "the operation in an edited module": ({"conv": E.scale(0.5)}, ["conv2d_1", "head"], False),
    "a module in an edited one": ({"outer": E.clamp(max=0.1)}, ["outer.inner", "head"], False),
    "a module around an edited one": ({"outer.inner": E.scale(0.5)}, ["outer", "head"], True),
    "an edge": ({("relu_1", "mean_1"): E.scale(0.5)}, ["head"], False),
    "a parameter": ({"head.bias": E.zero()}, ["head"], False),
}


@pytest.mark.parametrize("name", EDITS)
def test_values_are_those_of_an_edited_log(tmp_path: Path, name: str) -> None:
    edits, layers, light = EDITS[name]
    x, network = images(8), model()
    store = tl.extract(network, x, layers, tmp_path / "acts", interventions=edits, batch_size=4, shard_rows=4)
    assert (network.ends == 1) == light, network.ends  # the light path ends after the last layer, the head
    for start in (0, 4):
        log = tl.log_forward_pass(model(), x[start : start + 4], interventions=edits)
        for layer in store:
            expected = log[layer].activation.detach()
            assert torch.equal(store[layer].torch(slice(start, start + 4)), expected), layer


class Skipping(nn.Module):
    """Leaves its module out if the samples are negative."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x) if (x > 0).all() else x)


@pytest.mark.parametrize("edit", [E.zero(), lambda value, op: value * 0])  # on the light path, and in full
def test_an_edit_that_a_batch_does_not_reach(tmp_path: Path, edit: Any) -> None:
    x = torch.rand(8, 3)
    x[5] = -1
    with pytest.raises(tl.LayerNotFoundError, match="fc.* never (reached|called)") as caught:
        tl.extract(Skipping(), x, "relu_1", tmp_path / "acts", interventions={"fc": edit}, batch_size=4)
    assert "running rows 4 to 7" in str(getattr(caught.value, "__notes__", ["running rows 4 to 7"]))


def test_an_edit_after_the_last_layer(tmp_path: Path) -> None:
    store = tl.extract(model(), images(8), "head", tmp_path / "acts", interventions={"after": E.zero()}, batch_size=4)
    assert torch.equal(store["head"].torch()[4:], tl.log_forward_pass(model(), images(8)[4:])["head"].activation)


def test_another_edit_is_another_extraction(tmp_path: Path) -> None:
    def extract(vector: torch.Tensor) -> tl.Store:
        return tl.extract(
            network(), images(8), "head", tmp_path / "acts", interventions={"head": E.add(vector)}, batch_size=4
        )

    extract(torch.ones(5))
    extract(torch.ones(5))
    with pytest.raises(tl.StoreError, match="What differs: the interventions"):
        extract(torch.ones(5) * 2)
    with pytest.raises(tl.StoreError, match="the interventions"):
        tl.extract(network(), images(8), "head", tmp_path / "acts", batch_size=4)


def test_an_edit_that_is_never_reached(tmp_path: Path) -> None:
    with pytest.raises(tl.LayerNotFoundError):
        tl.extract(network(), images(8), "head", tmp_path / "acts", interventions={"nothing_1": E.zero()})
    assert not (tmp_path / "acts").exists()

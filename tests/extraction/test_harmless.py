"""What runs before the first shard leaves no trace in what is stored, nor in what belongs to the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import torchlens as tl


class WritesToItsInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.isnan().any():
            raise ValueError("not a number")
        return x.add_(1) * 2


class Stream(IterableDataset[Tensor]):
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.x)


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda x: x,
    "dict": lambda x: {"x": x},
    "list": list,
    "list of arrays": lambda x: list(x.numpy()),
    "iterator": iter,
    "loader": lambda x: DataLoader(list(x), batch_size=2),
    "loader of views": lambda x: DataLoader(x.split(1), batch_size=1, collate_fn=lambda rows: rows[0]),  # type: ignore[arg-type]
    "loader of a stream": lambda x: DataLoader(Stream(x), batch_size=2),
}


def size_for(kind: str) -> int | None:
    return None if "loader" in kind else 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_writes_to_its_input(tmp_path: Path, kind: str) -> None:
    x = torch.rand(5, 3)
    given = x.clone()
    store = tl.extract(WritesToItsInput(), KINDS[kind](given), "mul", tmp_path / "acts", batch_size=size_for(kind))
    assert torch.equal(store["mul"].torch(), (x + 1) * 2) and torch.equal(given, x)


def test_samples_that_run_again_without_those_that_raise(tmp_path: Path) -> None:
    x = torch.rand(6, 3)
    x[3] = float("nan")
    store = tl.extract(WritesToItsInput(), x, "mul", tmp_path / "acts", batch_size=3, on_error="skip")
    assert torch.equal(store["mul"].torch(store.rows), (x[store.rows] + 1) * 2)


@pytest.mark.parametrize("kind", ["tensor", "list", "list of arrays", "iterator", "loader of a stream"])
def test_a_preprocess_that_writes_to_the_sample(tmp_path: Path, kind: str) -> None:
    def shifted(sample: Any) -> Any:
        sample += 1
        return sample

    x = torch.rand(5, 3)
    given, model = KINDS[kind](x.clone()), nn.Sequential(nn.Identity(), nn.Flatten())
    store = tl.extract(model, given, "1", tmp_path / "acts", batch_size=size_for(kind), preprocess=shifted)
    assert np.array_equal(store["1"][:], (x + 1).numpy())


class Counts(nn.Module):
    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.passes += 1
        else:
            self.passes = self.passes + 1
        return x * self.passes


@pytest.mark.parametrize("in_place", [True, False])
def test_a_model_that_changes_while_it_runs_is_told(tmp_path: Path, in_place: bool) -> None:
    with pytest.warns(UserWarning, match="the model changes 'passes' with every forward pass"):
        tl.extract(Counts(in_place), torch.rand(4, 2), "mul", tmp_path / "acts", batch_size=2)


def test_models_without_values(tmp_path: Path) -> None:
    for model in (nn.Linear(3, 2, device="meta"), nn.LazyLinear(2)):
        with pytest.raises(tl.ArgumentError, match="'weight' of the model has no values yet"):
            tl.extract(model, torch.rand(4, 3), "linear", tmp_path / "acts")


def test_a_model_that_squeezes_a_single_sample(tmp_path: Path) -> None:
    class Squeezes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(1, keepdim=True).squeeze()

    x = torch.rand(9, 3)
    store = tl.extract(Squeezes(), x[:8], "squeeze", tmp_path / "acts", batch_size=4)
    assert torch.equal(store["squeeze"].torch(), x[:8].sum(1))
    with pytest.raises(tl.ArgumentError, match=r"squeeze has shape \[\] for 1 sample"):
        tl.extract(Squeezes(), x, "squeeze", tmp_path / "more", batch_size=4)


def test_a_collate_function_that_takes_no_single_sample(tmp_path: Path) -> None:
    x = torch.rand(4, 3)
    loader: Any = DataLoader(list(x), batch_size=2, collate_fn=lambda rows: torch.stack([rows[0], rows[1]]))
    store = tl.extract(nn.Sequential(nn.Tanh()), loader, "0", tmp_path / "acts")
    assert torch.equal(store["0"].torch(), x.tanh())

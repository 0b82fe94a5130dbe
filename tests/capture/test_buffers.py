"""Those who only look leave a model's buffers as they were; a log does what a plain forward pass does."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl


class Counting(nn.Module):
    """Changes its buffers in every way: in place, through `.data`, another tensor, a new one, one that is shared."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.spectral = nn.BatchNorm1d(3), nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
        self.register_buffer("step", torch.zeros(()))
        self.register_buffer("mean", torch.full((3,), float("nan")))
        self.register_buffer("resized", torch.zeros(1))
        self.register_buffer("later", None)
        self.alias = self.step

    def forward(self, x: Tensor) -> Tensor:
        self.alias += 1
        self.mean.data.copy_(x.mean(0))
        self.resized.data = torch.ones(4)
        self.later = x.sum()
        self.norm.running_var = self.norm.running_var + 1
        return self.spectral(self.norm(x)) * self.step


X = torch.rand(4, 3)
LOOKING: dict[str, Callable[[nn.Module, Path], Any]] = {
    "metadata": lambda model, folder: tl.get_model_metadata(model, X),
    "drawing": lambda model, folder: tl.show_model_graph(model, X, vis_outpath=folder / "a.svg", vis_save_only=True),
    "dry run": lambda model, folder: tl.fastlog.dry_run(model, X, keep_op="relu"),
}


def _buffers(model: nn.Module) -> dict[str, Tensor | None]:
    return {f"{at}.{name}": held for at, module in model.named_modules() for name, held in module._buffers.items()}


def _assert_as_before(model: nn.Module, before: dict[str, Tensor | None], values: dict[str, Tensor | None]) -> None:
    now = _buffers(model)
    assert list(now) == list(before)
    for name, tensor in now.items():
        assert tensor is before[name], f"{name} is another tensor"
        if tensor is not None:
            torch.testing.assert_close(tensor, values[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", LOOKING)
def test_looking_leaves_buffers_as_they_were(name: str, tmp_path: Path) -> None:
    model = Counting().train()
    before = _buffers(model)
    values = deepcopy(before)
    LOOKING[name](model, tmp_path)
    _assert_as_before(model, before, values)
    assert model.alias is model.step


def test_also_when_the_model_raises() -> None:
    class Raising(Counting):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise KeyError("no")

    model = Raising().train()
    before = _buffers(model)
    values = deepcopy(before)
    with pytest.raises(KeyError):
        tl.get_model_metadata(model, X)
    _assert_as_before(model, before, values)


def test_what_is_not_changed_is_not_written_to() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3)).eval()
    versions = [buffer._version for buffer in model.buffers()]
    tl.get_model_metadata(model, X)
    assert versions == [buffer._version for buffer in model.buffers()]


def test_a_scripted_model_and_inference_tensors() -> None:
    model = torch.jit.script(nn.BatchNorm1d(3).train())
    tl.get_model_metadata(model, X)
    assert model.running_mean.eq(0).all() and model.num_batches_tracked == 0
    with torch.inference_mode():
        model = nn.BatchNorm1d(3).train()
        tl.get_model_metadata(model, X)
    assert model.running_mean.is_inference() and model.running_mean.eq(0).all()


def test_a_log_does_what_a_plain_forward_pass_does() -> None:
    model = nn.BatchNorm1d(3).train()
    plain = deepcopy(model)
    plain(X)
    tl.log_forward_pass(model, X, layers_to_save=None)
    assert torch.equal(model.running_mean, plain.running_mean) and model.num_batches_tracked == 1

"""A dispatch mode of the model's own sees what it sees in a plain run, and nothing of the capture's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchlens as tl


class Counting(TorchDispatchMode):
    """Notes the operations that reach the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Counted(nn.Module):
    """Computes with the number of operations."""

    def forward(self, x: Tensor) -> Tensor:
        with Counting() as mode:
            y = torch.relu(x * 2)
            y[0] = 5.0
            z = y.view(-1) + 1
            y.add_(1)
            z = z + y.view(-1)
        self.seen = mode.seen
        return z * len(mode.seen)


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize(
    "run",
    [
        lambda model, x: tl.log_forward_pass(model, x),
        lambda model, x: tl.log_forward_pass(model, x, layers_to_save=["relu"]),
        lambda model, x: tl.log_forward_pass(model, x, layers_to_save=None),
        lambda model, x: tl.fastlog.record(model, x, keep_op=True),
    ],
    ids=["all", "some", "none", "fastlog"],
)
def test_the_models_own_mode_sees_the_model_alone(run: Callable[[nn.Module, Tensor], Any], grad: bool) -> None:
    model, x = Counted(), torch.rand(2, 3)
    with torch.set_grad_enabled(grad):
        expected = model(x)
        plainly = model.seen
        run(model, x)
        assert model.seen == plainly
        log = tl.log_forward_pass(model, x)
    assert torch.equal(log.output, expected)
    assert log.validate()

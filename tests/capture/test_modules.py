"""Module calls: what runs inside which, with as few stand-ins as possible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture.modules import StandIn


def modules_of(log: tl.ModelLog) -> dict[str, str | None]:
    return {op.layer_type: op.containing_module for op in log}


class StandInsSeen(nn.Module):
    """Notes which of its attributes are stand-ins while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen += [name for name, attribute in vars(self).items() if isinstance(attribute, StandIn)]
        return x + 1


def test_a_module_without_hooks_has_one_stand_in() -> None:
    model = StandInsSeen()
    tl.log_forward_pass(model, torch.rand(2))
    assert model.seen == ["forward"]
    assert not {"forward", "_call_impl"} & vars(model).keys()


def test_a_module_with_hooks_has_two() -> None:
    model = StandInsSeen()
    model.register_forward_hook(lambda module, args, result: None)
    tl.log_forward_pass(model, torch.rand(2))
    assert model.seen == ["_call_impl", "forward"]
    assert not {"forward", "_call_impl"} & vars(model).keys()


def test_hooks_run_inside_the_call() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    assert modules_of(tl.log_forward_pass(model, torch.rand(2, 3))) == {
        "input": None, "add": "0", "linear": "0", "mul": "0", "output": None,
    }  # fmt: skip


class HooksItself(nn.Module):
    """Hooks one of its modules while it runs, as models do that collect features."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        handles = [
            self.linear.register_forward_hook(lambda module, args, result: result * 2),
            self.linear.register_forward_pre_hook(lambda module, args: (args[0] - 1,)),
        ]
        y: Tensor = self.linear(x)
        for handle in handles:
            handle.remove()
        return y + 1


def test_hooks_registered_while_the_model_runs() -> None:
    model, x, register = HooksItself(), torch.rand(2, 3), nn.Module.register_forward_hook
    log = tl.log_forward_pass(model, x)
    assert modules_of(log) == {
        "input": None, "sub": "linear", "linear": "linear", "mul": "linear", "add": None, "output": None,
    }  # fmt: skip
    assert torch.equal(log["linear:1"].activation, model.linear(x - 1) * 2)
    assert nn.Module.register_forward_hook is register
    assert "_call_impl" not in vars(model.linear)


class CallsInItsOwnWay(nn.Module):
    """Does more in `_call_impl` than to call forward."""

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return super()._call_impl(*args, **kwargs) * 2  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_a_class_with_a_call_of_its_own() -> None:
    log = tl.log_forward_pass(nn.Sequential(CallsInItsOwnWay()), torch.rand(2))
    assert modules_of(log) == {"input": None, "add": "0", "mul": "0", "output": None}

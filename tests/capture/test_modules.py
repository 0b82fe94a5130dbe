"""Module calls: what runs inside which, with as few stand-ins as possible."""

from __future__ import annotations

from typing import Any

import pytest
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


# ---- modules that compare equal -------------------------------------------------------------------------------


class Block(nn.Module):
    """Scales by a parameter of its own; `__eq__` and `__hash__` do not look at that, as a dataclass's do not."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.register_buffer("offset", torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.offset


class EqualBlock(Block):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualBlock)

    def __hash__(self) -> int:
        return 0


class UnhashableBlock(Block):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnhashableBlock)

    __hash__ = None  # type: ignore[assignment]


class Blocks(nn.Module):
    def __init__(self, kind: type[Block]) -> None:
        super().__init__()
        self.first, self.second = kind(2.0), kind(3.0)
        self.again = self.first

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.again(self.second(self.first(x)))
        return result


EQUAL = pytest.mark.parametrize("kind", [Block, EqualBlock, UnhashableBlock])


@EQUAL
def test_modules_are_told_apart_by_identity(kind: type[Block]) -> None:
    log = tl.log_forward_pass(Blocks(kind), torch.ones(2), save_gradients=True)
    assert list(log.modules.keys()) == ["self", "first", "second"]
    assert log.modules["first"].all_addresses == ["first", "again"]
    assert [op.containing_module for op in log if op.layer_type == "mul"] == ["first", "second", "first"]
    assert [param.address for param in log.params] == ["first.scale", "second.scale"]
    assert [buffer.address for buffer in log.buffers] == ["first.offset", "second.offset"]
    log.log_backward(log[-1].activation.sum())
    assert log["second:1"].gradient.tolist() == [2.0, 2.0]


@EQUAL
def test_everything_that_takes_a_model_tells_its_modules_apart(kind: type[Block]) -> None:
    model, x = Blocks(kind), torch.ones(2)
    assert tl.validate_model_activations(model, x)
    report = tl.validate_backward_pass(model, x)
    assert report and report.params == ["first.scale", "second.scale"]
    assert len(tl.log_forward_pass(model, x, module="second").modules) == 1
    assert tl.pluck(model, x, "second").tolist() == [15.0, 15.0]
    recording = tl.fastlog.record(model, x, keep_module=["second"])
    assert recording.by_module_address["second"]
    assert tl.log_forward_pass(model, x, layers_to_save=["second"])["second"].activation.tolist() == [15.0, 15.0]
    log = tl.log_forward_pass(model, x)
    log.save_new_activations(model, x + 1)
    assert log["second"].activation.tolist() == [21.0, 21.0]


class HasItsParent(nn.Module):
    """A submodule has the model as a submodule of its own, as code does that wants to reach it from there."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(2, 2)
        self.child.parent = self  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.child(x)
        return result


def test_a_module_that_has_its_parent_as_a_submodule() -> None:
    log = tl.log_forward_pass(HasItsParent(), torch.rand(1, 2))
    assert list(log.modules.keys()) == ["self", "child"]

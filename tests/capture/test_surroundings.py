"""What a capture changes in the process meanwhile, and for whom."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit._builtins import _get_builtin_table
from torch.overrides import TorchFunctionMode

import torchlens as tl

QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(F.relu(x), -1)


class Spy(TorchFunctionMode):
    """Notes the functions that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_torch_is_asked_as_before_afterwards() -> None:
    before, builtins = {name: getattr(F, name) for name in QUESTIONS}, dict(_get_builtin_table())
    tl.log_forward_pass(Softmax(), torch.rand(2, 3))
    assert {name: getattr(F, name) for name in QUESTIONS} == before
    assert _get_builtin_table() == builtins


def test_python_functions_of_torch_are_not_handed_around() -> None:
    asked = []

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            asked.append(F.has_torch_function_unary(x))  # type: ignore[attr-defined]
            asked.append(F.has_torch_function_variadic(x, None))  # type: ignore[attr-defined]
            return F.relu(x)

    log = tl.log_forward_pass(Model(), torch.rand(2, 3))
    assert asked == [False, False]
    assert log.layer_labels == ["input_1_0", "relu_1_1", "output_1_2"]


def test_another_mode_still_sees_them() -> None:
    around, within = Spy(), Spy()

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with within:
                return F.softmax(F.relu(x), -1)

    with around:
        log = tl.log_forward_pass(Model(), torch.rand(2, 3))
    assert log.layer_labels == ["input_1_0", "relu_1_1", "softmax_1_2", "output_1_3"]
    assert within.seen == ["relu", "softmax"]
    assert "softmax" in around.seen


def test_a_tensor_class_still_sees_them() -> None:
    seen = []

    class Noticing(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    log = tl.log_forward_pass(Softmax(), torch.rand(2, 3).as_subclass(Noticing))
    assert F.softmax in seen
    assert log.layer_labels == ["input_1_0", "relu_1_1", "softmax_1_2", "output_1_3"]


def test_another_thread_is_not_concerned() -> None:
    spy, begun, go_on = Spy(), threading.Event(), threading.Event()

    def elsewhere() -> None:
        begun.wait(10)
        with spy:
            F.softmax(torch.rand(2, 3), -1)
        go_on.set()

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            begun.set()
            assert go_on.wait(10)
            return F.relu(x)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    log = tl.log_forward_pass(Model(), torch.rand(2, 3))
    thread.join()
    assert spy.seen[0] == "rand" and "softmax" in spy.seen
    assert log.layer_labels == ["input_1_0", "relu_1_1", "output_1_2"]


def scripted(x: Tensor) -> Tensor:
    return F.relu(F.dropout(x, 0.5, False))


class Scripts(nn.Module):
    """Compiles a function while it runs."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.jit.script(scripted)(x)  # type: ignore[no-untyped-call,no-any-return]


def test_a_script_can_be_made_in_forward() -> None:
    x = torch.randn(2, 3)
    log = tl.log_forward_pass(Scripts(), x)
    assert torch.equal(log["output"].activation, x.relu())

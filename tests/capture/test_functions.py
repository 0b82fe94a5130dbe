"""What the tables of functions say is true, also where a function could be tempted to hand back what it was given."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.overrides
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture.descend import twin
from torchlens.capture.functions import _FRESH, KNOWN, classify
from torchlens.capture.tensor_memory import address_of

SCALAR, ONE, MATRIX = torch.rand(()), torch.rand(1, 1, 1, 1), torch.rand(2, 3)

TEMPTING: dict[str, tuple[Tensor, Callable[[Tensor], Tensor]]] = {
    "sum": (SCALAR, lambda x: x.sum()),
    "mean": (SCALAR, lambda x: x.mean()),
    "cumsum": (SCALAR, lambda x: x.cumsum(0)),
    "softmax": (SCALAR, lambda x: x.softmax(0)),
    "log_softmax": (SCALAR, lambda x: x.log_softmax(0)),
    "adaptive_avg_pool2d": (ONE, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "avg_pool2d": (ONE, lambda x: F.avg_pool2d(x, 1)),
    "max_pool2d": (ONE, lambda x: F.max_pool2d(x, 1)),
    "conv2d": (ONE, lambda x: F.conv2d(x, torch.ones(1, 1, 1, 1))),
    "batch_norm": (ONE, lambda x: F.batch_norm(x, torch.zeros(1), torch.ones(1))),
    "cat": (MATRIX, lambda x: torch.cat([x])),
    "stack": (MATRIX, lambda x: torch.stack([x])),
    "pow": (MATRIX, lambda x: x.pow(1)),
    "triu": (MATRIX, lambda x: x.triu(-9)),
    "tril": (MATRIX, lambda x: x.tril(9)),
    "where": (MATRIX, lambda x: torch.where(x > -1, x, x)),
    "abs": (MATRIX, lambda x: x.abs()),
    "add": (MATRIX, lambda x: x + 0),
    "mul": (MATRIX, lambda x: x * 1),
    "matmul": (MATRIX, lambda x: torch.eye(2) @ x),
    "linear": (MATRIX, lambda x: F.linear(x, torch.eye(3))),
    "relu": (MATRIX, lambda x: x.relu()),
}


@pytest.mark.parametrize("name", TEMPTING)
def test_fresh_functions_return_new_memory(name: str) -> None:
    x, call = TEMPTING[name]
    assert name in _FRESH
    assert address_of(call(x)) != address_of(x)


class Plainly(Tensor):
    """A tensor class that does nothing of its own."""


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Overwriting(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        row = x[0]
        return self.function(x, inplace=True), row + 1


def test_running_statistics_are_seen_to_change_whatever_the_class_of_the_input() -> None:
    for kind in (Tensor, Plainly):
        model = Normed().train()
        log = tl.log_forward_pass(model, torch.rand(4, 3).as_subclass(kind))
        updates = {value.address: value.saved for value in log._trace.values if value.role == "update"}
        assert updates.keys() == {"norm.running_mean", "norm.running_var"}
        assert torch.equal(updates["norm.running_mean"], model.norm.running_mean)
        assert log.validate()


@pytest.mark.parametrize("function", [F.relu, F.silu, F.hardswish, F.leaky_relu, F.elu, F.dropout])
def test_a_function_asked_to_work_in_place_overwrites_whatever_the_class_of_the_tensor(function: Any) -> None:
    array = np.random.default_rng(0).standard_normal((4, 3))
    x = torch.from_numpy(array).as_subclass(Plainly)
    log = tl.log_forward_pass(Overwriting(function), x)
    assert np.array_equal(array, log[log.output_layers[0]].activation.numpy())  # it is still the user's memory
    assert np.array_equal(array[0] + 1, log[log.output_layers[1]].activation.numpy())
    assert not log._trace.warnings
    assert log.validate()


@pytest.mark.parametrize(
    ("call", "draws"),
    [
        (lambda x: torch.dropout(x, 0.5, False), False),
        (lambda x: torch.dropout(x, p=0.5, train=False), False),
        (lambda x: torch.dropout(x, 0.5, True), True),
        (lambda x: torch.dropout(x, p=0.5, train=True), True),
        (lambda x: F.dropout(x, 0.5), True),
        (lambda x: torch.ops.aten.alpha_dropout(x, 0.5, True), True),
        (lambda x: F.scaled_dot_product_attention(x, x, x), False),
        (lambda x: F.scaled_dot_product_attention(x, x, x, None, 0.5), True),
        (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), True),
    ],
)
@pytest.mark.parametrize("kind", [Tensor, Plainly])
def test_the_generator_is_remembered_where_a_call_draws_random_numbers(call: Any, draws: bool, kind: type) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return call(x) + 1

    log = tl.log_forward_pass(Model(), torch.rand(2, 4, 8).as_subclass(kind))
    assert [call.rng is not None for call in log._trace.calls] == [draws, False, False]
    assert log.validate()


def test_a_function_made_for_a_call_is_not_kept() -> None:
    """With all that it closes over."""

    class Holder:
        pass

    held: list[weakref.ref[Holder]] = []

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            holder = Holder()
            held.append(weakref.ref(holder))

            def doubled(x: Tensor) -> Tensor:
                assert isinstance(holder, Holder)
                if torch.overrides.has_torch_function((x,)):
                    return torch.overrides.handle_torch_function(doubled, (x,), x)  # type: ignore[no-any-return]
                return x * 2

            return doubled(x) + doubled(x)

    known = len(KNOWN)
    x = torch.rand(2).as_subclass(Plain)
    for _ in range(3):
        tl.log_forward_pass(Model(), x)
        with tl.fastlog.Recorder(Model(), keep_op=True) as recorder:
            recorder.log(x)
    del recorder
    gc.collect()
    assert len(held) == 6 and [reference() for reference in held] == [None] * 6
    assert len(KNOWN) < known + 10


class Plain(Tensor):
    """A tensor class with nothing of its own."""


@pytest.mark.parametrize("call", [lambda x: x**2, lambda x: x.pow(2), torch.relu, nn.functional.relu, lambda x: x.T])
def test_functions_of_torch_are_kept(call: Callable[[Tensor], Tensor]) -> None:
    seen: list[Any] = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.rand(2, 2)
    with Spy():
        call(x)
    assert all(classify(func).lasts for func in seen) and all(func in KNOWN for func in seen)


def test_a_function_that_imports_inside() -> None:
    """`torch.sym_int` of torch 2.4 does: an import asks the globals themselves where it is."""
    names: dict[str, Any] = {"__name__": "torch.nn.made_up", "__package__": "torch.nn"}
    exec("def halved(x):\n    from . import functional\n    return functional.relu(x) / 2", names)
    assert torch.equal(twin(names["halved"])(torch.tensor([-1.0, 4.0])), torch.tensor([0.0, 2.0]))

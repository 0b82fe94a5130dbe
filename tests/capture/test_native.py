"""Calls of the common kind are recorded in C, if it could be compiled, and all calls by Python: both leave the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import OrderedDict
from typing import Any

import pytest
import torch
from tests.capture.test_tracer import told
from tests.models import Case
from tests.test_oracle import RUNS, logged_run
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture import native, records
from torchlens.capture.modules import StandIn, named_modules
from torchlens.capture.tracer import Tracer

needed = pytest.mark.skipif(
    not native.is_compiled, reason="hot.c was not compiled: there was no compiler, or no headers"
)


@pytest.fixture(autouse=True)
def recorded_by() -> Any:
    """These tests choose by themselves."""
    yield
    native.use_if_wanted()


def both_ways(run: Any) -> list[Any]:
    found = []
    for way in (True, False):
        native.use(way)
        run()  # a function that is met for the first time is left to Python
        found.append(run())
    return found


@needed
@pytest.mark.parametrize(("case", "mode"), [run for run in RUNS if run.values[0].repeatable])
def test_both_ways_leave_the_same_trace(case: Case, mode: str) -> None:
    one, other = both_ways(lambda: told(logged_run(case, mode).log._trace))
    assert one == other


class ManyKinds(nn.Module):
    """Arguments of every kind that is treated apart, results that are no tensor, calls that raise."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([x, self.fc(x), torch.stack((x, x)).sum(0)], dim=0)
        y = y[1:, (0, 1, 2, 3)][:, None].squeeze(1)[..., : x.shape[1]]
        first, *rest = y.chunk(3)
        try:
            first @ torch.ones(7)
        except RuntimeError:
            first = (first * 3).mul_(2).add_(first)
        z = torch.where(first > 0, first, other=0.5).clamp(min=-1, max=1)
        z = nn.functional.dropout(self.norm(z), 0.0, training=False).T.contiguous().t()
        return z.relu_() + torch.einsum("ij,kj->ik", z, torch.cat(rest)).sum()


@needed
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        *[
            (mode, options)
            for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode)
            for options in ({}, {"layers_to_save": None}, {"layers_to_save": ["linear*"]})
        ],
        (torch.enable_grad, {"save_gradients": True}),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else each.__name__,
)
def test_calls_of_many_kinds(mode: Any, options: dict[str, Any]) -> None:
    model, x = ManyKinds().eval(), torch.rand(3, 4)

    def run() -> Any:
        with mode():
            log = tl.log_forward_pass(model, x, **options)
        assert options or log.validate()
        return told(log._trace), log.warnings

    one, other = both_ways(run)
    assert one == other


class Pair(nn.Module):
    """Takes and returns several tensors, and what is none."""

    def forward(self, x: Tensor, y: Any, *, scale: Any = 1, name: str = "") -> Any:
        return x * scale, None if y is None else y + x, name


class Odd(nn.Module):
    """Modules and tensors that are not described like others: shared, lazy, of classes of their own, without a name."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.again = nn.Sequential(self.fc, nn.ReLU(), self.fc)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.fc.weight
        self.nothing = None
        self.register_module("none", None)
        self.register_parameter("no_param", None)
        self.register_buffer("no_buffer", None)
        self.register_buffer("steps", torch.zeros(4))
        self.register_buffer("tied_buffer", self.steps)
        self.pair, self.hooked, self.replaced = Pair(), nn.Tanh(), nn.Sigmoid()
        self.hooked.register_forward_hook(lambda module, args, result: result * 2)
        self.replaced.forward = lambda x: x.sigmoid() + 1  # type: ignore[method-assign]
        self.empty = nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        self.steps.add_(1)
        x, y, _ = self.pair(self.again(x), None, name="first")
        x, y, _ = self.pair(self.tied(x), y=x, scale=self.steps)
        first, (second, *_) = self.pair(x.view(-1, 4), y)[0], self.pair(y, self.fc.bias)
        return self.replaced(self.hooked(first.t()).t() + second + x[:, :1] + y.expand(2, *y.shape)[1])


class Unusual(Odd):
    """What only Python's functions describe."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind == "lazy":
            self.lazy = nn.LazyLinear(4)
        elif kind == "of a class of its own":
            self.param = nn.Parameter(torch.rand(4).as_subclass(type("Mine", (Tensor,), {})))
        elif kind == "in itself":
            self.tied.me = self
        elif kind == "in another dict":
            self.tied._modules = OrderedDict(a=nn.ReLU(), b=nn.Tanh())
            self.tied._modules.move_to_end("a")
        elif kind == "sparse":
            self.register_buffer("sparse", torch.eye(3).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.lazy(x) if hasattr(self, "lazy") else x)


KINDS = ("lazy", "of a class of its own", "in itself", "in another dict", "sparse")


@needed
@pytest.mark.parametrize("kind", ["odd", *KINDS])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_models_that_are_not_like_others(kind: str, mode: Any) -> None:
    def run() -> Any:
        torch.manual_seed(0)
        model = Odd() if kind == "odd" else Unusual(kind)
        before = [set(vars(module)) for module in distinct(model)]
        with mode():
            log = tl.log_forward_pass(model, torch.rand(3, 4))
        after = [set(vars(module)) for module in distinct(model)]
        assert before == after or kind == "lazy"
        trace = log._trace
        values = [(value.role, value.address, value.facts, value.grad_fn, value.call) for value in trace.params]
        calls = [told_of(call) for call in trace.module_calls]
        records = told(trace) if kind != "lazy" else len(trace.calls)  # memory as it was found is in its values
        return records, trace.modules, trace.param_infos, trace.buffer_infos, values, calls, log.warnings

    one, other = both_ways(run)
    assert one == other


def distinct(model: nn.Module) -> list[nn.Module]:
    return list({id(module): module for _, module in named_modules(model)}.values())


def told_of(call: Any) -> Any:
    entered, exited = ([(value.role, value.index) for value in values] for values in (call.entered, call.exited))
    return call.module, call.number, call.parent, call.start, call.stop, entered, exited


@needed
def test_copies_lie_in_memory_as_what_was_copied() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            return x[1:], x.t(), x[:, ::2], x[0].expand(3, 4), x[:0], y.conj(), y.real, x.permute(1, 0)[2:]

    def run() -> Any:
        log = tl.log_forward_pass(Views(), [torch.rand(3, 4), torch.rand(2, dtype=torch.complex64)])
        kept = [value.saved for value in log._trace.values]
        return [(t.stride(), t.is_conj(), t.is_neg(), t.resolve_conj().tolist()) for t in kept if t is not None]

    torch.manual_seed(0)
    found = []
    for way in (True, False):
        native.use(way)
        run()
        torch.manual_seed(1)
        found.append(run())
    assert found[0] == found[1]


@needed
def test_what_is_equal_in_a_loop_is_one_object() -> None:
    """Where a call was made, its number, and what a module takes and returns: a log without values is made of these."""

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(400):
                x = self.act(x + 1)
            return x

    native.use(True)
    model = Loop()
    tl.get_model_metadata(model, torch.rand(2))
    trace = tl.get_model_metadata(model, torch.rand(2))._trace
    own = [call for call in trace.calls if call.function.func is not None]
    assert len({id(call.site) for call in own}) == len({call.site for call in own}) == 2
    assert all(
        value.call is trace.values[value.call].index
        for value in trace.values
        if value.role == "op" and value.call > 256
    )
    inside = trace.module_calls[1:]
    assert len(inside) == 400
    assert all(call.exited is trace.calls[call.stop - 1].outputs for call in inside)
    assert all(call.entered is trace.calls[call.start - 1].outputs for call in inside)


class Deep(nn.Module):
    """A list in a list in a list, many times."""

    def forward(self, x: Tensor) -> Tensor:
        nested: Any = [x]
        for _ in range(100_000):
            nested = [nested]
        return torch.cat(nested)


@needed
def test_what_a_common_call_raises_reaches_the_model_and_leaves_nothing() -> None:
    native.use(True)
    with pytest.raises((RecursionError, TypeError)):
        tl.log_forward_pass(Deep(), torch.rand(2))
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            tl.log_forward_pass(model, torch.rand(2, 3))
    assert not any("forward" in vars(module) for module in model.modules())
    assert torch.equal(torch.ones(2).relu(), torch.ones(2))


@needed
def test_no_reference_is_lost_or_left() -> None:
    native.use(True)
    model, odd, x = ManyKinds().eval(), Odd(), torch.rand(3, 4)

    def counts() -> list[int]:
        for _ in range(20):
            tl.log_forward_pass(model, x)
        tl.log_forward_pass(odd, x)
        kinds = (torch.Tensor, nn.Parameter, Tracer, records.Value, records.ModuleInfo, records.TensorInfo, StandIn)
        things = (None, True, False, "", x, model, model.fc, model.fc.weight, vars(odd.fc), odd.fc.weight, odd.steps)
        things += (torch.float32, *kinds)
        return [sys.getrefcount(thing) for thing in things]

    counts()
    before, after = counts(), counts()
    assert all(abs(one - other) < 60 for one, other in zip(before, after, strict=True)), (before, after)


def test_what_was_compiled_is_used() -> None:
    """It would not be if a record had got a field that hot.c does not fill, or torch no such getter any more."""
    assert native.is_compiled == (importlib.util.find_spec("torchlens.capture._hot") is not None)


@pytest.mark.parametrize(("wanted", "used"), [("0", False), ("1", native.is_compiled)])
def test_the_environment_decides(wanted: str, used: bool) -> None:
    code = (
        "import torch, torchlens as tl; from torchlens.capture.tracer import Tracer;"
        "print(type(vars(Tracer)['enter_module']).__name__, len(tl.log_forward_pass(torch.nn.ReLU(), torch.ones(2))))"
    )
    environment = {**os.environ, "TORCHLENS_NATIVE": wanted}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["instancemethod" if used else "function", "3"]

"""Calls of the common kind are recorded in C, if it could be compiled, and all calls by Python: both leave the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from tests.capture.test_tracer import told
from tests.models import Case
from tests.test_oracle import RUNS, logged_run
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture import native
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
    model, x = ManyKinds().eval(), torch.rand(3, 4)

    def counts() -> list[int]:
        for _ in range(20):
            tl.log_forward_pass(model, x)
        things = (None, True, False, torch.Tensor, x, model.fc.weight, Tracer, tl.capture.records.Value)
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

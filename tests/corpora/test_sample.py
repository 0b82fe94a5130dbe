"""A fast sample of PyTorch's operator and module databases; `make corpora` runs all of them."""

from __future__ import annotations

import pytest
import torch
from tests.corpora.check import FAILED, PASSED, UNINITIALISED, UNSTABLE, Example, check, examine
from torch import Tensor, nn

pytest.importorskip("expecttest", reason="PyTorch's databases need expecttest and scipy")

from tests.corpora.modules import module_examples, modules
from tests.corpora.operators import DTYPES, operator_examples, operators


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators(dtype: str) -> None:
    """Every seventh operator, another seventh for each type, with its first two samples."""
    names = operators(dtype)[list(DTYPES).index(dtype) :: 7]
    results = [examine(operator_examples(dtype, name, limit=2)) for name in names]
    assert [failure for result in results for failure in result["failures"]] == []
    assert sum(result["counts"][PASSED] for result in results) > 100


def test_modules() -> None:
    """Every third module with its first sample, in every mode."""
    results = [examine(module_examples(name, limit=1)) for name in modules()[::3]]
    assert [failure for result in results for failure in result["failures"]] == []
    assert sum(result["counts"][PASSED] for result in results) > 200


# ---- the harness itself -----------------------------------------------------------------------------------------


class Hidden(nn.Module):
    """Computes out of the tracer's sight."""

    def forward(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return (x * 2).relu()


class Garbage(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.empty(1000).add_(x)


class Counting(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += 1
        return x * Counting.calls


@pytest.mark.parametrize(
    ("model", "verdict"),
    [(nn.ReLU(), PASSED), (Hidden(), FAILED), (Garbage(), UNINITIALISED), (Counting(), UNSTABLE)],
    ids=lambda thing: type(thing).__name__ if isinstance(thing, nn.Module) else str(thing),
)
def test_verdicts(model: nn.Module, verdict: str) -> None:
    junk = torch.rand(1000)  # freed at once: what `empty` gets is not zero
    del junk
    assert check(Example("example", lambda: (model, [torch.ones(1)], {})))[0] == verdict

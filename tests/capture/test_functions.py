"""What the tables of functions say is true, also where a function could be tempted to hand back what it was given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchlens.capture.functions import _FRESH
from torchlens.capture.keeping import address_of

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

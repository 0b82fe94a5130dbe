"""PyTorch's module database: every `nn` module with sample inputs, in train and eval mode, with and without grad."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from tests.corpora.check import Example, copied, seed_all
from torch import nn
from torch.testing._internal.common_modules import module_db

DTYPES = (torch.float32, torch.float64, torch.complex64)


def modules() -> list[str]:
    """The names of the modules, such as `nn.Linear`."""
    return [info.name for info in module_db]


def module_examples(name: str, limit: int | None = None) -> Iterator[Example]:
    """Every sample of a module in each mode; of the samples only the first `limit`."""
    (info,) = [info for info in module_db if info.name == name]
    for dtype, training, grad in product(DTYPES, (True, False), (True, False)):
        if dtype not in info.supported_dtypes("cpu"):
            continue
        mode = f"{dtype} {'train' if training else 'eval'} {'grad' if grad else 'no_grad'}"
        seed_all()
        samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=grad, training=training)
        for number, sample in enumerate(samples[:limit]):
            seed_all()  # so that a sample is the same whatever was run before
            made = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
            arguments = sample.forward_input.args, sample.forward_input.kwargs
            yield Example(f"{name} {mode} {number}", _maker(made.to(dtype).train(training), arguments), grad)


def _maker(module: nn.Module, arguments: Any) -> Any:
    def fresh() -> tuple[nn.Module, list[Any], dict[str, Any]]:
        args, kwargs = copied(arguments)
        return copy.deepcopy(module), list(args), kwargs

    return fresh

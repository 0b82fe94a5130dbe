"""Looking up a private name of torch, and what to do where this version has none."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import TorchVersionError

#: The part of this package that can't be without most of them.
LOGGING = "logging a forward pass"

#: The private names that are looked up.
NAMES: list[str] = []


def private(name: str, *, instead: Any = None, part: str | None = None) -> Any:
    """torch's own `name`. Where this torch has none: `instead`; or, for a `part` of this package that can't be without,
    a function that raises `TorchVersionError`."""
    NAMES.append(name)
    try:
        return _find(name)
    except (AttributeError, ImportError):
        return instead if part is None else missing(name, part)


def _find(name: str) -> Any:
    found: Any = torch
    path = "torch"
    for step in name.split(".")[1:]:
        path += f".{step}"
        found = getattr(found, step) if hasattr(found, step) else importlib.import_module(path)
    return found


def missing(name: str, part: str) -> Callable[..., Any]:
    def raise_(*args: Any, **kwargs: Any) -> Any:
        raise TorchVersionError(
            f"torch {torch.__version__} has no {name}, which {part} needs; "
            "use a version of torch that this package is tested with"
        )

    return raise_


class Nothing:
    """Stands for a class that this torch does not have: nothing is an instance of it."""

    def __call__(self) -> None:
        raise AssertionError("there is nothing to call")


def never(tensor: Tensor) -> bool:
    return False

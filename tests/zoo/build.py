"""What every part of the zoo is made of: a model with random weights and a small input for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass
class Built:
    """A model, ready to run."""

    model: nn.Module
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)


class NotBuilt(Exception):
    """A model does not build or does not run here without us either; says why."""


def accepted(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """Those of the options that a function has parameters for."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in names}


def first_that_runs(model: nn.Module, candidates: Iterable[tuple[list[Any], dict[str, Any]]]) -> Built:
    """The model with the first of these inputs that it accepts."""
    reasons = []
    for args, kwargs in candidates:
        try:
            with torch.no_grad():
                model(*args, **kwargs)
        except Exception as error:  # whatever a model raises on an input that is not for it
            reasons.append(one_line(error))
        else:
            return Built(model, args, kwargs)
    raise NotBuilt(reasons[0] if reasons else "no input is known for it")


def one_line(error: BaseException) -> str:
    """An exception as one short line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}{'…' if len(text) > 160 else ''}"

"""The examples in the docstrings run, and every public name has one."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.test_documented import DemoNetwork, RecurrentNetwork

import torchlens as tl

MODULES = sorted(info.name for info in pkgutil.walk_packages(tl.__path__, "torchlens."))


def names(folder: Path) -> dict[str, Any]:
    model, x = DemoNetwork(), torch.rand(5, 5)
    return {
        "tl": tl,
        "torch": torch,
        "model": model,
        "x": x,
        "log": tl.log_forward_pass(model, x),
        "folder": folder,
        "recurrent_log": tl.log_forward_pass(RecurrentNetwork(), x),
    }


@pytest.mark.parametrize("name", ["torchlens", *MODULES])
def test_examples_run(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(module, extraglobs=names(tmp_path) | vars(module), optionflags=flags)
    assert result.failed == 0


ERRORS = [
    name for name in tl.__all__ if isinstance(getattr(tl, name), type) and issubclass(getattr(tl, name), Exception)
]


@pytest.mark.parametrize("name", sorted(set(tl.__all__) - set(ERRORS)))
def test_public_names_are_documented_with_an_example(name: str) -> None:
    text = getattr(tl, name).__doc__ or ""
    assert ">>>" in text or "`log." in text, f"{name} has no example in its docstring"


@pytest.mark.parametrize(
    "kind", [tl.ModelLog, tl.OpLog, tl.LayerLog, tl.ModuleLog, tl.ModulePassLog, tl.ParamLog, tl.BufferLog]
)
def test_properties_say_what_is_not_in_their_name(kind: type) -> None:
    described = [name for name, value in vars(kind).items() if isinstance(value, property) and value.__doc__]
    assert len(described) >= sum(isinstance(value, property) for value in vars(kind).values()) / 2

"""Step into torch functions that are written in Python.

`F.relu` and its like reach a torch function mode as one call, because their first line asks whether anyone
overrides them. To log the calls they make inside, run a twin of the function for which that check returns
False. The twin shares the code; only its global names are looked up through a thin layer.
"""

from __future__ import annotations

import builtins
import sys
from types import CellType, FunctionType
from typing import Any

import torch
import torch.overrides


def _never(*args: Any, **kwargs: Any) -> bool:
    return False


_OVERRIDE_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


#: Global names from which an `import` inside a function learns its package; it does not call `__missing__`.
_FOR_IMPORTS = ("__name__", "__package__", "__spec__", "__path__")


class _TwinGlobals(dict[str, Any]):
    """The globals of a module as seen by a twin: live, but with override checks that return False.

    Not a snapshot: a model may patch functions of that module, and its twin must see the patch as well.
    """

    def __init__(self, real: dict[str, Any]) -> None:
        super().__init__(dict.fromkeys(_OVERRIDE_CHECKS, _never), __builtins__=builtins)
        self.update({name: real[name] for name in _FOR_IMPORTS if name in real})
        self.real = real

    def __missing__(self, name: str) -> Any:
        real = self.real
        return real[name] if name in real else vars(builtins)[name]


class _Through:
    """A proxy for another object, with some attributes replaced."""

    def __init__(self, real: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


#: `torch` as seen by functions that ask by its full name, as those of `nn.init` do.
_OVERRIDES = _Through(torch.overrides, **dict.fromkeys(_OVERRIDE_CHECKS, _never))
_TORCH = _Through(torch, overrides=_OVERRIDES)

_globals: dict[tuple[int, bool], _TwinGlobals] = {}


def twin(function: FunctionType) -> FunctionType:
    """Return a function that does what `function` does after finding that nobody overrides it."""
    real = function.__globals__
    by_full_name = "overrides" in function.__code__.co_names
    shadow = _globals.get((id(real), by_full_name)) or _TwinGlobals(real)
    if vars(sys.modules.get(real.get("__name__", ""), object)) is real:  # a module's, not those of some `exec`
        _globals[id(real), by_full_name] = shadow
    if by_full_name:
        shadow.update(torch=_TORCH, overrides=_OVERRIDES)
    cells = function.__closure__ and tuple(_twin_cell(cell, function) for cell in function.__closure__)
    copy = FunctionType(function.__code__, shadow, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _twin_cell(cell: CellType, owner: FunctionType) -> CellType:
    """A decorator keeps the function that makes the check in a closure: the twin gets a twin of that function."""
    try:
        inner = cell.cell_contents
    except ValueError:  # an empty cell
        return cell
    asks = isinstance(inner, FunctionType) and not set(_OVERRIDE_CHECKS).isdisjoint(inner.__code__.co_names)
    return CellType(twin(inner)) if asks and inner is not owner else cell

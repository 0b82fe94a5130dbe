"""Rows that other rows refer to by number: facts (shape, dtype, device) and functions. Equal ones are stored once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch

from ..capture.functions import ALIAS_UPDATE, EDIT, IMPLICIT_VIEW, OUTPUT, UNEDITED, UNWRAP, WRAP, Function
from ..capture.records import Facts
from .checks import integer, one_of, sizes, text
from .function_names import UnknownFunction, find, torch_name
from .tensors import dtype_name, dtype_named
from .trust import careful

Tables = dict[str, Any]

#: Functions that stand for no torch call.
_SYNTHETIC = {f.name: f for f in (OUTPUT, ALIAS_UPDATE, IMPLICIT_VIEW, WRAP, UNWRAP, EDIT, UNEDITED)}


class Table:
    """Rows without repetition: equal things get one row and one number."""

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        self.rows: list[Any] = []
        self._encode = encode
        self._numbers: dict[Hashable, int] = {}
        self._alive: list[Any] = []

    def number(self, thing: Any, key: Hashable = None) -> int:
        key = thing if key is None else key
        found = self._numbers.get(key)
        if found is None:
            row = self._encode(thing)
            found = self._numbers[key] = len(self.rows)
            self._alive.append(thing)
            self.rows.append(row)
        return found


def clean(name: str) -> str:
    """A string that UTF-8 can encode; file names may not be."""
    return name.encode("utf-8", "replace").decode()


# ---- type, shape and device ---------------------------------------------------------------------------------


def facts_row(facts: Facts) -> list[Any]:
    shape, dtype, device = facts
    return [plain_sizes(shape), dtype_name(dtype), str(device)]


def plain_sizes(shape: Iterable[Any]) -> list[int]:
    """Sizes as integers: -1 for that of a jagged dimension, which is only a symbol."""
    return [size if type(size) is int else -1 for size in shape]


def read_facts(row: Any) -> Facts:
    shape, dtype, device = row
    size, kind = sizes(shape, -1), dtype_named(dtype)
    count = kind.itemsize
    for length in size:
        count *= abs(length)
    integer(count)
    return torch.Size(size), kind, torch.device(text(device))


# ---- functions ----------------------------------------------------------------------------------------------


def function_row(function: Function) -> list[Any]:
    if _SYNTHETIC.get(function.name) is function:
        return [function.name, None]
    if isinstance(function.func, UnknownFunction):
        return [function.name, function.func.__name__]
    name = getattr(function.func, "__qualname__", None) or str(function.func)
    return [function.name, torch_name(function.func) or f"unknown:{clean(name)}"]


def read_function(row: Any, trust: bool) -> Function:
    name, torch_name = row
    if torch_name is None:
        return _SYNTHETIC[one_of(_SYNTHETIC, name)]
    found = find(text(torch_name))
    function = Function(text(name), found or UnknownFunction(torch_name.removeprefix("unknown:")))
    if found is not None and not trust:
        function.check = careful(torch_name, found)
    return function

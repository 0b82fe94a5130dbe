"""The smaller records to and from rows: each is written and read side by side here.

The larger ones, which refer to others, are written in encode.py and read in decode.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch

from ..capture.dispatcher import Completeness, MissedOperation, UnknownTensor
from ..capture.functions import ALIAS_UPDATE, EDIT, IMPLICIT_VIEW, OUTPUT, UNEDITED, UNWRAP, WRAP, Function
from ..capture.records import Facts, ModuleInfo, TensorInfo
from .checks import flag, integer, listed, number, one_of, optional, sizes, text
from .columns import CompletenessRow, ModuleRow, TensorInfoRow
from .function_names import UnknownFunction, find, torch_name
from .tensors import dtype_name, dtype_named
from .trust import careful

Tables = dict[str, Any]

#: What stands in a log without a call.
_SYNTHETIC = {f.name: f for f in (OUTPUT, ALIAS_UPDATE, IMPLICIT_VIEW, WRAP, UNWRAP, EDIT, UNEDITED)}

#: The fields of a trace that are plain values, each with its check, and what files call one that was renamed.
PLAIN: dict[str, Callable[[Any], Any]] = {
    "model_name": text,
    "values_kept": flag,
    "complete": flag,
    "grad_enabled": flag,
    "submodule": lambda thing: optional(text, thing),
    "start_time": number,
    "end_time": number,
    "seconds": number,
    "warnings": lambda thing: listed(text, thing),
    "listed": lambda thing: optional(lambda numbers: listed(integer, numbers), thing),
}

NAMES_IN_FILES = {"submodule": "within"}


class Table:
    """Rows without repetition: what is equal is stored once and has one number."""

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
    """A text that UTF-8 can hold; names of files need not be one."""
    return name.encode("utf-8", "replace").decode()


# ---- type, shape and device ---------------------------------------------------------------------------------


def facts_row(facts: Facts) -> list[Any]:
    shape, dtype, device = facts
    return [_plain_shape(shape), dtype_name(dtype), str(device)]


def _plain_shape(shape: Iterable[Any]) -> list[int]:
    """The size of a jagged dimension is only a symbol."""
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


# ---- modules, parameters and buffers ------------------------------------------------------------------------


def module_row(info: ModuleInfo) -> ModuleRow:
    return ModuleRow(**info._asdict())


def read_module(data: Any) -> ModuleInfo:
    row = ModuleRow(*data)
    return ModuleInfo(
        address=text(row.address),
        all_addresses=tuple(listed(text, row.all_addresses)),
        class_name=text(row.class_name),
        training=flag(row.training),
        class_qualname=text(row.class_qualname),
        bases=tuple(listed(text, row.bases)),
    )


def tensor_info_row(info: TensorInfo) -> TensorInfoRow:
    return TensorInfoRow(**info._asdict())._replace(dtype=dtype_name(info.dtype), device=str(info.device))


def read_tensor_info(data: Any) -> TensorInfo:
    row = TensorInfoRow(*data)
    return TensorInfo(
        address=text(row.address),
        all_addresses=tuple(listed(text, row.all_addresses)),
        shape=None if row.shape is None else torch.Size(sizes(row.shape)),
        dtype=dtype_named(row.dtype),
        device=torch.device(text(row.device)),
        trainable=flag(row.trainable),
    )


# ---- what the dispatcher saw --------------------------------------------------------------------------------


def completeness_row(found: Completeness | None) -> Any:
    if found is None:
        return None
    missed = [[m.operation, clean(m.file), m.line] for m in found.missed]
    unknown = [[_plain_shape(t.shape), clean(t.file), t.line, clean(t.why)] for t in found.unknown]
    return CompletenessRow(found.operations, missed, unknown)


def read_completeness(data: Any) -> Completeness | None:
    if data is None:
        return None
    row = CompletenessRow(*data)
    return Completeness(
        integer(row.operations),
        [MissedOperation(text(o), text(f), integer(n)) for o, f, n in row.missed],
        [UnknownTensor(sizes(shape, -1), text(f), integer(n), text(why)) for shape, f, n, why in row.unknown],
    )

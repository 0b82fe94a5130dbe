"""What a call is called: layer types, and the operators of the language behind torch's functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from .._torch import LIBRARY_FOLDERS
from ..source import SavedCode, operator_name
from .functions import OPERATORS, Function
from .records import UNREAD, Call, Site, Trace, Value

_ROLE_TYPES = {
    "input": "input",
    "output": "output",
    "buffer": "buffer",
    "update": "buffer",
    "source": "source",
}

# `x / y` reaches torch as `div`; the language, and so the log, calls the operator truediv.
_DIVISIONS = {"div": "__truediv__", "div_": "__itruediv__"}

#: The layer type that says nothing yet: it depends on where the function was called.
DIVISION = "div"


def layer_type_of(value: Value, calls: list[Call]) -> str:
    """The first part of a value's label."""
    fixed = _ROLE_TYPES.get(value.role)
    if fixed is not None:
        return fixed
    call = calls[value.call]
    function = call.function
    return layer_type_at(function, call.site) if function.name in _DIVISIONS else function.layer_type


def layer_type_at(function: Function, site: Site) -> str:
    """The layer type of a call of this function."""
    if function.name in _DIVISIONS and operator_at(function.name, site) == _DIVISIONS[function.name]:
        return "truediv"
    return function.layer_type


def layer_types(function: Function) -> tuple[str, ...]:
    """The layer types that calls of this function may have."""
    return (function.layer_type, "truediv") if function.name in _DIVISIONS else (function.layer_type,)


def depends_on_site(function: Function) -> bool:
    """Does the layer type depend on how the function was called?"""
    return function.name in _DIVISIONS


def func_name(value: Value, calls: list[Call]) -> str | None:
    """The function that made a value: for an operator its special method, `__add__` for `x + y`; None if none did."""
    if value.call < 0 or value.role == "output":
        return None
    call = calls[value.call]
    return operator_at(call.function.name, call.site) or call.function.name


def operator_at(function_name: str, site: Site) -> str | None:
    """The dunder name of the Python operator that called the function here, if one did."""
    name = function_name.strip("_")
    for code, instruction in frames(site):
        operator = operator_name(code, instruction)
        if operator is not None:
            plain = operator.strip("_")
            return operator if OPERATORS.get(plain, plain) == name else None
        if not is_library_code(code):
            break
    return None


def grad_fn_name(value: Value, trace: Trace) -> str | None:
    """The class of the autograd node that made a tensor; None for a leaf, or if no gradient is required.

    In a graph of very many operations not every node is looked at: then it is that of the same function's other calls,
    if they agree.
    """
    if value.grad_fn != UNREAD:
        return value.grad_fn or None
    function = trace.calls[value.call].function
    same = [call.outputs for call in trace.calls if call.function is function]
    names = {output.grad_fn for outputs in same for output in outputs} - {None, "", UNREAD}
    return names.pop() if len(names) == 1 else UNREAD


def frames(site: Site) -> Iterator[tuple[CodeType, int]]:
    """The (code, instruction) pairs of a site, innermost first."""
    return zip(site[::2], site[1::2], strict=True)


def is_library_code(code: CodeType | SavedCode) -> bool:
    """Does this code belong to torch or to this package, rather than to the user?"""
    return code.is_library if isinstance(code, SavedCode) else is_library_file(code.co_filename)


@lru_cache(maxsize=4096)
def is_library_file(filename: str) -> bool:
    return filename.startswith((*LIBRARY_FOLDERS, "<frozen "))

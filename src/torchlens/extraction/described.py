"""How a store remembers the functions that a user gave: by name, and a hash of all that they do.

Two functions of one name may have other code, other defaults, another closure; two objects other attributes. A call
that resumes must not go on with another function, so whatever can be told apart is told apart.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .plan import hash_of_tensors, hash_of_weights

_PLAIN = (bool, int, float, complex, str, bytes, range, slice, type(None), type(...), torch.dtype, torch.device)
_NAMED = (type, ModuleType, BuiltinFunctionType)


def described_functions(functions: Sequence[Any]) -> str:
    """Functions that are applied in turn, for the plan."""
    return ", ".join(described_function(function) for function in functions)


def described_function(function: Any) -> str:
    """A function for the plan: ours as they print, others by their name and a hash of what they do."""
    if dataclasses.is_dataclass(function):
        return f"{function!r}{described_state(function)}"
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return name if isinstance(function, _NAMED) else f"{name}@{_digest(function)}"


def described_state(thing: Any) -> str:
    """A hash of what the print of an object may leave out, tensors and functions; empty if it has none of these."""
    return f" #{_digest(thing)}" if _is_hiding(thing) else ""


def _is_hiding(thing: Any) -> bool:
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return any(_is_hiding(getattr(thing, each.name)) for each in dataclasses.fields(thing))
    if isinstance(thing, (tuple, list)):
        return any(map(_is_hiding, thing))
    return isinstance(thing, (Tensor, np.ndarray)) or callable(thing)


def _digest(thing: Any) -> str:
    hashed = hashlib.sha256()
    for piece in _pieces(thing, {}):
        hashed.update(f"{piece}\n".encode())
    return hashed.hexdigest()[:12]


def _pieces(thing: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Texts that say what a thing is, without where it stands in memory or in a file."""
    if isinstance(thing, _PLAIN):
        yield repr(thing)
        return
    yield f"{type(thing).__module__}.{type(thing).__qualname__}"
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if isinstance(thing, _NAMED):
        yield f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing.__name__)}"
    elif isinstance(thing, Tensor):
        yield hash_of_tensors([("", thing)])
    elif isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        yield f"{thing.dtype} {thing.shape} {hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()}"
    elif isinstance(thing, nn.Module):
        yield f"{thing!r} {hash_of_weights(thing)} {[module.training for module in thing.modules()]}"
    elif isinstance(thing, (set, frozenset)):
        yield repr(sorted("".join(_pieces(each, dict(seen))) for each in thing))
    else:
        for part in _parts(thing):
            yield from _pieces(part, seen)


def _parts(thing: Any) -> Iterable[Any]:
    """What a thing consists of."""
    if isinstance(thing, Mapping):
        return [part for pair in thing.items() for part in pair]
    if isinstance(thing, (tuple, list)):
        return thing
    if isinstance(thing, FunctionType):
        return thing.__code__, thing.__defaults__, thing.__kwdefaults__, thing.__closure__, _globals_of(thing)
    if isinstance(thing, CodeType):
        return thing.co_code, thing.co_names, thing.co_consts
    if isinstance(thing, CellType):
        return _contents(thing)
    if isinstance(thing, partial):
        return thing.func, thing.args, thing.keywords
    if isinstance(thing, MethodType):
        return thing.__func__, thing.__self__
    return [getattr(thing, "__dict__", {})]


def _contents(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is still empty
        return []


def _globals_of(function: FunctionType) -> dict[str, Any]:
    """The numbers, texts, tensors and functions of its module that a function uses; others count by their names."""
    found = {}
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name)
        own = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if own or isinstance(value, (*_PLAIN, Tensor, np.ndarray)):
            found[name] = value
    return found


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))

"""The members of an object that a model takes or returns, one level deep.

| an object                                                   | what is in it                                       |
|-------------------------------------------------------------|-----------------------------------------------------|
| a mapping, sequence, set, named tuple, view of a dict, or    | its members, in order; then attributes of its own, |
| another collection that gives the same members twice         | if its class has any                               |
| a dataclass                                                 | its fields, in order; then other attributes         |
| any other object with attributes or `__slots__`             | these, in the order they are in                     |
| an object without any, registered with torch's pytree       | what that gives                                     |
| a NumPy array of objects                                    | its elements                                        |
| a module, optimizer, function, class, thread, file, error   | nothing: it is not data                             |

Attributes are read where they are stored: no property and no `__getattr__` of the user's runs.
"""

from __future__ import annotations

import dataclasses
import gc
import io
import logging
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Set
from enum import Enum
from itertools import chain, islice
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any

import torch
from torch import Tensor, nn

from .._torch import pytree_members

#: Types whose objects hold no tensors. This is checked for every argument of every call, so by exact type.
PLAIN = {
    int, float, bool, complex, str, bytes, type(None), EllipsisType, range, torch.Size, torch.dtype, torch.device,
    torch.layout,
}  # fmt: skip

#: Classes whose objects are not searched: they hold no tensors, or are not data.
ATOMS = (
    *PLAIN, bytearray, memoryview, slice, torch.Generator, nn.Module, type, ModuleType, FunctionType,
    BuiltinFunctionType, MethodType, CodeType, TracebackType, torch.optim.Optimizer, Enum, BaseException, io.IOBase,
    threading.Thread, logging.Logger, weakref.ref,
)  # fmt: skip

_BUILTIN = (tuple, list, dict, set, frozenset, deque)

#: How many objects to search for tensors behind one whose members are not known.
_SEARCHED = 1000


def members(thing: Any) -> Iterator[tuple[str, Any]]:
    """What is in an object, each with how to reach it: `[0]`, `['key']`, `.name`; nothing for what is no container."""
    if isinstance(thing, (Tensor, *ATOMS)):
        return
    if is_collection(thing):
        yield from _of_collection(thing)
    elif dataclasses.is_dataclass(thing):
        names = [field.name for field in dataclasses.fields(thing)]
        yield from ((f".{name}", getattr(thing, name, None)) for name in names)
        yield from ((f".{name}", each) for name, each in attributes(thing).items() if name not in names)
    elif found := attributes(thing):
        yield from ((f".{name}", member) for name, member in found.items())
    else:
        yield from ((f"[{i}]", member) for i, member in enumerate(pytree_members(thing)))


def is_collection(thing: Any) -> bool:
    """Has it members of its own, as a list has, and not only attributes?"""
    if isinstance(thing, _BUILTIN):
        return True
    if type(thing).__module__ == "numpy":
        return getattr(getattr(thing, "dtype", None), "kind", "") == "O" and bool(thing.ndim)
    return isinstance(thing, Collection) and not isinstance(thing, ATOMS) and _same_twice(thing)


def _same_twice(thing: Any) -> bool:
    """False for sequences that compute their members anew on each access."""
    try:
        walks = [list(thing.values() if isinstance(thing, Mapping) else thing) for _ in range(2)]
    except Exception:  # it is the user's own code: then only its attributes can tell
        return False
    return len(walks[0]) == len(walks[1]) and all(one is other for one, other in zip(*walks, strict=True))


def _of_collection(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        for i, (key, member) in enumerate(thing.items()):
            if type(key) not in PLAIN:
                yield f".keys()[{i}]", key
            yield (f".values()[{i}]" if isinstance(key, Tensor) else f"[{key!r}]"), member
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        yield from ((f".{name}", getattr(thing, name)) for name in thing._fields)
    elif isinstance(thing, Set):
        yield from (("", member) for member in thing)
    else:
        yield from ((f"[{i}]", member) for i, member in enumerate(thing))


def attributes(thing: Any) -> dict[str, Any]:
    """The attributes that an object has of its own, in `__slots__` and in `__dict__`."""
    found: dict[str, Any] = {}
    for kind in reversed(type(thing).__mro__):
        for name, slot in _slots(kind):
            try:
                found[name] = slot.__get__(thing, kind)
            except AttributeError:  # nothing in it yet
                continue
    own = getattr(type(thing), "__dict__", {}).get("__dict__")
    has_dict = type(thing).__dictoffset__ != 0 or isinstance(own, GetSetDescriptorType)
    return found | (dict(object.__getattribute__(thing, "__dict__")) if has_dict else {})


def _slots(kind: type) -> Iterator[tuple[str, MemberDescriptorType]]:
    """The slots that a class written in Python declares, in order; private names as they are stored."""
    if "__slots__" not in vars(kind):
        return
    names = vars(kind)["__slots__"]
    for name in [names] if isinstance(names, str) else names:
        stored = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
        slot = vars(kind).get(stored)
        if isinstance(slot, MemberDescriptorType):
            yield stored, slot


def hides_tensors(thing: Any) -> bool:
    """Does an object without known members refer to tensors, as an iterator over a list of tensors does?"""
    if not gc.is_tracked(thing):
        return False
    seen, pending = {id(thing)}, deque([thing])
    while pending and len(seen) < _SEARCHED:
        for held in _referents(pending.popleft()):
            if isinstance(held, Tensor):
                return True
            if id(held) not in seen and not isinstance(held, ATOMS):
                seen.add(id(held))
                pending.append(held)
    return False


def _referents(thing: Any) -> Iterator[Any]:
    if isinstance(thing, FrameType):  # not the frames and globals that it refers to
        return iter(list(thing.f_locals.values()))
    return chain.from_iterable([islice(gc.get_referents(thing), _SEARCHED)])

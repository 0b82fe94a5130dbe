"""Find and replace the tensors in whatever a model takes or returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from types import BuiltinFunctionType, EllipsisType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

#: What can hold no tensor, by exact type: asked for every argument of every call, so it must be quick.
PLAIN = {
    int, float, bool, complex, str, bytes, type(None), EllipsisType, range, torch.Size, torch.dtype, torch.device,
    torch.layout,
}  # fmt: skip

#: The same by class, for the rest.
_ATOMS = (*PLAIN, slice, torch.Generator, nn.Module, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def all_plain(members: tuple[Any, ...]) -> bool:
    """Is there nothing in a tuple, such as an index, but what can hold no tensor, and slices of that?"""
    for member in members:
        kind = type(member)
        if kind is slice:
            if type(member.start) not in PLAIN or type(member.stop) not in PLAIN or type(member.step) not in PLAIN:
                return False
        elif kind not in PLAIN:
            return False
    return True


def children(container: Any) -> Iterator[tuple[str, Any]]:
    """The members of a container with how to reach each, in order; nothing for anything that is no container."""
    if isinstance(container, (Tensor, *_ATOMS)):
        return
    if isinstance(container, Mapping):
        yield from ((f"[{key!r}]", member) for key, member in container.items())
    elif isinstance(container, tuple) and hasattr(container, "_fields"):
        yield from ((f".{name}", getattr(container, name)) for name in container._fields)
    elif isinstance(container, (tuple, list)):
        yield from ((f"[{i}]", member) for i, member in enumerate(container))
    elif isinstance(container, (set, frozenset)):
        yield from (("", member) for member in container)
    elif dataclasses.is_dataclass(container):
        yield from ((f".{f.name}", getattr(container, f.name, None)) for f in dataclasses.fields(container))
    else:
        yield from ((f".{name}", member) for name, member in getattr(container, "__dict__", {}).items())


def tensors_in(container: Any) -> list[tuple[str, Tensor]]:
    """Every tensor in a nest of containers, in order, with its path, such as `[0].logits`.

    Objects that are no containers are looked into as well, each once: they may refer to each other.
    """
    found: list[tuple[str, Tensor]] = []
    _collect(container, "", set(), found)
    return found


def _collect(thing: Any, path: str, seen: set[int], found: list[tuple[str, Tensor]]) -> None:
    if type(thing) in PLAIN:
        return
    if isinstance(thing, Tensor):
        found.append((path, thing))
    elif not isinstance(thing, _ATOMS) and id(thing) not in seen:
        seen.add(id(thing))
        for step, member in children(thing):
            _collect(member, path + step, seen, found)
        if isinstance(thing, (tuple, list, dict)):
            seen.discard(id(thing))


def flat_tensors(container: Iterable[Any]) -> list[Tensor]:
    """The tensors in a nest of containers, without paths; quick, since it looks into nothing but containers."""
    found: list[Tensor] = []
    for member in container:
        kind = type(member)
        if kind is Tensor:
            found.append(member)
        elif kind is tuple or kind is list:
            found += flat_tensors(member)
        elif kind in PLAIN:
            continue
        elif isinstance(member, Tensor):
            found.append(member)
        elif isinstance(member, (tuple, list, Mapping)) or dataclasses.is_dataclass(member):
            found += flat_tensors([inner for _, inner in children(member)])
    return found


def replace_tensors(thing: Any, replace: Callable[[Tensor], Any]) -> Any:
    """A copy of a nest of tuples, lists, dicts and slices with each tensor replaced; anything else stays as it is."""
    if isinstance(thing, Tensor):
        return replace(thing)
    return rebuild(thing, lambda member: replace_tensors(member, replace))


def rebuild(thing: Any, convert: Callable[[Any], Any]) -> Any:
    """A copy of one tuple, list, dict or slice with each member converted; anything else is returned as it is."""
    kind = type(thing)
    if kind is tuple or kind is list:
        return kind([convert(member) for member in thing])
    if kind is slice:
        return slice(convert(thing.start), convert(thing.stop), convert(thing.step))
    if isinstance(thing, dict):
        return {key: convert(member) for key, member in thing.items()}
    if isinstance(thing, tuple) and kind is not torch.Size:
        members = [convert(member) for member in thing]
        return kind(*members) if hasattr(thing, "_fields") else kind(members)
    return thing


def paired(stored: Any, given: Any) -> Iterator[tuple[Any, Tensor]]:
    """Each tensor in a nest of containers with what stands in its place in a copy made by `replace_tensors`."""
    if isinstance(given, Tensor):
        yield stored, given
    elif isinstance(given, dict):
        for key, member in given.items():
            yield from paired(stored[key], member)
    elif isinstance(given, (tuple, list)):
        for one, other in zip(stored, given, strict=True):
            yield from paired(one, other)
    elif isinstance(given, slice):
        yield from paired((stored.start, stored.stop, stored.step), (given.start, given.stop, given.step))


def reconstructed(thing: Any, kind: type, convert: Callable[[Any], Any], memo: dict[int, Any] | None = None) -> Any:
    """A copy of whatever a model returns, with each member of a kind converted. What holds none stays as it is."""
    memo = {} if memo is None else memo
    if isinstance(thing, kind):
        return convert(thing)
    if id(thing) in memo or not _holds(thing, kind, set()):
        return memo.get(id(thing), thing)
    if type(thing) in (tuple, list, dict) or isinstance(thing, tuple):
        return rebuild(thing, lambda member: reconstructed(member, kind, convert, memo))
    if isinstance(thing, (set, frozenset)):
        return type(thing)(reconstructed(member, kind, convert, memo) for member in thing)
    new = memo[id(thing)] = copy(thing)
    if isinstance(thing, Mapping):
        for key, member in thing.items():
            new[key] = reconstructed(member, kind, convert, memo)
        return new
    names = [f.name for f in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else list(vars(thing))
    for name in names:
        object.__setattr__(new, name, reconstructed(getattr(thing, name, None), kind, convert, memo))
    return new


def _holds(thing: Any, kind: type, seen: set[int]) -> bool:
    if isinstance(thing, kind):
        return True
    if id(thing) in seen:
        return False
    seen.add(id(thing))
    return any(_holds(member, kind, seen) for _, member in children(thing))


def put_in(result: Any, tensors: Mapping[int, Tensor]) -> Any:
    """What a call or a module returned, with other tensors in place of some, by the ids of these."""
    if isinstance(result, Tensor):
        return tensors.get(id(result), result)
    return reconstructed(result, Tensor, lambda tensor: tensors.get(id(tensor), tensor))


def fresh_copy(thing: Any) -> Any:
    """The same with its own tensors, so that what a model does to them stays without consequence."""
    return replace_tensors(thing, lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad))

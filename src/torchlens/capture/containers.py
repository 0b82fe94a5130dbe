"""Find and replace the tensors in whatever a model takes or returns; members.py says what is looked into."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence, Set
from copy import copy
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._torch import pytree_rebuilt
from .members import ATOMS, PLAIN, attributes, hides_tensors, is_collection, members

__all__ = [
    "PLAIN",
    "Unseen",
    "all_plain",
    "flat_tensors",
    "fresh_copy",
    "holds",
    "paired",
    "put_in",
    "rebuild",
    "reconstructed",
    "replace_tensors",
    "tensors_in",
]


def all_plain(container: Iterable[Any]) -> bool:
    """Does a tuple, such as an index, consist of plain objects that can't hold a tensor, and slices of these?"""
    for member in container:
        kind = type(member)
        if kind is slice:
            if type(member.start) not in PLAIN or type(member.stop) not in PLAIN or type(member.step) not in PLAIN:
                return False
        elif kind not in PLAIN:
            return False
    return True


class Unseen(NamedTuple):
    """An object that can't be looked into, though there may be tensors in it."""

    path: str
    what: str  # its class, or the note that there was too much to search
    holds: bool  # does it hold tensors now? A generator may compute them only later


#: At most this many objects are searched, of what a model takes or returns.
_MOST = 100_000
_RUNNING = (GeneratorType, CoroutineType, AsyncGeneratorType)


def tensors_in(container: Any, unseen: list[Unseen] | None = None) -> list[tuple[str, Tensor]]:
    """Every tensor in a nest of containers, in order, with its path, such as `[0].logits`.

    Objects that are no containers are looked into as well, each once: they may refer to each other. What can't be
    looked into, and hides tensors, is added to `unseen`.
    """
    search = _Search()
    search.collect(container, "")
    if unseen is not None:
        unseen += search.unseen
    return search.found


class _Search:
    def __init__(self) -> None:
        self.found: list[tuple[str, Tensor]] = []
        self.unseen: list[Unseen] = []
        self.seen: dict[int, Any] = {}  # it keeps them, so that no id is used twice
        self.looked_into = 0

    def collect(self, thing: Any, path: str) -> None:
        if type(thing) in PLAIN:
            return
        if isinstance(thing, Tensor):
            self.found.append((path, thing))
        elif not isinstance(thing, ATOMS) and id(thing) not in self.seen:
            self.seen[id(thing)] = thing
            self.looked_into += 1
            if self.looked_into > _MOST:
                self._stop()
            elif not self._collect_members(thing, path):
                holds = hides_tensors(thing)
                if holds or isinstance(thing, _RUNNING):
                    self.unseen.append(Unseen(path, type(thing).__name__, holds))
            if isinstance(thing, (tuple, list, dict)):
                del self.seen[id(thing)]

    def _collect_members(self, thing: Any, path: str) -> bool:
        """Is there anything in it?"""
        before = len(self.found)
        empty = True
        for step, member in members(thing):
            empty = False
            self.collect(member, path + step)
        if type(thing) not in _BUILTIN and is_collection(thing):
            inside, here = {id(tensor) for _, tensor in self.found[before:]}, len(self.found)
            for name, member in attributes(thing).items():
                self.collect(member, f"{path}.{name}")
            self.found[here:] = [(path, tensor) for path, tensor in self.found[here:] if id(tensor) not in inside]
            empty = False
        return not empty

    def _stop(self) -> None:
        if self.looked_into == _MOST + 1:
            self.unseen.append(Unseen("", f"more than {_MOST} objects", True))


_BUILTIN = {tuple, list, dict, set, frozenset, deque}


def flat_tensors(container: Iterable[Any]) -> list[Tensor]:
    """The tensors in a nest of containers, without paths; quick, since it looks into nothing but containers."""
    found: list[Tensor] = []
    if not _flatten(container, found, 50):
        return [tensor for _, tensor in tensors_in(container if isinstance(container, list) else list(container))]
    return found


def _flatten(container: Iterable[Any], found: list[Tensor], levels: int) -> bool:
    """False if the nesting is deeper than this, as in a list that contains itself."""
    for member in container:
        kind = type(member)
        if kind is Tensor:
            found.append(member)
        elif kind is tuple or kind is list:
            if not levels or not _flatten(member, found, levels - 1):
                return False
        elif kind in PLAIN:
            continue
        elif isinstance(member, Tensor):
            found.append(member)
        elif isinstance(member, dict):
            if not levels or not _flatten(member.values(), found, levels - 1):
                return False
        elif _is_quickly_walked(member, kind) and not (
            levels and _flatten([inner for _, inner in members(member)], found, levels - 1)
        ):
            return False
    return True


def _is_quickly_walked(thing: Any, kind: type) -> bool:
    """A container, or an object that is only data; not one with arbitrary attributes, such as a cache or a config."""
    if isinstance(thing, ATOMS):
        return False
    if isinstance(thing, (Sequence, Mapping, Set)) or dataclasses.is_dataclass(thing):
        return True
    return kind.__dictoffset__ == 0 and bool(getattr(kind, "__slots__", ()))


def replace_tensors(thing: Any, replace: Callable[[Tensor], Any]) -> Any:
    """A copy of a nest of tuples, lists, dicts and slices with each tensor replaced; anything else stays as it is."""
    if isinstance(thing, Tensor):
        return replace(thing)
    return rebuild(thing, lambda member: replace_tensors(member, replace))


def rebuild(thing: Any, convert: Callable[[Any], Any]) -> Any:
    """A copy of one tuple, list, dict or slice with each member converted; anything else is returned as it is.

    Other sequences, which some functions take as well, become lists.
    """
    kind = type(thing)
    if kind is tuple or kind is list:
        return kind([convert(member) for member in thing])
    if kind is slice:
        return slice(convert(thing.start), convert(thing.stop), convert(thing.step))
    if isinstance(thing, dict):
        return {key: convert(member) for key, member in thing.items()}
    if isinstance(thing, tuple) and kind is not torch.Size:
        converted = [convert(member) for member in thing]
        return kind(*converted) if hasattr(thing, "_fields") else kind(converted)
    return [convert(member) for member in thing] if _is_sequence(thing) else thing


def _is_sequence(thing: Any) -> bool:
    return isinstance(thing, Sequence) and not isinstance(thing, ATOMS)


def paired(stored: Any, given: Any) -> Iterator[tuple[Any, Tensor]]:
    """Each tensor in nested containers, with what replaced it in a copy made by `replace_tensors`."""
    if isinstance(given, Tensor):
        yield stored, given
    elif isinstance(given, dict):
        for key, member in given.items():
            yield from paired(stored[key], member)
    elif _is_sequence(given):
        for one, other in zip(stored, given, strict=True):
            yield from paired(one, other)
    elif isinstance(given, slice):
        yield from paired((stored.start, stored.stop, stored.step), (given.start, given.stop, given.step))


def reconstructed(thing: Any, kind: type, convert: Callable[[Any], Any], memo: dict[int, Any] | None = None) -> Any:
    """A copy of whatever a model returns, with each member of one kind converted. What holds none is not copied."""
    memo = {} if memo is None else memo
    if isinstance(thing, kind):
        return convert(thing)
    if id(thing) in memo or not holds(thing, kind, {}):
        return memo.get(id(thing), thing)

    def again(member: Any) -> Any:
        return reconstructed(member, kind, convert, memo)

    if isinstance(thing, tuple):
        return rebuild(thing, again)
    if isinstance(thing, (set, frozenset)):
        return type(thing)(again(member) for member in thing)
    if isinstance(thing, MappingProxyType):
        return MappingProxyType({key: again(member) for key, member in thing.items()})
    if not is_collection(thing) and not dataclasses.is_dataclass(thing) and not attributes(thing):
        return pytree_rebuilt(thing, [again(member) for _, member in members(thing)])
    new = memo[id(thing)] = copy(thing)
    _refill(new, thing, again)
    return new


def _refill(new: Any, thing: Any, again: Callable[[Any], Any]) -> None:
    """Put the converted members and attributes of an object into a copy of it."""
    own = attributes(thing)
    if isinstance(thing, MutableMapping):
        keys = [again(key) for key in thing]
        if any(key is not old for key, old in zip(keys, thing, strict=True)):
            new.clear()
        for key, member in zip(keys, thing.values(), strict=True):
            new[key] = again(member)
    elif isinstance(thing, MutableSequence) or (is_collection(thing) and type(thing).__module__ == "numpy"):
        for i, member in enumerate(thing):
            new[i] = again(member)
    elif is_collection(thing) and not own:
        raise TypeError(f"{type(thing).__name__} can't be rebuilt with other members")
    if dataclasses.is_dataclass(thing):
        own = {f.name: getattr(thing, f.name, None) for f in dataclasses.fields(thing)} | own
    for name, member in own.items():
        converted = again(member)
        if converted is not member:
            object.__setattr__(new, name, converted)


def holds(thing: Any, kind: type, seen: dict[int, Any]) -> bool:
    """Is there something of this kind in an object? `seen` is for what refers to itself."""
    if isinstance(thing, kind):
        return True
    if type(thing) in PLAIN or id(thing) in seen:
        return False
    seen[id(thing)] = thing
    if any(holds(member, kind, seen) for _, member in members(thing)):
        return True
    if type(thing) in _BUILTIN or isinstance(thing, ATOMS) or not is_collection(thing):
        return False
    return any(holds(member, kind, seen) for member in attributes(thing).values())


def put_in(result: Any, tensors: Mapping[int, Tensor]) -> Any:
    """What a call or a module returned, with other tensors in place of some, by the ids of these."""
    if isinstance(result, Tensor):
        return tensors.get(id(result), result)
    return reconstructed(result, Tensor, lambda tensor: tensors.get(id(tensor), tensor))


def fresh_copy(thing: Any) -> Any:
    """The same with its own tensors, so that nothing a model does to them is seen by the caller."""
    copies: dict[int, Tensor] = {}

    def own(tensor: Tensor) -> Tensor:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return copies[id(tensor)]

    try:
        return reconstructed(thing, Tensor, own)
    except Exception:  # an object of the user's that can't be copied is given as it is
        return replace_tensors(thing, own)

"""Stand-ins, in a loaded log, for objects whose classes are not imported.

A file names classes, and none of them is imported. What the model returned comes back as objects of new classes, which
have the name of the original class and one of these bases, and no code of their own.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, TypeVar

T = TypeVar("T", bound=type)


class SavedObject:
    """An object that was not saved: its class and what it printed as."""

    def __init__(self, type_name: str, description: str) -> None:
        self.type_name = type_name
        self.description = description

    def __repr__(self) -> str:
        return f"SavedObject({self.description})"


class SavedRecord:
    """An object with attributes, such as a dataclass. It is read-only."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} comes from a file and is read-only")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; it has {', '.join(vars(self))}")

    def __repr__(self) -> str:
        return _print_of(self, vars(self))


class SavedDict(dict[Any, Any]):
    """An object of a class derived from dict, or of another mapping, with its attributes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class SavedList(list[Any]):
    """An object of a class derived from list, or of another sequence, with its attributes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class SavedTuple(tuple[Any, ...]):
    """A tuple of a class of its own, without names."""


class SavedNamedTuple(tuple[Any, ...]):
    """A named tuple."""

    _fields: tuple[str, ...] = ()

    def __new__(cls, *members: Any) -> SavedNamedTuple:
        return super().__new__(cls, members)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return _print_of(self, dict(zip(self._fields, self, strict=True)))


def _print_of(thing: Any, fields: dict[str, Any]) -> str:
    return f"{type(thing).__name__}({', '.join(f'{name}={member!r}' for name, member in fields.items())})"


def class_like(base: T, type_name: str, names: tuple[str, ...] = ()) -> T:
    """A class without code of its own that is called like another, and has a member for each name."""
    content: dict[str, Any] = {name: property(itemgetter(i)) for i, name in enumerate(names)}
    content |= {"__type_name__": type_name, "__module__": __name__}
    if base is SavedNamedTuple:
        content["_fields"] = names
    made: Any = type(type_name.rpartition(".")[2], (base,), content)
    return made  # type: ignore[no-any-return]


def type_name_of(thing: Any) -> str:
    """The full name of an object's class, or of the class that a stand-in has in its place."""
    kind = type(thing)
    name: str = getattr(kind, "__type_name__", None) or f"{kind.__module__}.{kind.__qualname__}"
    return name

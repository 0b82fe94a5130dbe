"""What users write: selectors of all kinds, checked as far as that is possible without a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError

Predicate = Callable[[Any], Any]


class Combination:
    """Several selectors as one: what `all_of`, `any_of` and `~` return."""

    def __init__(self, word: str, members: tuple[Selector, ...]) -> None:
        self.word = word
        self.members = members

    def __invert__(self) -> Combination:
        return self.members[0] if self.word == "~" else Combination("~", (self,))  # type: ignore[return-value]

    def __repr__(self) -> str:
        if self.word == "~":
            return f"~{self.members[0]!r}"
        return f"tl.{self.word}({', '.join(selector_text(member) for member in self.members)})"


Selector = str | int | type | re.Pattern[str] | Predicate | Combination


def all_of(*selectors: Selector) -> Combination:
    """The operations that every one of these selectors chooses.

    >>> [op.label for op in log.select(tl.all_of("relu", ~tl.any_of("relu_module")))]
    ['relu_2_4']
    """
    return _combination("all_of", selectors)


def any_of(*selectors: Selector) -> Combination:
    """The operations that at least one of these selectors chooses; `~any_of(...)` are all the others.

    >>> [op.label for op in log.select(tl.any_of("fc", "relu"))]
    ['relu_1_2', 'linear_1_3', 'relu_2_4']
    """
    return _combination("any_of", selectors)


def _combination(word: str, selectors: tuple[Selector, ...]) -> Combination:
    members = Selection.checked(selectors, f"tl.{word}").selectors
    if not members:
        raise ArgumentError(f"tl.{word}() needs at least one selector")
    return Combination(word, members)


@dataclass(frozen=True)
class Selection:
    """Selectors, checked: of the right types, none of them empty."""

    selectors: tuple[Selector, ...]
    argument: str = "selector"  # that they were given as

    @classmethod
    def checked(cls, wanted: Any, argument: str) -> Selection:
        """A selection from what a user gave as `argument`: one selector, or a list, tuple or set of them."""
        given = wanted if is_several(wanted) else [wanted]
        return cls(tuple([_checked(selector, argument) for selector in given]), argument)


def is_several(wanted: Any) -> bool:
    """Is this a list, tuple or set of selectors, rather than one?"""
    return isinstance(wanted, Iterable) and not isinstance(wanted, (str, type)) and not callable(wanted)


def is_selector(thing: Any) -> bool:
    try:
        _checked(thing, "")
    except ArgumentError:
        return isinstance(thing, str)
    return True


#: Of no selectors.
NOTHING = Selection(())


def _checked(selector: Any, argument: str) -> Selector:
    if isinstance(selector, str):
        if not selector.strip():
            raise ArgumentError(f"{argument}: an empty string chooses nothing")
        return selector.strip()
    if isinstance(selector, (Combination, re.Pattern)):
        return selector
    if hasattr(selector, "__index__") and not isinstance(selector, (bool, type)):
        return int(selector.__index__())
    if hasattr(selector, "named_modules") and not isinstance(selector, type):
        raise ArgumentError(f"{argument}: a module is chosen by its address or its class, not by the module itself")
    if callable(selector):  # a class or a predicate
        return selector  # type: ignore[no-any-return]
    raise ArgumentError(
        f"{argument}: {selector!r} can't choose anything; labels, module addresses, patterns, module classes, "
        "numbers and functions can"
    )


def selector_text(selector: Any) -> str:
    """A selector for error messages: a function by its name and line, a class by its name."""
    if isinstance(selector, type):
        return f"the class {selector.__name__}"
    code = getattr(selector, "__code__", None)
    if code is None:
        return repr(selector)
    return f"{selector.__name__} ({code.co_filename}:{code.co_firstlineno})"

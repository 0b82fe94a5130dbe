"""One language for choosing operations: what to save, to draw, to follow.

A selector is

    "conv2d_3_7", "conv2d_3", "conv2d_3_7:2"    a label, short or with a pass
    "features.6", "features.6:2"                a module: what it returned
    7, -5                                       a number, counted over the whole graph
    "conv"                                      part of a label: every layer that has it
    lambda op: op.tensor_shape[0] > 1           a predicate, asked for every operation

or a list of selectors, which chooses what any of them does. A string means the first of these that it fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .errors import ArgumentError

Selector = str | int | Callable[[Any], Any]

_LABEL = re.compile(r"[a-z0-9]+_\d+(_\d+)?")


@dataclass(frozen=True)
class Selection:
    """Selectors, checked: of the right types, none of them empty."""

    selectors: tuple[Selector, ...]

    @classmethod
    def checked(cls, wanted: Any, argument: str) -> Selection:
        """A selection from what a user gave as `argument`: one selector, or a list, tuple or set of them."""
        several = isinstance(wanted, Iterable) and not isinstance(wanted, str) and not callable(wanted)
        return cls(tuple([_checked(selector, argument) for selector in (wanted if several else [wanted])]))


def _checked(selector: Any, argument: str) -> Selector:
    if isinstance(selector, str):
        if not selector.strip():
            raise ArgumentError(f"{argument}: an empty string chooses nothing")
        return selector.strip()
    if hasattr(selector, "__index__") and not isinstance(selector, bool):
        return int(selector.__index__())
    if callable(selector):
        predicate: Callable[[Any], Any] = selector
        return predicate
    raise ArgumentError(
        f"{argument}: {selector!r} can't choose anything; labels, module addresses, numbers and functions can"
    )


def described(selector: Selector) -> str:
    """A selector for error messages: a function by its name and line."""
    code = getattr(selector, "__code__", None)
    if code is None:
        return repr(selector)
    return f"{selector.__name__} ({code.co_filename}:{code.co_firstlineno})"  # type: ignore[union-attr]


def split_pass(name: str) -> tuple[str, int | None]:
    """`fc:2` is the second pass of `fc`."""
    stem, _, number = name.rpartition(":")
    return (stem, int(number)) if stem and number.isdecimal() else (name, None)


def may_be_label(name: str) -> bool:
    """Does a name have the form of a label, `conv2d_3_7` or `conv2d_3`?"""
    return _LABEL.fullmatch(name) is not None


def may_be_in_labels_of(part: str, layer_type: str) -> bool:
    """Can a label of a layer of this type, `{type}_{number}_{number}`, contain `part`? True if it is not certain."""
    head, underscore, _ = part.partition("_")
    if underscore:
        return layer_type.endswith(head)
    return part in layer_type or part.isdecimal()


def is_certain(part: str) -> bool:
    """Does the type alone decide whether a label contains `part`?"""
    return "_" not in part and not part.isdecimal()

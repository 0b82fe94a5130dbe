"""The user's own numbers, by which a page can colour operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..draw.view.drawable import Drawable
from ..errors import ArgumentError, near
from ..graph.graph import Graph

#: A number for each layer or module, by name; or a function that returns the number of an operation, or None.
Numbers = Mapping[str, float] | Callable[[Any], float | None]


def page_numbers(log: Drawable, numbers: Mapping[str, Numbers] | None) -> dict[str, list[float | None]]:
    """For each name, a list with one number (or None) for each entry of the graph."""
    if numbers is None:
        return {}
    if not isinstance(numbers, Mapping):
        raise ArgumentError(f"numbers must be a dict from names to dicts or functions, not {numbers!r}")
    return {str(name): _column(log, str(name), each) for name, each in numbers.items()}


def _column(log: Drawable, name: str, numbers: Any) -> list[float | None]:
    size = len(log.graph.entries)
    if callable(numbers):
        return [_number(name, numbers(log.layer_at(place))) for place in range(size)]
    if not isinstance(numbers, Mapping):
        raise ArgumentError(f"numbers: {name!r} must be a dict from labels to numbers or a function, not {numbers!r}")
    known = _names(log.graph)
    column: list[float | None] = [None] * size
    for key, value in numbers.items():
        if key not in known:
            raise ArgumentError(f"numbers: no layer or module {key!r}{near(str(key), known)}")
        for place in known[key]:
            column[place] = _number(name, value)
    return column


def _names(graph: Graph) -> dict[str, list[int]]:
    """What an operation may be called: its label, its layer, the module that returned it."""
    names: dict[str, list[int]] = {}
    modules = graph.modules
    for call in range(len(modules.calls)):
        if modules.address(call):
            names.setdefault(modules.address(call), []).extend(modules.outputs(call))
            names.setdefault(modules.label(call), list(modules.outputs(call)))
    for layer, label in enumerate(graph.layer_labels):
        names[label] = graph.layer_entries[layer]
    for place in range(len(graph.entries)):
        names[graph.label(place)] = [place]
    return names


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"numbers: {name!r} has {value!r}, which is not a number") from None
    return number if math.isfinite(number) else None

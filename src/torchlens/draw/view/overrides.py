"""Looks that users give to nodes, edges and module boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ...errors import ArgumentError, near
from .elements import Edge, Group, Node, Text
from .theme import color, readable_on
from .view_options import Override

Element = TypeVar("Element", Node, Edge, Group)

#: Graphviz's names for the same things.
_GRAPHVIZ_NAMES = {
    "fillcolor": "fill",
    "color": "line",
    "fontcolor": "font",
    "penwidth": "pen",
    "style": "dashed",
    "xlabel": "label",
}
_COLORS = {"fill", "fill2", "line", "font"}
_ONLY_NODES = {"shape", "tooltip", "fill2"}
_SHAPES = ("box", "ellipse", "box3d")


def apply_override(element: Element, override: Override | None, *records: Any) -> Element:
    """The element with the attributes that the user wants otherwise.

    An override is a dict of attributes, whose values may be functions of the record, or a function of the record that
    returns such a dict.
    """
    if override is None:
        return element
    wanted = override(*records) if callable(override) else override
    changes: dict[str, Any] = {}
    for given, value in _mapping(wanted).items():
        if isinstance(element, Group) and given in _ONLY_NODES:  # a module is a box now, a node when it is collapsed
            continue
        name, value = _checked(element, given, value(*records) if callable(value) else value)
        changes[name] = value
    if changes.get("fill") and isinstance(element, Node):
        changes.setdefault("font", readable_on(changes["fill"]))
    return element._replace(**changes)


def _mapping(wanted: Any) -> Mapping[str, Any]:
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        raise ArgumentError(f"an override must be a dict of attributes, not {wanted!r}")
    return wanted


def _checked(element: Node | Edge | Group, given: str, value: Any) -> tuple[str, Any]:
    name = _GRAPHVIZ_NAMES.get(given, given)
    lines = "label" if isinstance(element, Edge) else "lines"
    if name in ("label", "lines"):
        return lines, _lines(value)
    usable = {"tooltip", "shape", "pen", "dashed", *_COLORS} & set(element._fields)
    if name not in usable:
        names = [*usable, "label"]
        raise ArgumentError(f"no attribute {given!r}{near(given, names)} The attributes are {', '.join(sorted(names))}")
    if name in _COLORS:
        return name, None if value is None and name in ("fill", "fill2") else color(value)
    if name == "pen":
        return name, _width(value)
    if name == "shape" and value not in _SHAPES:
        raise ArgumentError(f"a shape must be one of {', '.join(_SHAPES)}, not {value!r}")
    if name == "dashed":
        return name, "dashed" in value if isinstance(value, str) else bool(value)
    return name, str(value)


def _width(value: Any) -> float:
    try:
        width = float(value)
    except (TypeError, ValueError):
        width = -1.0
    if not 0 <= width <= 100:
        raise ArgumentError(f"a line's width must be a number from 0 to 100, not {value!r}")
    return width


def _lines(value: Any) -> tuple[Text, ...]:
    lines = value.split("\n") if isinstance(value, str) else [str(line) for line in value]
    return tuple(Text(line, bold=number == 0) for number, line in enumerate(lines))

"""Colour nodes by a number: time, memory, work, or a user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import ArgumentError, near
from ...graph.graph import Graph
from ...words import human_size
from .contents import Contents, Spot
from .drawable import Drawable
from .elements import Legend
from .theme import SCALE
from .view_options import ViewOptions


def _seconds(graph: Graph, place: int) -> float:
    value = graph.entries[place]
    call = graph.trace.calls[value.call] if value.call >= 0 and value.role == "op" else None
    return call.time / 1e9 if call is not None and call.outputs[0] is value else 0.0


def _in_words(amount: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(amount) >= size:
            return f"{amount / size:.3g} {unit}"
    return f"{amount:.3g}"


#: What an entry has of each, and how to write it.
AMOUNTS: dict[str, tuple[Callable[[Graph, int], float], Callable[[float], str]]] = {
    "time": (_seconds, lambda seconds: f"{1e3 * seconds:.3g} ms"),
    "memory": (lambda graph, place: float(graph.entries[place].nbytes), lambda size: human_size(int(size))),
    "flops": (lambda graph, place: float(graph.costs[place].flops or 0), _in_words),
}


def amounts_of(
    log: Drawable, contents: Contents, options: ViewOptions, layer: Callable[[int], Any]
) -> tuple[dict[str, float], Legend | None]:
    """For each spot that has one, its share of the largest amount; and what the colours mean.

    A collapsed module has what the operations in it have together.
    """
    by = options.vis_color_by
    if by is None:
        return {}, None
    if isinstance(by, str):
        amount, written = AMOUNTS[by]
        found = {
            spot.id: sum(amount(contents.graph, place) for place in spot.places)
            for spot in contents.spots
            if spot.box is not None or contents.graph.entries[spot.places[0]].role == "op"
        }
        title = by
    else:
        found, written = _of_the_user(log, contents, by, layer), _in_words
        title = getattr(by, "__name__", "value") if callable(by) else "value"
        title = "value" if title == "<lambda>" else title
    low, high = min([0.0, *found.values()]), max(found.values(), default=0.0)
    spread = (high - low) or 1.0
    legend = Legend(title, written(low), written(high), SCALE)
    return {id: (value - low) / spread for id, value in found.items()}, legend


def _of_the_user(log: Drawable, contents: Contents, by: Any, layer: Callable[[int], Any]) -> dict[str, float]:
    if isinstance(by, Mapping):
        names = {name: spot for spot in contents.spots for name in _names(contents, spot)}
        unknown = [name for name in by if name not in names and not _is_known(log, name)]
        if unknown:
            raise ArgumentError(f"vis_color_by: no layer or module {unknown[0]!r}{near(str(unknown[0]), names)}")
        return {names[name].id: _number(name, value) for name, value in by.items() if name in names}
    found = {}
    for spot in contents.spots:
        places = spot.places if spot.box is not None or spot.gathered else spot.places[:1]
        values = [] if spot.end else [value for value in map(by, map(layer, places)) if value is not None]
        if values:
            found[spot.id] = sum(_number(spot.id, value) for value in values)
    return found


def _names(contents: Contents, spot: Spot) -> list[str]:
    """What a user may call it: label with or without pass, or the module it stands for."""
    if spot.box is not None:
        return [contents.module_boxes.name(spot.box)[1:], contents.module_boxes.address(spot.box)]
    graph, names = contents.graph, [spot.id]
    for place in spot.places if spot.gathered else spot.places[:1]:
        leaf = contents.module_boxes.leaf(place)
        names += [graph.label(place), graph.layer_labels[graph.layers[place]]]
        names += [graph.modules.address(leaf)] if leaf is not None else []
    return names


def _is_known(log: Drawable, name: Any) -> bool:
    """Names of the log that this picture does not show are accepted: they may be inside a collapsed module."""
    return name in log.graph.modules.numbers or (isinstance(name, str) and name in log)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"vis_color_by: {name} has {value!r}, which is not a number") from None
    if not math.isfinite(number):
        raise ArgumentError(f"vis_color_by: {name} has {number}, which has no place on a colour scale")
    return number

"""One line for each operation: in `print(log)`, in its repr, in a list of operations."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ..capture.records import distinct_shapes
from ..graph.graph import Graph
from ..graph.program import Edges, Ints, ints, number_by_first_use
from ..words import aligned, tensor_words, words_of

if TYPE_CHECKING:
    from .layer_log import LayerLog
    from .op_log import OpLog

T = TypeVar("T")

#: A longer listing has each layer once; if it is still longer, its middle is left out.
MOST_LINES = 200
_MOST_PARENTS = 4


class Listed(list[T]):
    """A list that shows each of its members on a line of its own."""

    def __repr__(self) -> str:
        lines = ",\n ".join(map(repr, self))
        return f"[{lines}]"


class Numbered(dict[int, T]):
    """A dict that shows each of its members on a line of its own."""

    def __repr__(self) -> str:
        lines = ",\n ".join([f"{number}: {member!r}" for number, member in self.items()])
        return f"{{{lines}}}"


def layer_lines(graph: Graph) -> list[str]:
    """A line for every listed operation, with shape and module; where there are very many, for every layer."""
    every = isinstance(graph.listed, range)
    listed = np.arange(len(graph.listed)) if every else ints(graph.listed)
    by_layer = len(listed) > MOST_LINES
    lines_of = _layers_among(graph, listed) if by_layer else np.arange(len(listed))
    groups = Edges.of(np.bincount(lines_of), np.argsort(lines_of, kind="stable"))  # the operations of each line
    total = len(groups.heads) - 1
    first, last = shown_of(total)
    shown = groups.into(np.concatenate((np.arange(first), np.arange(last, total))))
    numbers = shown.sources[shown.heads[:-1]].tolist()
    lines = aligned(*_columns(graph, numbers, Edges(shown.heads, listed[shown.sources])))
    left_out = [f"... {last - first:,} more layers: log.layer_list has every operation, log[{first}:{first + 50}] some"]
    return [*lines[:first], *(left_out if last > first else []), *lines[first:]]


def _layers_among(graph: Graph, listed: Ints) -> Ints:
    """The layer of each listed entry, as a number among the layers that are listed."""
    return graph.layer_of if len(listed) == len(graph.layer_of) else number_by_first_use(graph.layer_of[listed])


def shown_of(count: int, most: int = MOST_LINES) -> tuple[int, int]:
    """Of so many lines, those before the first number and from the second on are shown."""
    return (count, count) if count <= most else (most // 2, count - most // 2)


def _columns(graph: Graph, numbers: list[int], groups: Edges) -> tuple[list[str], list[str], list[str]]:
    """Numbers and names, shapes, modules: of the operations that stand on a line together."""
    entries, types, type_nums = graph.entries, graph.layer_types, graph.layer_type_nums
    places = groups.sources[groups.heads[:-1]]
    layers = graph.layer_of[places]
    totals = np.bincount(graph.layer_of)[layers].tolist()
    firsts: list[int] = places.tolist()
    names, tensors = [], []
    rows = zip(numbers, firsts, layers.tolist(), totals, pairwise(groups.heads.tolist()), strict=True)
    for number, first, layer, total, (start, stop) in rows:
        shape, dtype = entries[first].shape_and_type
        name = f"{number}: {types[layer]}_{type_nums[layer]}_{layer}"
        if total == 1:
            words = words_of(shape, dtype)
        elif stop - start == 1:
            name = f"{name}:{graph.pass_of[first]} ({graph.pass_of[first]}/{total} passes)"
            words = words_of(shape, dtype)
        else:
            some = "" if stop - start == total else f"{stop - start}/"
            name = f"{name} ({some}{total} passes)"
            values = [entries[place] for place in groups.sources[start:stop].tolist()]
            words = tensor_words(distinct_shapes(values), dtype)
        names.append(name)
        tensors.append(words)
    return names, tensors, graph.modules.addresses_around(firsts)


def op_line(op: OpLog) -> str:
    return f"OpLog({op.label}  {tensor_words([op.tensor_shape], op.tensor_dtype)}{_from(op.parent_layers)})"


def layer_line(layer: LayerLog) -> str:
    values = [op._value for op in layer.passes.values()]
    words = tensor_words(distinct_shapes(values), values[0].dtype)
    return f"LayerLog({layer.layer_label}  {layer.num_passes} passes  {words}{_from(layer.parent_layers)})"


def _from(parents: Iterable[str]) -> str:
    names = list(parents)
    more = f", ... {len(names) - _MOST_PARENTS} more" if len(names) > _MOST_PARENTS else ""
    return f"  <- {', '.join(names[:_MOST_PARENTS])}{more}" if names else ""

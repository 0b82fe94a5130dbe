"""The arrows of a picture: what feeds what, as which argument, in which passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...capture.records import Call, Value
from ...graph.graph import Graph
from ...words import ranges
from .contents import Contents, Spot
from .elements import Edge, Text
from .gather import FEW
from .texts import edit_words, shortened
from .theme import EDITED_PEN, Theme

#: Functions whose result does not depend on the order of their arguments.
_COMMUTATIVE = frozenset(
    "add mul multiply eq ne not_equal and or xor logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "maximum minimum max min fmax fmin hypot logaddexp logaddexp2 gcd lcm dist dot isclose allclose equal".split()
)


@dataclass(slots=True)
class Link:
    """All that goes from one spot to another."""

    source: Spot
    target: Spot
    first: tuple[int, int]  # the first two entries that it connects
    leaving: set[int]  # the passes of the source in which it does
    arriving: set[int]  # the passes of the target
    arguments: dict[str, None] = field(default_factory=dict)  # what it is given as, in order, each once
    tensors: dict[str, None] = field(default_factory=dict)  # where either side is several: which go this way
    dashed: bool = True
    begins_condition: bool = False
    edits: dict[int, None] = field(default_factory=dict)  # interventions along it


_ONLY_ONE = {1}  # shared by the links of all nodes that have no more passes


def _passes_of(spot: Spot) -> set[int]:
    """An empty set to collect passes in; for a node with a single pass, the set that all such nodes share."""
    return set() if spot.passes > 1 else _ONLY_ONE


def find_links(contents: Contents) -> list[Link]:
    graph, spot_of = contents.graph, contents.spot_of
    starts, from_input, edited = set(graph.conditions.starts), graph.from_input, graph.edited.edges
    own = {place for spot in contents.spots for place in spot.places}  # not what is drawn as an equal block
    found: dict[tuple[str, str], Link] = {}
    for place, target in spot_of.items():
        if target.end:
            continue
        parents = [p for p in graph.parents[place] if p in spot_of and not contents.hidden_links(p, place)]
        arguments = arguments_of(graph, place) if target.box is None and len(parents) > 1 else {}
        for parent in parents:
            source = spot_of[parent]
            leaving = contents.pass_of(parent) if source.passes > 1 else 1
            arriving = contents.pass_of(place) if target.passes > 1 else 1
            if source is target and leaving == arriving:
                continue  # inside a collapsed module
            key = source.id, target.id
            link = found.get(key)
            if link is None:
                link = found[key] = Link(source, target, (parent, place), _passes_of(source), _passes_of(target))
            if arguments:
                link.arguments |= dict.fromkeys(arguments.get(parent, ()))
            if (source.gathered or target.gathered) and place in own:
                link.tensors[contents.label(parent)] = None
            if source.passes > 1:
                link.leaving.add(leaving)
            if target.passes > 1:
                link.arriving.add(arriving)
            link.dashed &= not from_input[parent]
            link.begins_condition |= target.box is None and (parent, place) in starts
            if (parent, place) in edited:
                link.edits |= dict.fromkeys(edited[parent, place])
    return [*found.values(), *_links_to_the_outputs(contents)]


def _links_to_the_outputs(contents: Contents) -> Iterator[Link]:
    """From what a submodule shown alone computes last to what it returns."""
    for spot in contents.spots:
        if spot.end == "output":
            passes = {contents.pass_of(place) for place in spot.places}
            dashed = not any(contents.graph.from_input[place] for place in spot.places)
            for place in {contents.spot_of[place].id: place for place in spot.places}.values():
                yield Link(contents.spot_of[place], spot, (place, place), passes, passes, dashed=dashed)


def make_edge(link: Link, graph: Graph, theme: Theme) -> Edge:
    arguments = (Text(_arguments(list(link.arguments))),) if link.arguments else ()
    condition = [Text("IF", bold=True)] if link.begins_condition else []
    edits = [Text(shortened(f"edit: {edit_words(graph, number)}")) for number in link.edits]
    which, count = _tensors(link)
    return Edge(
        link.source.id,
        link.target.id,
        label=(*condition, *count, *edits),
        tail_label=which + _passes("Out", link.leaving, link.source),
        head_label=arguments + _passes("In", link.arriving, link.target),
        line=theme.edited if edits else theme.line,
        pen=EDITED_PEN if edits else 1.0,
        dashed=link.dashed,
    )


def _arguments(names: list[str]) -> str:
    """All of them, or the first and the last."""
    return ", ".join(names) if len(names) < 5 else f"{names[0]} ... {names[-1].removeprefix('arg ')}"


def _tensors(link: Link) -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """Which results of a call go this way, or how many tensors do."""
    names = list(link.tensors)
    if len(names) > FEW:
        return (), (Text(f"{len(names):,} tensors"),)
    return (Text(", ".join(names)),) if link.source.gathered == "call" else (), ()


def _passes(word: str, passes: set[int], spot: Spot) -> tuple[Text, ...]:
    """`In 2-3`; nothing if it is so in all passes."""
    return (Text(f"{word} {ranges(passes)}"),) if len(passes) < spot.passes else ()


def backward_edges(links: list[Link], with_gradient: set[int], theme: Theme) -> list[Edge]:
    """Where gradients were logged on both sides of a link, the gradient flowed back along it."""
    if not with_gradient:
        return []

    def has_gradient(spot: Spot) -> bool:
        return any(place in with_gradient for place in spot.places)

    return [
        Edge(link.target.id, link.source.id, line=theme.backward, backward=True)
        for link in links
        if link.source is not link.target and has_gradient(link.source) and has_gradient(link.target)
    ]


# ---- arguments ------------------------------------------------------------------------------------------------


def arguments_of(graph: Graph, place: int) -> dict[int, list[str]]:
    """For each parent of an entry, the arguments it was given as, unless their order is of no importance."""
    value = graph.entries[place]
    call = graph.trace.calls[value.call]
    if value.role == "output" or _is_commutative(call):
        return {}
    found: dict[int, list[str]] = {}
    for name, argument in _named_arguments(call):
        if argument.role != "param" and argument.index in graph.place:
            found.setdefault(graph.place[argument.index], []).append(name)
    return {parent: _joined(names) for parent, names in found.items()}


def _is_commutative(call: Call) -> bool:
    return call.function.name.strip("_") in _COMMUTATIVE and "alpha" not in call.kwargs


def _named_arguments(call: Call) -> Iterator[tuple[str, Value]]:
    """`arg 0`, `arg 0[2]` for a member of a list, or the name of a keyword argument."""
    for position, argument in enumerate(call.args):
        yield from _nested(f"arg {position}", argument)
    for name, argument in call.kwargs.items():
        if name != "out":
            yield from _nested(name, argument)


def _nested(name: str, argument: Any) -> Iterator[tuple[str, Value]]:
    if isinstance(argument, Value):
        yield name, argument
    elif isinstance(argument, (tuple, list)):
        for position, member in enumerate(argument):
            yield from _nested(f"{name}[{position}]", member)
    elif isinstance(argument, dict):
        for key, member in argument.items():
            yield from _nested(f"{name}[{key!r}]", member)
    elif isinstance(argument, slice):
        for part in ("start", "stop", "step"):
            yield from _nested(f"{name}.{part}", getattr(argument, part))


def _joined(names: list[str]) -> list[str]:
    """`arg 0, 2` rather than `arg 0, arg 2`; many are counted."""
    if len(names) > 4:
        return [f"{names[0]} ... {names[-1].removeprefix('arg ')}"]
    return [names[0], *(name.removeprefix("arg ") for name in names[1:])]

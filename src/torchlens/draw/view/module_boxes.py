"""Which boxes lie around an entry: module calls in an unrolled picture, modules in a rolled one."""

from __future__ import annotations

from functools import cached_property

from ...errors import LayerNotFoundError, near
from ...graph.graph import Graph

#: The boxes around something, the outermost first; a box is known by its own path, itself included.
#: The numbers are module calls in an unrolled picture, modules in a rolled one.
BoxPath = tuple[int, ...]


class ModuleBoxes:
    """The boxes of a picture. A module that does one single operation is drawn as that operation, not as a box."""

    def __init__(self, graph: Graph, rolled: bool, focus: str | None, hidden: set[int]) -> None:
        self._graph = graph
        self._modules = graph.modules
        self.rolled = rolled
        self.focus = _focused_calls(graph, focus)
        self._hidden = hidden  # entries that are not drawn
        self._chains: dict[int, BoxPath] = {-1: ()}

    # ---- paths ----------------------------------------------------------------------------------------------

    def path(self, places: list[int]) -> BoxPath:
        """The boxes that all of these entries lie in."""
        chains = [self._chain(self._modules.homes[place]) for place in places]
        if not self.rolled:
            return chains[0]
        first, *others = [[self._modules.calls[call].module for call in chain] for chain in chains]
        return tuple(m for m in dict.fromkeys(first) if all(m in other for other in others))

    def _chain(self, call: int) -> BoxPath:
        """The module calls around and including a call that are boxes of the picture."""
        if call not in self._chains:
            outer = self._chain(self._modules.calls[call].parent)
            self._chains[call] = (*outer, call) if self._is_box(call) else outer
        return self._chains[call]

    def _is_box(self, call: int) -> bool:
        if not self._modules.address(call) or call in self.leaves:
            return False
        if self.focus is None:
            return True
        around = self.focused_call(call)
        several = len(self.focus) > 1 and not self.rolled
        return around is not None and (call != around or several)

    @cached_property
    def leaves(self) -> set[int]:
        """The module calls that did one single operation, themselves, and returned its result."""
        return set(self._leaf_of.values())

    def leaf(self, place: int) -> int | None:
        """The call of a single-operation module that this entry is the result of."""
        return self._leaf_of.get(place)

    def address_of(self, place: int) -> str | None:
        """Where an entry is in the model: `@fc:2` for a module that does just this operation, `@scale` for a buffer."""
        value, leaf = self._graph.entries[place], self.leaf(place)
        if value.role in ("buffer", "update"):
            return f"@{value.address}"
        if leaf is None:
            return None
        return f"@{self._modules.address(leaf)}" if self.rolled else call_name(self._graph, leaf)

    @cached_property
    def _leaf_of(self) -> dict[int, int]:
        """By entry. A rolled module is one node only if each of its calls was a single operation."""
        found = self._single_operations()
        if not self.rolled:
            return found
        modules, single = self._modules, set(found.values())
        boxes = {call.module for number, call in enumerate(modules.calls) if number not in single}
        return {place: call for place, call in found.items() if modules.calls[call].module not in boxes}

    def _single_operations(self) -> dict[int, int]:
        modules, homes, entries = self._modules, self._modules.homes, self._graph.entries
        return {
            place: call
            for call in range(len(modules.calls))
            if modules.address(call) and self._is_single_operation(call)
            for place in modules.outputs(call)
            if homes[place] == call and entries[place].role == "op"
        }

    def _is_single_operation(self, call: int) -> bool:
        """Did this module call do one single operation, itself, apart from what is not drawn?"""
        own = [place for place in self._modules.own_operations[call] if place not in self._hidden]
        return not self._modules.children[call] and len(own) == 1

    # ---- boxes ----------------------------------------------------------------------------------------------

    def module(self, box: BoxPath) -> int:
        """The number of the module that a box stands for."""
        return box[-1] if self.rolled else self._modules.calls[box[-1]].module

    def address(self, box: BoxPath) -> str:
        return self._modules.infos[self.module(box)].address

    def class_name(self, box: BoxPath) -> str:
        return self._modules.infos[self.module(box)].class_name

    def name(self, box: BoxPath) -> str:
        """`@fc`, or `@fc:2` for one of several calls."""
        return f"@{self.address(box)}" if self.rolled else call_name(self._graph, box[-1])

    def pass_in(self, box: BoxPath, place: int) -> int:
        """In which call of the box's module an entry was computed; in an unrolled picture there is only one."""
        if not self.rolled:
            return 1
        calls = self._modules.calls
        return next(calls[c].number for c in self._modules.containing(place) if calls[c].module == box[-1])

    # ---- one submodule alone --------------------------------------------------------------------------------

    def focused_call(self, call: int) -> int | None:
        """The call of the submodule in focus that a call lies in."""
        last = self._modules.last_inside
        return next((c for c in self.focus or () if c <= call <= last[c]), None)

    def in_focus(self, place: int) -> bool:
        return self.focus is None or self.focused_call(self._modules.homes[place]) is not None


def call_name(graph: Graph, call: int) -> str:
    """`@fc`, or `@fc:2` where the module was called several times."""
    modules = graph.modules
    several = modules.call_counts[modules.calls[call].module] > 1
    return f"@{modules.label(call) if several else modules.address(call)}"


def _focused_calls(graph: Graph, focus: str | None) -> list[int] | None:
    if focus is None or focus == "self":
        return None
    modules = graph.modules
    address, _, number = focus.rpartition(":") if ":" in focus else (focus, "", "")
    if address not in modules.numbers or (number and not number.isdigit()):
        raise LayerNotFoundError(f"no module {focus!r}{near(focus, filter(None, modules.numbers))}")
    calls = modules.calls_of[modules.numbers[address]]
    if number:
        calls = [call for call in calls if modules.calls[call].number == int(number)]
    if not calls:
        raise LayerNotFoundError(f"module {focus!r} was never called; its submodules may have been")
    return _outermost(graph, calls)


def _outermost(graph: Graph, calls: list[int]) -> list[int]:
    """Without the calls that a recursive module made inside its own."""
    found: list[int] = []
    for call in calls:
        if not found or call > graph.modules.last_inside[found[-1]]:
            found.append(call)
    return found

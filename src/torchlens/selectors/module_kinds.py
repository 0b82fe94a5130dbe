"""Selectors of what modules return: by address, pattern or class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import LayerNotFoundError
from .kinds import Kind
from .label_kinds import Word
from .names import few_of, may_be_label, split_pass, times_called
from .seen import YES, Answer, Asked, KnownGraph, Seen
from .selection import Selector, selector_text


class Returned(Kind):
    """What modules returned: all calls or one, all tensors or one."""

    of_modules = True
    by_type = True

    def __init__(self, said: Selector, numbers: Iterable[int], call: int | None = None, index: int | None = None):
        super().__init__(said)
        self.numbers = frozenset(numbers)
        self.call = call
        self.index = index

    def answer(self, seen: Seen) -> Answer:
        return YES if any(self.fits(*returned) for returned in seen.returned) else seen.not_returned

    def fits(self, module: int, call: int, position: int | None) -> bool:
        """Does it match this tensor of this module call?"""
        return (
            module in self.numbers
            and self.call in (None, call)
            and (position is None or self.index in (None, position))
        )

    def modules(self, total: int) -> set[int]:
        return set(self.numbers)

    def modules_asked(self) -> set[int]:
        return set(self.numbers)

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return {place for call in self.calls(graph) for place in self._outputs(graph, call)}

    def calls(self, graph: KnownGraph) -> list[int]:
        """The calls that it matches."""
        tree = graph.modules
        calls = [call for number in self.numbers for call in tree.calls_of[number]]
        return [call for call in calls if self.call in (None, tree.calls[call].number)]

    def _outputs(self, graph: KnownGraph, call: int) -> dict[int, int]:
        """The entries that a call returned, each with its first position."""
        found: dict[int, int] = {}
        for position, value in enumerate(graph.modules.calls[call].exited):
            if self.index in (None, position):
                for place in graph.modules.places((value,)):
                    found.setdefault(place, position)
        return found

    def nothing(self, graph: KnownGraph) -> str:
        tree = graph.modules
        called = max((tree.call_counts[number] for number in self.numbers), default=0)
        if not self.numbers:
            return f"{selector_text(self.said)}: the model has no such module"
        if self.call is not None and called and not 0 < self.call <= called:
            counted = ", and calls are counted from 1" if self.call < 1 else ""
            return f"no call {self.said!r}: the module was called {times_called(called)}{counted}"
        if not called:
            return f"{self._name} was never called; its submodules may have been"
        if self.index is not None and self.calls(graph):
            most = max(len(tree.calls[call].exited) for call in self.calls(graph))
            if self.index < most:
                return f"{self.said!r} is a parameter or a constant, not a tensor of the graph"
            return f"{self.said!r}: the module returned {most} tensor{'s' * (most != 1)}, counted from 0"
        return f"{self._name} returned no tensor of the graph"

    def several(self, labels: Sequence[str]) -> str:
        if len(self.numbers) == 1 and isinstance(self.said, str):
            one = self.said + (":1" if self.call is None else "[0]")
            return f"{self._name} returned {len(labels)} layers: {few_of(labels)}; ask for one: {one!r}"
        return super().several(labels)

    @property
    def _name(self) -> str:
        return f"module {self.said!r}" if isinstance(self.said, str) else selector_text(self.said)

    def single(self, graph: KnownGraph, asked: Asked) -> tuple[set[int], str | None]:
        """The first tensor of each call, where a call returned several."""
        outputs = [self._outputs(graph, call) for call in self.calls(graph)]
        most = max(outputs, key=len, default={})
        if len(most) < 2:
            return self.places(graph, asked), None
        return {next(iter(places)) for places in outputs if places}, self.first_of(sorted(most.values()))

    def first_of(self, positions: Sequence[int]) -> str:
        """The warning where one tensor is asked for, the module returned several, and the first is taken."""
        address = self.said if isinstance(self.said, str) else "address"
        each = ", ".join(repr(f"{address}[{index}]") for index in positions[:4]) + " ..." * (len(positions) > 4)
        return f"{self._name} returned {len(positions)} tensors, and this is the first; each has a name: {each}"

    @property
    def is_one_module(self) -> bool:
        """Does it match a single module, and certainly no layer?"""
        return len(self.numbers) == 1


class Named(Returned):
    """What the module at one address returned. If a layer or an output has the same name, that is an error."""

    @property
    def is_label(self) -> bool:
        """Could it be a label just as well?"""
        return self.index is None and may_be_label(split_pass(str(self.said))[0])

    @property
    def is_one_module(self) -> bool:
        return not self.is_label

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        found = super().places(graph, asked)
        assert isinstance(self.said, str)
        other = Word(self.said).exactly(graph)
        if other and other != found and not (found and self._is_returned(graph, other, found)):
            place = min(other)
            label, path = graph.layer_labels[graph.layers[place]], graph.entries[place].address
            what = f"the output {path!r}" if graph.entries[place].role == "output" else f"the layer {label!r}"
            raise LayerNotFoundError(
                f"{self.said!r} is the module {'self.' + self.said!r} and {what}; use one of these names"
            )
        return found

    def single(self, graph: KnownGraph, asked: Asked) -> tuple[set[int], str | None]:
        self.places(graph, asked)
        return super().single(graph, asked)

    @staticmethod
    def _is_returned(graph: KnownGraph, outputs: set[int], found: set[int]) -> bool:
        """Are these outputs of the model what the module returned?"""
        return all(graph.entries[p].role == "output" and found.issuperset(graph.parents[p]) for p in outputs)

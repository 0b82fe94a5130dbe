"""The base of all kinds, and those that are neither names nor modules: numbers, functions, combinations."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ArgumentError
from .names import few_of, numbered
from .seen import ASK, NO, YES, Answer, Asked, KnownGraph, Seen
from .selection import Predicate, Selector, selector_text


class Kind:
    """One selector, ready to be asked. `said` is what the user wrote."""

    needs_graph = False  # can it be decided only when the graph is known, even where labels are counted?
    of_modules = False  # does it say what modules returned?
    by_type = False  # does the type of an operation always decide?

    def __init__(self, said: Selector) -> None:
        self.said = said

    def answer(self, seen: Seen) -> Answer:
        """Does the selector match this value?"""
        raise NotImplementedError

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        """The entries that it matches; empty if there are none."""
        raise NotImplementedError

    def modules(self, total: int) -> set[int]:
        """The modules that it matches, by their numbers below `total`, where modules are chosen and not values."""
        raise ArgumentError(f"{selector_text(self.said)} can't choose a module; addresses, patterns and classes can")

    def single(self, graph: KnownGraph, asked: Asked) -> tuple[set[int], str | None]:
        """The entries that it matches where one is wanted, and a warning for the user, if there is one."""
        return self.places(graph, asked), None

    def nothing(self, graph: KnownGraph) -> str:
        """Why it matches nothing."""
        return f"nothing is chosen by {selector_text(self.said)}"

    def several(self, labels: Sequence[str]) -> str:
        """Why it does not match a single layer."""
        listed = few_of(labels)
        return (
            f"{selector_text(self.said)} means {len(labels)} layers: {listed}; ask for one of them, or log.select(...)"
        )

    def predicates(self) -> list[Predicate]:
        return []

    def modules_asked(self) -> set[int]:
        """The modules whose calls it must see."""
        return set()


class Number(Kind):
    """The entry with this number; negative numbers count from the end."""

    def __init__(self, said: int) -> None:
        super().__init__(said)
        self.number = said
        self.needs_graph = said < 0

    def answer(self, seen: Seen) -> Answer:
        return ASK if seen.number is None else YES if seen.number == self.number else NO

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return {numbered(self.number, len(graph.entries))}


class Asking(Kind):
    """The operations for which a function of the user's returns something true."""

    def __init__(self, said: Predicate) -> None:
        super().__init__(said)
        self.predicate = said

    def answer(self, seen: Seen) -> Answer:
        return seen.asked(self.predicate)

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set(asked(self.predicate))

    def predicates(self) -> list[Predicate]:
        return [self.predicate]


class AnyOf(Kind):
    """What at least one of several kinds means."""

    def __init__(self, said: Selector, members: Sequence[Kind]) -> None:
        super().__init__(said)
        self.members = members
        self.of_modules = any(member.of_modules for member in members)
        self.needs_graph = any(member.needs_graph for member in members)
        self.by_type = all(member.by_type for member in members)

    def answer(self, seen: Seen) -> Answer:
        return max([member.answer(seen) for member in self.members])

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set().union(*[member.places(graph, asked) for member in self.members])

    def modules(self, total: int) -> set[int]:
        return set().union(*[member.modules(total) for member in self.members])

    def predicates(self) -> list[Predicate]:
        return [predicate for member in self.members for predicate in member.predicates()]

    def modules_asked(self) -> set[int]:
        return set().union(*[member.modules_asked() for member in self.members])


class AllOf(AnyOf):
    """What every one of several kinds means."""

    def answer(self, seen: Seen) -> Answer:
        return min([member.answer(seen) for member in self.members])

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set.intersection(*[member.places(graph, asked) for member in self.members])

    def modules(self, total: int) -> set[int]:
        return set.intersection(*[member.modules(total) for member in self.members])


class NoneOf(AnyOf):
    """What no one of several kinds means."""

    def __init__(self, said: Selector, members: Sequence[Kind]) -> None:
        super().__init__(said, members)
        self.needs_graph = self.needs_graph or self.of_modules  # a module may still return it

    def answer(self, seen: Seen) -> Answer:
        return Answer(YES - super().answer(seen))

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set(range(len(graph.entries))) - super().places(graph, asked)

    def modules(self, total: int) -> set[int]:
        return set(range(total)) - super().modules(total)

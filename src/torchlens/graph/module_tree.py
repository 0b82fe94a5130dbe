"""Modules and their calls: what ran inside which, what went in and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import proxy

from ..capture.records import ModuleCall, TensorInfo, Value

if TYPE_CHECKING:
    from .graph import Graph

Amount = TypeVar("Amount", int, float)


class ModuleTree:
    """Answers about the module calls of a graph. Calls are known by their place in the trace."""

    def __init__(self, graph: Graph) -> None:
        self.infos = graph.trace.modules
        self.calls = graph.trace.module_calls
        self._graph = proxy(graph)  # which holds this
        self._entries = graph.entries
        self._recorded = graph.trace.calls
        self._param_infos = graph.trace.param_infos

    @cached_property
    def call_counts(self) -> list[int]:
        """How often each module was called."""
        counts = [0] * len(self.infos)
        for call in self.calls:
            counts[call.module] = max(counts[call.module], call.number)
        return counts

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of the module at each address; every address of a shared module counts."""
        return {
            address: number for number, info in reversed(list(enumerate(self.infos))) for address in info.all_addresses
        }

    @cached_property
    def submodules(self) -> list[list[int]]:
        """The modules in each module, at any depth, by their addresses."""
        found: list[list[int]] = [[] for _ in self.infos]
        for number, info in enumerate(self.infos):
            for owner in self._owners(info.all_addresses):
                found[owner].append(number)
        return found

    @cached_property
    def params(self) -> list[list[TensorInfo]]:
        """The parameters in each module, at any depth."""
        found: list[list[TensorInfo]] = [[] for _ in self.infos]
        for info in self._param_infos:
            for owner in self._owners(info.all_addresses):
                found[owner].append(info)
        return found

    def _owners(self, addresses: Iterable[str]) -> set[int]:
        """The modules that contain what has these addresses; the model is one of them."""
        owners = set()
        for address in addresses:
            while address:
                address = address.rpartition(".")[0]
                owners.add(self.numbers[address])
        return owners

    def address(self, call: int) -> str:
        return self.infos[self.calls[call].module].address

    def label(self, call: int) -> str:
        """Address and pass: `fc:2`; the model itself is `self`."""
        return f"{self.address(call) or 'self'}:{self.calls[call].number}"

    @cached_property
    def children(self) -> list[list[int]]:
        """The calls made directly inside each call."""
        children: list[list[int]] = [[] for _ in self.calls]
        for number, call in enumerate(self.calls):
            if call.parent >= 0:
                children[call.parent].append(number)
        return children

    @cached_property
    def calls_of(self) -> list[list[int]]:
        """The calls of each module, in order."""
        calls: list[list[int]] = [[] for _ in self.infos]
        for number, call in enumerate(self.calls):
            calls[call.module].append(number)
        return calls

    @cached_property
    def last_inside(self) -> list[int]:
        """The last call made inside each call, itself if none: calls are numbered as they begin."""
        last = list(range(len(self.calls)))
        for number in range(len(self.calls) - 1, -1, -1):
            parent = self.calls[number].parent
            if parent >= 0:
                last[parent] = max(last[parent], last[number])
        return last

    def places_inside(self, call: int) -> list[int]:
        """The entries computed in a call, at any depth."""
        inside = range(call, self.last_inside[call] + 1)
        return sorted(place for each in inside for place in self._places_at_home[each])

    @cached_property
    def _places_at_home(self) -> list[list[int]]:
        places: list[list[int]] = [[] for _ in self.calls]
        for place, home in enumerate(self.homes):
            if home >= 0:
                places[home].append(place)
        return places

    def outermost(self, numbers: set[int]) -> list[int]:
        """The calls of these modules that were not made inside another call of them."""
        calls = (call for number in numbers for call in self.calls_of[number])
        return [call for call in calls if numbers.isdisjoint(self.calls[above].module for above in self._above(call))]

    def _above(self, call: int) -> Iterator[int]:
        while (call := self.calls[call].parent) >= 0:
            yield call

    # ---- where an entry was computed ------------------------------------------------------------------------

    @cached_property
    def homes(self) -> list[int]:
        """The module call in which each entry was made, -1 for none.

        A buffer or other tensor that no call made belongs where it is first used.
        """
        return list(map(self.home, range(len(self._entries))))

    def home(self, place: int) -> int:
        call = self._entries[place].call
        if call >= 0:
            return self._recorded[call].module_call
        children = self._graph.children[place] if self._entries[place].role != "input" else ()
        call = self._entries[children[0]].call if children else -1
        return self._recorded[call].module_call if call >= 0 else -1

    def containing(self, place: int) -> list[int]:
        """The submodule calls around an entry, from the outermost in; the model itself is left out."""
        return self.around(self.home(place))

    def addresses_around(self, places: Iterable[int]) -> list[str]:
        """The address of the innermost submodule around each of these entries, "" if it is in none."""
        made_by = [(place, self._entries[place].call) for place in places]
        homes = [self._recorded[call].module_call if call >= 0 else self.home(place) for place, call in made_by]
        addresses = {home: self._address_around(home) for home in set(homes)}
        return list(map(addresses.__getitem__, homes))

    def _address_around(self, call: int) -> str:
        address = ""
        while call >= 0 and not address:
            around = self.calls[call]
            address, call = self.infos[around.module].address, around.parent
        return address

    def around(self, call: int) -> list[int]:
        chain = []
        while call >= 0:
            if self.infos[self.calls[call].module].address:
                chain.append(call)
            call = self.calls[call].parent
        return chain[::-1]

    def totals(self, amounts: list[Amount]) -> list[Amount]:
        """The sum of an amount over the entries in each module call, at any depth."""
        sums: list[Any] = [0] * len(self.calls)
        for place, home in enumerate(self.homes):
            if home >= 0:
                sums[home] += amounts[place]
        for number in range(len(self.calls) - 1, -1, -1):
            parent = self.calls[number].parent
            if parent >= 0:
                sums[parent] += sums[number]
        return sums

    # ---- what went in and came out --------------------------------------------------------------------------

    @cached_property
    def entered(self) -> dict[int, list[int]]:
        """The submodule calls that each entry's tensor was an argument of, by place."""
        return self._by_place(lambda call: call.entered, inner_first=False)

    @cached_property
    def exited(self) -> dict[int, list[int]]:
        """The submodule calls that each entry's tensor was a result of, innermost first, by place."""
        return self._by_place(lambda call: call.exited, inner_first=True)

    def _by_place(
        self, values_of: Callable[[ModuleCall], tuple[Value, ...]], inner_first: bool
    ) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, call in enumerate(self.calls):
            if not self.infos[call.module].address:
                continue
            for place in self.places(values_of(call)):
                numbers = found.setdefault(place, [])
                if number not in numbers:
                    numbers.append(number)
        if inner_first:
            for numbers in found.values():
                numbers.sort(key=lambda number: (self.calls[number].stop, -number))
        return found

    def places(self, values: tuple[Value, ...]) -> list[int]:
        """The places of these values, without those that are no entries."""
        place = self._graph.place
        return [place[v.index] for v in values if v.role != "param" and v.index in place]

    def outputs(self, call: int) -> list[int]:
        return self.places(self.calls[call].exited)

    @cached_property
    def own_operations(self) -> list[list[int]]:
        """The operations that ran directly in each module call: places, one for each torch call."""
        own: list[list[int]] = [[] for _ in self.calls]
        last = -1
        for place, value in enumerate(self._entries):
            home = self.homes[place]
            if home >= 0 and value.role == "op" and value.call != last:
                own[home].append(place)
                last = value.call
        return own

    def is_bottom_level(self, call: int) -> bool:
        """Did this module call run exactly one operation, and no submodule?"""
        return not self.children[call] and len(self.own_operations[call]) == 1

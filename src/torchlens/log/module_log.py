"""The modules of a log and their calls."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..errors import PassNeededError
from ..graph.graph import Graph
from ..graph.module_tree import Amount
from ..selectors import split_pass
from .accessor import Accessor
from .listing import Numbered
from .tables import Tabular


def module_logs(graph: Graph) -> Accessor[ModuleLog]:
    totals = _Totals(graph)
    logs = [ModuleLog(graph, number, totals) for number in range(len(graph.trace.modules))]
    by_any_address = {address or "self": logs[number] for address, number in graph.modules.numbers.items()}
    return _Modules("module", {log.address: log for log in logs}, by_any_address)


class _Modules(Accessor["ModuleLog"]):
    """Modules by address, and their calls: `fc:2`."""

    def _find(self, key: str) -> Any:
        address, call = split_pass(key)
        module = self._by_any_address.get(address)
        return module if module is None or call is None else module.passes.get(call)

    def _hint(self, key: str) -> str:
        address, _ = split_pass(key)
        module = self._by_any_address.get(address)
        return super()._hint(key) if module is None else f": {address} was called {module.num_passes}x"

    def _title(self) -> str:
        return f"{super()._title()}, with the model itself"


class ModuleLog(Tabular):
    """One module of the model: `log.modules["features.0"]`; the model itself is `log.modules["self"]`."""

    def __init__(self, graph: Graph, number: int, totals: _Totals) -> None:
        self._graph = graph
        self._number = number
        self._totals = totals
        self._info = graph.trace.modules[number]

    @property
    def address(self) -> str:
        return self._info.address or "self"

    @property
    def all_addresses(self) -> list[str]:
        """Several when the same module is registered under several names."""
        return [address or "self" for address in self._info.all_addresses]

    @property
    def module_class_name(self) -> str:
        return self._info.class_name

    @property
    def training(self) -> bool:
        """Was it in training mode?"""
        return self._info.training

    @property
    def num_passes(self) -> int:
        """How often it was called; 0 for a container such as `nn.ModuleList`."""
        return self._graph.modules.call_counts[self._number]

    @property
    def passes(self) -> dict[int, ModulePassLog]:
        """Its calls, by number; the first is 1."""
        calls = self._graph.modules.calls_of[self._number]
        return Numbered((self._graph.modules.calls[call].number, ModulePassLog(self._graph, call)) for call in calls)

    @property
    def call_children(self) -> list[str]:
        """The module calls made directly inside any call of this module."""
        return [child for each in self.passes.values() for child in each.call_children]

    @property
    def layers(self) -> list[str]:
        """The operations computed in it, over all its calls."""
        return [label for each in self.passes.values() for label in each.layers]

    @property
    def input_layers(self) -> list[str]:
        """The operations whose tensors were given to it: of a module that was called once.

        >>> log.modules["fc"].input_layers
        ['relu_1_2']
        """
        if self.num_passes > 1:
            raise PassNeededError(
                f"{self.address} was called {self.num_passes} times; ask one call: "
                f"log.modules['{self.address}:1'].input_layers"
            )
        return [label for each in self.passes.values() for label in each.input_layers]

    @property
    def output_layers(self) -> list[str]:
        return [label for each in self.passes.values() for label in each.output_layers]

    @property
    def macs(self) -> int:
        """Multiply-adds of the operations in it, over all its calls; those of its modules if it is a mere container."""
        return self._sum(self._totals.macs)

    @property
    def flops(self) -> int:
        """Floating point operations in it, as far as they are known; over the same calls."""
        return self._sum(self._totals.flops)

    @property
    def time(self) -> float:
        """Seconds spent in the torch functions called in it, over the same calls."""
        return self._sum(self._totals.seconds)

    @property
    def activation_memory(self) -> int:
        """Bytes of the tensors computed in it, over the same calls."""
        return self._sum(self._totals.bytes)

    def _sum(self, by_call: list[Amount]) -> Amount:
        modules = self._graph.modules
        own = {self._number} if self.num_passes else set(modules.submodules[self._number])
        return sum(by_call[call] for call in modules.outermost(own))

    @property
    def num_params(self) -> int:
        """Elements of the parameters in it and in its submodules, each parameter once."""
        return sum(info.numel for info in self._graph.modules.params[self._number])

    @property
    def params(self) -> list[str]:
        """The addresses of the parameters in it and in its submodules."""
        return [info.address for info in self._graph.modules.params[self._number]]

    def __repr__(self) -> str:
        calls = "never called" if not self.num_passes else f"called {self.num_passes}x"
        return f"ModuleLog({self.address}  {self.module_class_name}  {calls}, {self.num_params:,} params)"

    def _repr_html_(self) -> str:
        from .html import module_html

        return module_html(self)


class ModulePassLog(Tabular):
    """One call of a module: `log.modules["fc:2"]`."""

    def __init__(self, graph: Graph, call: int) -> None:
        self._graph = graph
        self._call = call

    @property
    def label(self) -> str:
        """Address and pass, `fc:2`."""
        return self._graph.modules.label(self._call)

    @property
    def address(self) -> str:
        return self._graph.modules.address(self._call) or "self"

    @property
    def pass_num(self) -> int:
        return self._graph.modules.calls[self._call].number

    @property
    def call_children(self) -> list[str]:
        """The module calls made directly inside this one."""
        return [self._graph.modules.label(child) for child in self._graph.modules.children[self._call]]

    @property
    def call_parent(self) -> str | None:
        """The module call that this one was made in."""
        parent = self._graph.modules.calls[self._call].parent
        return self._graph.modules.label(parent) if parent >= 0 else None

    @property
    def layers(self) -> list[str]:
        """The operations computed in this call, submodules included."""
        return [self._graph.label(place) for place in self._graph.modules.places_inside(self._call)]

    @property
    def input_layers(self) -> list[str]:
        """The operations whose tensors were given to the call."""
        values = self._graph.modules.calls[self._call].entered
        return [self._graph.label(place) for place in self._graph.modules.places(values)]

    @property
    def output_layers(self) -> list[str]:
        """The operations whose tensors the call returned."""
        return [self._graph.label(place) for place in self._graph.modules.outputs(self._call)]

    def __repr__(self) -> str:
        return f"ModulePassLog({self.label}  -> {', '.join(self.output_layers) or 'no tensor'})"

    def _repr_html_(self) -> str:
        from .html import module_call_html

        return module_call_html(self)


class _Totals:
    """What was computed in each module call, submodules included."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def macs(self) -> list[int]:
        return self._graph.modules.totals([cost.macs for cost in self._graph.costs])

    @cached_property
    def flops(self) -> list[int]:
        return self._graph.modules.totals([cost.flops or 0 for cost in self._graph.costs])

    @cached_property
    def seconds(self) -> list[float]:
        first = {call.outputs[0].index: call.time / 1e9 for call in self._graph.trace.calls}
        return self._graph.modules.totals([first.get(value.index, 0.0) for value in self._graph.entries])

    @cached_property
    def bytes(self) -> list[int]:
        return self._graph.modules.totals([value.nbytes for value in self._graph.entries])

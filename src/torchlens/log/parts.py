"""The modules, parameters and buffers of a log, each with its own record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ..capture.records import TensorInfo
from ..errors import LayerNotFoundError, near
from ..graph.graph import Graph
from ..words import counted, human_size
from .tables import Tabular

T = TypeVar("T")


class Accessor(Tabular, Generic[T]):
    """Records by address: `log.modules["features.0"]`, `len(log.params)`, `for buffer in log.buffers`."""

    def __init__(self, noun: str, records: dict[str, T], special: Callable[[str], T | None] = lambda key: None) -> None:
        self.noun = noun
        self._records = records
        self._special = special

    def _table_records(self) -> Iterator[T]:
        return iter(self)

    def __getitem__(self, key: str | int) -> T:
        if isinstance(key, int):
            return list(self._records.values())[key]
        record = self._records.get(key) or self._special(key)
        if record is None:
            raise LayerNotFoundError(f"no {self.noun} {key!r}{near(key, self._records)}")
        return record

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in self._records or self._special(key) is not None)

    def __iter__(self) -> Iterator[T]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def keys(self) -> list[str]:
        return list(self._records)

    def __repr__(self) -> str:
        lines = "".join(f"\n    {record!r}" for record in list(self._records.values())[:20])
        more = f"\n    ... and {len(self) - 20} more" if len(self) > 20 else ""
        return f"{counted(len(self), self.noun)}{lines}{more}"

    def _repr_html_(self) -> str:
        from .html import accessor_html

        return accessor_html(self)

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()


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


class ModuleLog(Tabular):
    """One module of the model: `log.modules["features.0"]`; the model itself is `log.modules["self"]`."""

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self._number = number
        self._info = graph.recording.modules[number]

    @property
    def address(self) -> str:
        return self._info.address or "self"

    @property
    def all_addresses(self) -> list[str]:
        """Several when the same module hangs in the model under several names."""
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
        """How often it was called; 0 for a mere container."""
        return self._graph.modules.call_counts[self._number]

    @property
    def passes(self) -> dict[int, ModulePassLog]:
        """Its calls, by number; the first is 1."""
        calls = self._graph.modules.calls_of[self._number]
        return {self._graph.modules.calls[call].number: ModulePassLog(self._graph, call) for call in calls}

    @property
    def call_children(self) -> list[str]:
        """The module calls made directly inside any call of this module."""
        return [child for each in self.passes.values() for child in each.call_children]

    @property
    def layers(self) -> list[str]:
        """The operations computed in it, over all its calls."""
        return [label for each in self.passes.values() for label in each.layers]

    @property
    def output_layers(self) -> list[str]:
        return [label for each in self.passes.values() for label in each.output_layers]

    @property
    def macs(self) -> int:
        """Multiply-adds of the operations in it, over all its calls."""
        return int(self._sum([cost.macs for cost in self._graph.costs]))

    @property
    def flops(self) -> int:
        """Floating point operations in it, over all its calls, as far as they are known."""
        return int(self._sum([cost.flops or 0 for cost in self._graph.costs]))

    @property
    def time(self) -> float:
        """Seconds spent in the torch functions called in it, over all its calls."""
        calls = self._graph.recording.calls
        first = {call.outputs[0].index: call.time / 1e9 for call in calls}
        return self._sum([first.get(value.index, 0.0) for value in self._graph.entries])

    @property
    def activation_memory(self) -> int:
        """Bytes of the tensors computed in it, over all its calls."""
        return int(self._sum([value.nbytes for value in self._graph.entries]))

    def _sum(self, amounts: list[float]) -> float:
        modules = self._graph.modules
        totals = modules.totals(amounts)
        outermost = [c for c in modules.calls_of[self._number] if not self._is_inside_itself(c)]
        return sum(totals[call] for call in outermost)

    def _is_inside_itself(self, call: int) -> bool:
        """A recursive module is called inside its own call; counting both would count twice."""
        calls = self._graph.modules.calls
        parent = calls[call].parent
        while parent >= 0:
            if calls[parent].module == self._number:
                return True
            parent = calls[parent].parent
        return False

    @property
    def num_params(self) -> int:
        """Elements of the parameters in it and in its submodules, each parameter once."""
        return sum(info.numel for info in self._params())

    @property
    def params(self) -> list[str]:
        """The addresses of the parameters in it and in its submodules."""
        return [info.address for info in self._params()]

    def _params(self) -> list[TensorInfo]:
        prefixes = tuple(address + "." for address in self._info.all_addresses if address)
        infos = self._graph.recording.param_infos
        return [i for i in infos if not prefixes or any(a.startswith(prefixes) for a in i.all_addresses)]

    def __repr__(self) -> str:
        calls = "never called" if not self.num_passes else f"called {self.num_passes}x"
        return f"ModuleLog({self.address}  {self.module_class_name}  {calls}, {self.num_params} params)"


class _TensorLog(Tabular):
    """What parameters and buffers have in common."""

    def __init__(self, graph: Graph, info: TensorInfo) -> None:
        self._graph = graph
        self._info = info

    @property
    def address(self) -> str:
        return self._info.address

    @property
    def all_addresses(self) -> list[str]:
        """Several when the same tensor hangs in the model under several names."""
        return list(self._info.all_addresses)

    @property
    def name(self) -> str:
        return self.address.rpartition(".")[2]

    @property
    def module_address(self) -> str:
        """The module it belongs to."""
        return self.address.rpartition(".")[0] or "self"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._info.shape or ())

    @property
    def dtype(self) -> torch.dtype:
        return self._info.dtype

    @property
    def device(self) -> torch.device:
        return self._info.device

    @property
    def num_elements(self) -> int:
        return self._info.numel

    @property
    def memory(self) -> int:
        """Bytes."""
        return self._info.nbytes

    @property
    def memory_str(self) -> str:
        return human_size(self.memory)


class ParamLog(_TensorLog):
    """One parameter of the model: `log.params["fc.weight"]`."""

    @property
    def trainable(self) -> bool:
        """Did it require a gradient?"""
        return self._info.trainable

    @property
    def used_by(self) -> list[str]:
        """The operations that work with it."""
        graph = self._graph
        return [
            graph.label(place)
            for place, value in enumerate(graph.entries)
            if value.call >= 0 and any(param.address == self.address for param in graph.params[value.call])
        ]

    @property
    def value(self) -> Tensor | None:
        """The parameter itself, as it is now; None if the forward pass did not use it."""
        return next((p.saved for p in self._graph.recording.params if p.address == self.address), None)

    def __repr__(self) -> str:
        frozen = "" if self.trainable else ", frozen"
        return f"ParamLog({self.address}  {self.shape}, {self.memory_str}{frozen})"


class BufferLog(_TensorLog):
    """One buffer of the model: `log.buffers["bn.running_mean"]`."""

    @property
    def layers(self) -> list[str]:
        """Its entries in the log: one when it is first used, one more each time a call overwrites it."""
        return [
            self._graph.label(place)
            for place, value in enumerate(self._graph.entries)
            if value.role in ("buffer", "update") and value.address == self.address
        ]

    @property
    def used_by(self) -> list[str]:
        """The operations that work with it."""
        graph = self._graph
        places = [
            child
            for place, value in enumerate(graph.entries)
            if value.role in ("buffer", "update") and value.address == self.address
            for child in graph.children[place]
        ]
        return [graph.label(place) for place in dict.fromkeys(places)]

    def __repr__(self) -> str:
        used = ", ".join(self.used_by[:3]) or "nothing"
        return f"BufferLog({self.address}  {self.shape}, {self.memory_str}, used by {used})"


def modules_of(graph: Graph) -> Accessor[ModuleLog]:
    logs = {info.address or "self": ModuleLog(graph, n) for n, info in enumerate(graph.recording.modules)}

    def special(key: str) -> Any:
        """A call, `fc:2`, or another address of a shared module."""
        address, _, call = key.rpartition(":") if ":" in key else (key, "", "")
        number = graph.modules.numbers.get("" if address == "self" else address)
        if number is None or (call and not call.isdigit()):
            return None
        return ModuleLog(graph, number).passes.get(int(call)) if call else ModuleLog(graph, number)

    return Accessor("module", logs, special)


def params_of(graph: Graph) -> Accessor[ParamLog]:
    return _by_address("parameter", ParamLog, graph, graph.recording.param_infos)


def buffers_of(graph: Graph) -> Accessor[BufferLog]:
    return _by_address("buffer", BufferLog, graph, graph.recording.buffer_infos)


def _by_address(
    noun: str, kind: Callable[[Graph, TensorInfo], T], graph: Graph, infos: list[TensorInfo]
) -> Accessor[T]:
    shared = {address: kind(graph, info) for info in infos for address in info.all_addresses}
    return Accessor(noun, {info.address: shared[info.address] for info in infos}, shared.get)

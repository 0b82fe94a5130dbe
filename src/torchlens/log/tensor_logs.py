"""The parameters and buffers of a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from ..capture.records import TensorInfo
from ..graph.graph import Graph
from ..words import human_size
from .accessor import Accessor
from .tables import Tabular

T = TypeVar("T")


def params_of(graph: Graph) -> Accessor[ParamLog]:
    users: dict[str | None, list[int]] = {}
    for place, value in enumerate(graph.entries):
        for address in {param.address for param in graph.params[value.call]} if value.call >= 0 else ():
            users.setdefault(address, []).append(place)
    return _by_address("parameter", ParamLog, graph, graph.trace.param_infos, users)


def buffers_of(graph: Graph) -> Accessor[BufferLog]:
    entries: dict[str | None, list[int]] = {}
    for place, value in enumerate(graph.entries):
        if value.role in ("buffer", "update"):
            entries.setdefault(value.address, []).append(place)
    return _by_address("buffer", BufferLog, graph, graph.trace.buffer_infos, entries)


def _by_address(
    noun: str,
    kind: Callable[[Graph, TensorInfo, list[int]], T],
    graph: Graph,
    infos: list[TensorInfo],
    places: dict[str | None, list[int]],
) -> Accessor[T]:
    logs = {info.address: kind(graph, info, places.get(info.address, [])) for info in infos}
    return Accessor(noun, logs, {address: logs[info.address] for info in infos for address in info.all_addresses})


class _TensorLog(Tabular):
    """What parameters and buffers have in common."""

    def __init__(self, graph: Graph, info: TensorInfo, places: list[int]) -> None:
        self._graph = graph
        self._info = info
        self._places = places

    @property
    def address(self) -> str:
        return self._info.address

    @property
    def all_addresses(self) -> list[str]:
        """Several when the same tensor is registered under several names."""
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
    """One parameter of the model: `log.params["fc.weight"]`. Its places are those of the operations that use it."""

    @property
    def trainable(self) -> bool:
        """Did it require a gradient?"""
        return self._info.trainable

    @property
    def used_by(self) -> list[str]:
        """The operations that work with it."""
        return [self._graph.label(place) for place in self._places]

    @property
    def value(self) -> Tensor | None:
        """The parameter itself, as it is now; None if the forward pass did not use it."""
        return next((p.saved for p in self._graph.trace.params if p.address == self.address), None)

    def __repr__(self) -> str:
        frozen = "" if self.trainable else ", frozen"
        return f"ParamLog({self.address}  {self.shape}, {self.memory_str}{frozen})"

    def _repr_html_(self) -> str:
        from .html import param_html

        return param_html(self)


class BufferLog(_TensorLog):
    """One buffer of the model: `log.buffers["bn.running_mean"]`."""

    @property
    def layers(self) -> list[str]:
        """Its entries in the log: one when it is first used, one more each time a call overwrites it."""
        return [self._graph.label(place) for place in self._places]

    @property
    def used_by(self) -> list[str]:
        """The operations that work with it."""
        users = dict.fromkeys(child for place in self._places for child in self._graph.children[place])
        return [self._graph.label(place) for place in users]

    def __repr__(self) -> str:
        used = ", ".join(self.used_by[:3]) or "nothing"
        return f"BufferLog({self.address}  {self.shape}, {self.memory_str}, used by {used})"

    def _repr_html_(self) -> str:
        from .html import buffer_html

        return buffer_html(self)

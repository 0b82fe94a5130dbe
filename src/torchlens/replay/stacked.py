"""Many forward passes at once, each with a change of its own, and each from there on."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..capture import rng
from ..capture.functions import OUTPUT, RAISED
from ..capture.records import Call, Value, argument_values
from ..capture.tensor_memory import layout_of
from ..errors import ReplayError
from ..graph.graph import Graph
from .call import recompute
from .downstream import Downstream, Edits
from .guard import Guard
from .reasons import NotReplayable
from .stacked_functions import computed_at_once

#: What torch says where it computes one sample after the other, as we would.
_ONE_BY_ONE = "There is a performance drop because we have not yet implemented the batching rule"


class Stacked:
    """What a model would return in each of many forward passes, its cells: each has another tensor for one value.

    >>> run = Stacked(log.graph, [log["output"]._value])
    >>> zeros_in_one_row = torch.stack([log["fc"].activation.index_fill(0, row, 0) for row in torch.arange(5)])
    >>> [found.shape for found in run.outputs({log["fc"]._value: zeros_in_one_row}).values()]
    [torch.Size([5, 5, 5])]

    Values have one more dimension here, the first: that of the cells. A cell joins where its value is made; until then
    it is the logged run, and nothing of it is computed. So there is one pass over the calls, with more and more cells.

    Args:
        graph: of the logged forward pass.
        wanted: the values to return.
        edits: those that the log was made with.
    """

    def __init__(self, graph: Graph, wanted: Collection[Value], edits: Edits | None = None) -> None:
        self.graph, self.trace, self.wanted = graph, graph.trace, list(wanted)
        self.edits = edits or Edits()
        self.logged = Downstream(graph, {}, without_grad=True).tensor
        self.raised = {event.call for event in self.trace.events if event.function == RAISED}
        self.taken = [_taken(call) for call in self.trace.calls]
        self.uses = self._uses()
        self.needed = [any(value in self.uses for value in call.outputs) for call in self.trace.calls]
        self.last_used: list[list[Value]] = [[] for _ in range(len(self.taken) + 1)]
        for value, number in self.uses.items():
            self.last_used[number].append(value)
        self.one_by_one: set[str] = set()  # functions that torch.vmap does not take

    def _uses(self) -> dict[Value, int]:
        """The values that anything wanted depends on, or that are read, each with the last call that needs it."""
        uses = dict.fromkeys(self.wanted, len(self.taken))
        for event in self.trace.events:
            for value in event.values:
                uses[value] = max(uses.get(value, 0), event.call)
        for number, call in zip(reversed(range(len(self.taken))), reversed(self.trace.calls), strict=True):
            if any(value in uses for value in call.outputs):
                for value in self.taken[number]:
                    uses[value] = max(uses.get(value, 0), number)
        return uses

    def cell_bytes(self, first: int) -> int:
        """The most bytes that the values of one cell take at a time, if all that follows a call is computed."""
        most = now = 0
        for number in range(max(first, 0), len(self.taken)):
            now += sum(value.nbytes for value in self.trace.calls[number].outputs if value in self.uses)
            most = max(most, now)
            now -= sum(value.nbytes for value in self.last_used[number] if value.call >= first)
        return most

    def outputs(self, joining: Mapping[Value, Tensor]) -> dict[Value, Tensor]:
        """The wanted values, as far as they change. `joining` has the tensors of each value that is to be another, one
        for each cell, in the order of the forward pass."""
        run = _Run(self, joining)
        first = min((value.call for value in joining), default=-1)
        for number in range(max(first, 0), len(self.taken)):
            run.step(number, self.trace.calls[number])
        run.check_reads(len(self.taken))
        return {value: run.all_cells(value) for value in self.wanted if value in run.new}


class _Run:
    def __init__(self, plan: Stacked, joining: Mapping[Value, Tensor]) -> None:
        self.plan, self.joining = plan, joining
        self.guard = Guard(plan.graph)
        self.cells = 0  # how many have joined
        self.new: dict[Value, Tensor] = {}  # with as many cells as there were when it was made
        self.changed: set[Value] = set()
        for value in joining:
            if value.call < 0:
                self._join(value)

    def step(self, number: int, call: Call) -> None:
        self.check_reads(number)
        if self.plan.needed[number]:
            stacked = {value: self.all_cells(value) for value in self.plan.taken[number] if value in self.new}
            if stacked:
                self._put(call, self._results(number, call, stacked))
        for value in call.outputs:
            if value in self.joining:
                self._join(value)
        for value in self.plan.last_used[number]:
            self.new.pop(value, None)

    # ---- cells ----------------------------------------------------------------------------------------------

    def all_cells(self, value: Value) -> Tensor:
        """The tensors of a value, one for each cell that there is now."""
        made = self.new[value]
        if len(made) < self.cells:
            made = self.new[value] = self._longer(value, self.cells)
        return made

    def _join(self, value: Value) -> None:
        more = self.joining[value]
        here = self.cells + len(more)
        joined = self._longer(value, here)
        joined[self.cells :] = more
        self.new[value], self.cells = joined, here
        self.changed.add(value)

    def _longer(self, value: Value, cells: int) -> Tensor:
        """The cells of a value, and as many more as are asked for, in which it is what was logged."""
        logged, made = self._logged(value), self.new.get(value)
        longer = _room_for(cells, logged)
        if made is not None:
            longer[: len(made)] = made
        longer[0 if made is None else len(made) :] = logged.detach()
        return longer

    def _logged(self, value: Value) -> Tensor:
        logged = self.plan.logged(value)
        if logged is None:
            raise ReplayError("a value that is needed was not saved")
        return logged

    def _in_cell(self, cell: int, value: Value) -> Tensor | None:
        made = self.new.get(value)
        return self.plan.logged(value) if made is None or cell >= len(made) else made[cell]

    # ---- what is read ---------------------------------------------------------------------------------------

    def check_reads(self, number: int) -> None:
        for event in self.guard.due(number, self.changed):
            for cell in range(self.cells):
                self.guard.check(event, self.changed, partial(self._in_cell, cell))

    # ---- one call -------------------------------------------------------------------------------------------

    def _put(self, call: Call, results: list[Tensor]) -> None:
        for value, tensor in zip(call.outputs, results, strict=True):
            if tensor.shape[1:] != value.shape or tensor.dtype != value.dtype:
                self.guard.check_geometry(value, tensor[0])
            if value in self.plan.uses:
                self.new[value] = tensor
                self.changed.add(value)

    def _results(self, number: int, call: Call, stacked: dict[Value, Tensor]) -> list[Tensor]:
        if call.function is OUTPUT:
            return list(stacked.values())
        if self.plan.edits.concern(number, call):
            return self._one_by_one(number, call)
        found = computed_at_once(call, stacked, self.plan.logged)
        if found is not None:
            return found
        draws = call.rng is not None or call.function.random or call.function.foreign
        again = partial(self._by_vmap, number, call, stacked)
        return rng.restoring(again) if draws else again()

    def _by_vmap(self, number: int, call: Call, stacked: dict[Value, Tensor]) -> list[Tensor]:
        if call.function.name in self.plan.one_by_one:
            return self._one_by_one(number, call)
        for value in call.written:
            if value not in stacked:  # each cell writes to its own
                stacked[value] = self._longer(value, self.cells)

        def one(*tensors: Tensor) -> list[Tensor]:
            here = dict(zip(stacked, tensors, strict=True))
            return self._again(number, call, lambda value: here[value] if value in here else self.plan.logged(value))

        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=_ONE_BY_ONE)
                return torch.vmap(one, randomness="same")(*stacked.values())
        except (RuntimeError, ValueError, TypeError, IndexError, NotReplayable):
            self.plan.one_by_one.add(call.function.name)  # it can't be batched, or reads a value
            return self._one_by_one(number, call)

    def _one_by_one(self, number: int, call: Call) -> list[Tensor]:
        made = [self._in_one_cell(number, call, cell) for cell in range(self.cells)]
        return [_stack(tensors) for tensors in zip(*made, strict=True)]

    def _in_one_cell(self, number: int, call: Call, cell: int) -> list[Tensor]:
        def argument(value: Value) -> Tensor | None:
            tensor = self._in_cell(cell, value)
            return None if tensor is None else self.plan.edits.argument(number, value, tensor)

        pairs = zip(call.outputs, self._again(number, call, argument), strict=True)
        return [self.plan.edits.result(value, tensor) for value, tensor in pairs]

    def _again(self, number: int, call: Call, argument: Any) -> list[Tensor]:
        return recompute(call, argument, state=(False, *call.state[1:]), may_raise=number in self.plan.raised)


def _taken(call: Call) -> list[Value]:
    found = dict.fromkeys(value for _, value in argument_values(call))
    return list(found | dict.fromkeys(call.written))


def _stack(tensors: tuple[Tensor, ...]) -> Tensor:
    stacked = _room_for(len(tensors), tensors[0])
    for cell, tensor in enumerate(tensors):
        stacked[cell] = tensor.detach()
    return stacked


def _room_for(cells: int, tensor: Tensor) -> Tensor:
    """Memory for many tensors, each laid out as this one: whether it can be viewed in another shape depends on that."""
    layout = layout_of(tensor)
    if layout is None or tensor.is_quantized or type(tensor) not in (Tensor, Parameter):
        raise NotReplayable("tensors like this one can't be stacked")
    if not layout.is_dense:
        return tensor.new_empty((cells, *tensor.shape))
    return torch.empty_strided(
        (cells, *tensor.shape), (tensor.numel(), *tensor.stride()), dtype=tensor.dtype, device=tensor.device
    )

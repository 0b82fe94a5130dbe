"""One log, ready to be compared: its graph by the numbers of values, and its values in float64."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import torch
from torch import Tensor

from ..capture.records import Call, Value, argument_values
from ..graph.call_stacks import user_stack
from ..log.model_log import ModelLog
from ..log.op_log import OpLog
from ..replay.float64 import Float64

#: Functions that only rearrange or hand on what they are given.
VIEWS = {
    "T", "__getitem__", "chunk", "clone", "contiguous", "detach", "expand", "expand_as", "flatten", "float", "movedim",
    "permute", "repeat", "reshape", "split", "split_with_sizes", "squeeze", "swapaxes", "t", "to", "transpose",
    "type_as", "unbind", "unflatten", "unsqueeze", "view", "view_as",
}  # fmt: skip

#: One name for the spellings of one function.
_SPELLINGS = {
    "__add__": "add", "__iadd__": "add", "__radd__": "add", "__imul__": "mul", "__matmul__": "matmul", "__mul__": "mul",
    "__pow__": "pow", "__rmul__": "mul", "__rsub__": "rsub", "__sub__": "sub", "__isub__": "sub", "__truediv__": "div",
    "__itruediv__": "div", "addmm": "linear", "bmm": "matmul", "convolution": "conv2d", "true_divide": "div",
}  # fmt: skip

#: Is told of each new value; what it returns takes the value's place.
OnValue = Callable[[int, Tensor | None], "Tensor | None"]


class Side:
    """One of the two logs. Values are known by their index in the trace."""

    def __init__(self, log: ModelLog, name: str) -> None:
        self.log, self.name = log, name
        self.graph, self.trace = log.graph, log.graph.trace
        entries = self.graph.entries
        self.ids = [value.index for value in entries]
        self.rank = self.graph.place
        self.parents = {v.index: tuple(entries[p].index for p in self.graph.parents[k]) for k, v in enumerate(entries)}
        self.children = {v.index: [entries[c].index for c in self.graph.children[k]] for k, v in enumerate(entries)}
        self.inputs = [value.index for value in entries if value.role == "input"]
        self.outputs = [value.index for value in entries if value.role == "output"]
        self.values: dict[int, Tensor | None] = {}

    # ---- what stands in the log -------------------------------------------------------------------------------

    def value(self, index: int) -> Value:
        return self.trace.values[index]

    def call(self, index: int) -> Call | None:
        number = self.value(index).call
        return self.trace.calls[number] if number >= 0 else None

    def spelled(self, index: int) -> str:
        """The function as it was called; of what no call made, its role."""
        call = self.call(index)
        return self.value(index).role if call is None else call.function.name

    def function(self, index: int) -> str:
        """The function, by one name for all its spellings."""
        name = self.spelled(index)
        name = _SPELLINGS.get(name, name)
        if name == "matmul" and self.params(index):
            return "linear"
        return name[:-1] if name.endswith("_") and not name.endswith("__") and len(name) > 1 else name

    def is_view(self, index: int) -> bool:
        return self.spelled(index) in VIEWS

    def params(self, index: int) -> list[Value]:
        call = self.call(index)
        return [] if call is None else [value for _, value in argument_values(call) if value.role == "param"]

    def label(self, index: int) -> str:
        return self.graph.label(self.rank[index])

    def op(self, index: int) -> OpLog:
        return self.log.layer_at(self.rank[index])  # type: ignore[return-value]

    def module(self, index: int) -> str:
        """The module that an operation ran in; of what no call made, its address."""
        op = self.op(index)
        return op.containing_module or self.value(index).address or ""

    def line(self, index: int) -> str:
        """File and line in the user's code."""
        call = self.call(index)
        stack = user_stack(self.trace, call) if call is not None else []
        return f"{stack[0].file.rpartition('site-packages/')[2]}:{stack[0].line}" if stack else ""

    def comes_from_input(self, index: int) -> bool:
        return self.graph.from_input[self.rank[index]]

    @cached_property
    def consumers(self) -> dict[int, list[int]]:
        """The calls that take each value."""
        found: dict[int, list[int]] = {}
        for number, call in enumerate(self.trace.calls):
            for _, value in argument_values(call):
                if value.role != "param":
                    found.setdefault(value.index, []).append(number)
        return found

    @property
    def param_type(self) -> torch.dtype:
        """The coarsest type among the parameters, or among the inputs if there are none."""
        for values in (self.trace.params, [self.value(index) for index in self.inputs]):
            types = [value.dtype for value in values if value.dtype.is_floating_point]
            if types:
                return max(types, key=coarseness)
        return torch.float32

    # ---- in float64 -------------------------------------------------------------------------------------------

    def compute(self, coarse: torch.dtype) -> None:
        """Compute every value again in float64."""
        self.exact = Float64(self.trace, coarse)
        for value in self.trace.values:
            if value.call < 0:
                self.values[value.index] = self.exact.source(value)
        for number, call in enumerate(self.trace.calls):
            results = self.exact.results(number, self._tensor)
            self.values.update({o.index: t for o, t in zip(call.outputs, results, strict=True)})

    def take_saved(self) -> None:
        """Take the values as they were saved, where nothing needs to be computed again."""
        self.exact = Float64(self.trace, self.param_type)
        self.values = {value.index: value.saved for value in self.trace.values}

    def _tensor(self, value: Value) -> Tensor | None:
        return self.values.get(value.index)

    def param(self, value: Value) -> Tensor | None:
        return self.exact.source(value)

    def recomputed(self, index: int, given: Mapping[int, Tensor | None]) -> Tensor | None:
        """One value, made of other parents."""
        value = self.value(index)
        tensor_of = lambda v: given.get(v.index, self.values.get(v.index))  # noqa: E731
        results = self.exact.results(value.call, tensor_of, changed=True)
        position = self.trace.calls[value.call].outputs.index(value)
        return results[position]

    def downstream(
        self,
        given: Mapping[int, Tensor],
        fixed: Iterable[int] = (),
        limit: int | None = None,
        on_value: OnValue | None = None,
    ) -> dict[int, Tensor | None]:
        """What becomes of the values that depend on those that are given. The side itself stays as it is.

        Args:
            given: other tensors, by value.
            fixed: values that stay what they are, whatever they depend on.
            limit: how many calls to compute at most.
            on_value: is told of each new value, and may answer with another.
        """
        new: dict[int, Tensor | None] = dict(given)
        fixed = set(fixed) | set(given)
        tensor_of = lambda v: new[v.index] if v.index in new else self.values.get(v.index)  # noqa: E731
        waiting: list[int] = []
        seen: set[int] = set()

        def wake(index: int) -> None:
            for number in self.consumers.get(index, ()):
                if number not in seen:
                    seen.add(number)
                    heapq.heappush(waiting, number)

        for index in given:
            wake(index)
        done = 0
        while waiting and (limit is None or done < limit):
            number = heapq.heappop(waiting)
            outputs = [output for output in self.trace.calls[number].outputs if output.index not in fixed]
            if not outputs:
                continue
            done += 1
            results = self.exact.results(number, tensor_of, changed=True)
            for output, tensor in zip(self.trace.calls[number].outputs, results, strict=True):
                if output.index in fixed:
                    continue
                new[output.index] = tensor
                if on_value is not None and output.index in self.rank:
                    new[output.index] = on_value(output.index, tensor)
                wake(output.index)
        return new


def coarseness(dtype: torch.dtype) -> float:
    """How coarsely a type rounds."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0

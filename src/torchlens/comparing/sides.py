"""One log, ready to be compared: its graph by the numbers of values, and its values in float64."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from itertools import islice

import torch
from torch import Tensor

from ..capture.records import Call, Value, argument_values
from ..graph.call_stacks import user_stack
from ..log.model_log import ModelLog
from ..log.op_log import OpLog
from ..replay.float64 import Float64
from .fingerprints import Fingerprint, fingerprint
from .float64_values import Values

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

#: Is told of each new value.
OnValue = Callable[[int, Tensor | None], None]

#: The float64 values that were used lately stay in memory up to this many bytes, or a part of what the log takes.
_LEAST_BYTES, _PART = 32 << 20, 8


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

    def has_bias(self, index: int) -> bool:
        """Does a linear operation add a bias itself?"""
        return len(self.params(index)) > 1

    def leaves_bias_to_add(self, index: int) -> bool:
        """Is it the product of `x @ weight + bias`, whose bias a later operation adds?"""
        while not self.has_bias(index) and len(self.children[index]) == 1:
            count = self.value(index).shape[-1] if self.value(index).shape else 1
            (index,) = self.children[index]
            if self.function(index) == "add":
                constants = [self.value(p) for p in self.parents[index] if not self.comes_from_input(p)]
                return any(value.shape.numel() == count for value in (*self.params(index), *constants))
            if not self.is_view(index):
                return False
        return False

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

    @cached_property
    def bytes(self) -> int:
        """What its values take, those that share the memory of others not counted."""
        made = (self.value(i) for i in self.ids if not self.is_view(i))
        return sum(value.nbytes for value in made if value.role != "output")

    # ---- in float64 -------------------------------------------------------------------------------------------

    def prepare(self, coarse: torch.dtype, other: Side, *, blank: bool = True) -> None:
        """Make the values ready to be asked for in float64, as little of them in memory as both logs allow."""
        self.exact = Float64(self.trace, coarse, blank=blank)
        self.values = Values(self.trace, self.exact, max(_LEAST_BYTES, max(self.bytes, other.bytes) // _PART))

    def make_room(self) -> None:
        """A proof holds values of its own: what is large and can be computed again goes before."""
        if self.bytes > _LEAST_BYTES:
            self.values.forget_recent()

    def fingerprints(self) -> dict[int, Fingerprint]:
        """Of every value, which are computed on the way."""
        return {i: fingerprint(self.values[i]) for i in self.ids}

    def param(self, value: Value) -> Tensor | None:
        return self.exact.source(value)

    def recomputed(self, index: int, given: Mapping[int, Tensor | None]) -> Tensor | None:
        """One value, made of other parents."""
        value = self.value(index)
        results = self.exact.results(value.call, self._tensors(given), changed=True)
        position = self.trace.calls[value.call].outputs.index(value)
        return results[position]

    def with_param(self, index: int, region: Collection[int], param: Value, tensor: Tensor) -> Tensor | None:
        """One value, made by the calls of a region with another parameter; None if they can't be computed."""
        exact, new = self.exact.with_param(param, tensor), dict[int, Tensor | None]()
        for number in sorted({self.value(i).call for i in region} - {-1}):
            results = exact.results(number, self._tensors(new), changed=True)
            outputs = self.trace.calls[number].outputs
            new |= {output.index: result for output, result in zip(outputs, results, strict=True)}
        return None if exact.kept else new.get(index)

    def downstream(
        self, given: Mapping[int, Tensor], fixed: Collection[int], most: int | None = None
    ) -> dict[int, Tensor | None]:
        """What would become of the values that depend on those that are given, and on none that are fixed.

        At most so many calls are computed. The side stays as it is.
        """
        new: dict[int, Tensor | None] = dict(given)
        for number, outputs in islice(self._affected(given, {*fixed, *given}), most):
            results = self.exact.results(number, self._tensors(new), changed=True)
            made = zip(self.trace.calls[number].outputs, results, strict=True)
            new |= {output.index: tensor for output, tensor in made if output.index in outputs}
        return new

    def graft(self, index: int, tensor: Tensor, fixed: Collection[int], on_value: OnValue) -> None:
        """Put a tensor in the place of a value, and compute what depends on it, and on none that are fixed."""
        self.values.put(index, tensor, fixed=True)
        for number, outputs in self._affected([index], {*fixed, index}):
            results = self.exact.results(number, self._tensors({}), changed=True)
            for output, new in zip(self.trace.calls[number].outputs, results, strict=True):
                if output.index in outputs:
                    self.values.put(output.index, new)
                    on_value(output.index, new)

    def _tensors(self, given: Mapping[int, Tensor | None]) -> Callable[[Value], Tensor | None]:
        return lambda value: given[value.index] if value.index in given else self.values[value.index]

    def _affected(self, begin: Collection[int], fixed: set[int]) -> Iterator[tuple[int, set[int]]]:
        """The calls that depend on some values, in their order, each with those of its outputs that are not fixed."""
        waiting: list[int] = []
        seen: set[int] = set()

        def wake(indices: Collection[int]) -> None:
            new = {number for index in indices for number in self.consumers.get(index, ())} - seen
            seen.update(new)
            for number in new:
                heapq.heappush(waiting, number)

        wake(begin)
        while waiting:
            number = heapq.heappop(waiting)
            outputs = {output.index for output in self.trace.calls[number].outputs} - fixed
            if outputs:
                yield number, outputs
                wake(outputs)


def coarseness(dtype: torch.dtype) -> float:
    """How coarsely a type rounds."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0

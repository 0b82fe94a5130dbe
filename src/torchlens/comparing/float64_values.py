"""The values of one run in float64, most of which are computed again when they are asked for.

Together they would take twice the memory of the log that they belong to. Kept are a few, such that every other is made
of them in at most `_STEPS` calls, and what was used lately. So a walk through the graph in its order computes each call
once, and a look at a single value a few calls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..capture.records import Call, Trace, Value, argument_values
from ..replay.float64 import Float64
from ..replay.recent import Recent

#: How many calls it takes at most to make a value of what is kept.
_STEPS = 8


class Values:
    """The values of one run, by their index in the trace.

    >>> values = Values(log._trace, Float64(log._trace), most_bytes=1_000_000)
    >>> values[log["fc"]._value.index].dtype
    torch.float64

    None stands for a value that was not saved and can't be computed. `put` replaces one; what depends on it is to be
    put as well, in the order of the forward pass.
    """

    def __init__(self, trace: Trace, exact: Float64, most_bytes: int) -> None:
        self._trace, self._exact = trace, exact
        self._kept: dict[int, Tensor | None] = {}
        self._recent = Recent(most_bytes)
        self._steps: dict[int, int] = {}  # calls from what is kept, by value
        self._changed: set[int] = set()
        self._fixed: set[int] = set()

    def __getitem__(self, index: int) -> Tensor | None:
        if index in self._kept:
            return self._kept[index]
        found = self._recent.get(index)
        return self._made(index) if found is None else found

    def put(self, index: int, tensor: Tensor | None, *, fixed: bool = False) -> None:
        """Another tensor in place of a value: `fixed` if it is not what its call makes of its arguments."""
        self._changed.add(index)
        if fixed:
            self._fixed.add(index)
        self._hold(index, tensor)

    def copy(self) -> Values:
        """The values as they are now; what is put into one is not in the other."""
        made = Values(self._trace, self._exact, self._recent.most_bytes)
        made._kept, made._recent, made._steps = dict(self._kept), self._recent.copy(), dict(self._steps)
        made._changed, made._fixed = set(self._changed), set(self._fixed)
        return made

    def forget_recent(self) -> None:
        """Let go of all that can be computed again."""
        self._recent = Recent(self._recent.most_bytes)

    # ---- computing ---------------------------------------------------------------------------------------------

    def _made(self, index: int) -> Tensor | None:
        """Compute a value, and before it what it is made of, as far as that is not there."""
        value = self._trace.values[index]
        if value.call < 0:
            return self._source(value)
        there: dict[int, Tensor | None] = {}
        for number in sorted(self._calls_to(value.call, there)):
            there |= self._run(number, there)
        return there[index]

    def _calls_to(self, last: int, there: dict[int, Tensor | None]) -> set[int]:
        """The calls to run, up to a last one. Values that are there are added to `there`, lest they go meanwhile."""
        calls: set[int] = set()
        waiting = [last]
        while waiting:
            number = waiting.pop()
            if number in calls:
                continue
            calls.add(number)
            for value in _taken(self._trace.calls[number]):
                if value.index in there:
                    continue
                found = self._recent.get(value.index)
                if value.index in self._kept or found is not None or value.call < 0:
                    there[value.index] = self[value.index]
                else:
                    waiting.append(value.call)
        return calls

    def _run(self, number: int, there: dict[int, Tensor | None]) -> dict[int, Tensor | None]:
        call = self._trace.calls[number]
        changed = any(output.index in self._changed for output in call.outputs)
        results = self._exact.results(number, lambda value: there[value.index], changed=changed)
        made = {output.index: tensor for output, tensor in zip(call.outputs, results, strict=True)}
        for index in made:
            if index in self._fixed:
                made[index] = self._kept[index]
            else:
                self._hold(index, made[index])
        return made

    def _source(self, value: Value) -> Tensor | None:
        tensor = self._exact.source(value)
        if tensor is not None and value.role != "param":
            self._recent.put(value.index, tensor)
        return tensor

    # ---- keeping -----------------------------------------------------------------------------------------------

    def _hold(self, index: int, tensor: Tensor | None) -> None:
        self._recent.drop(index)
        if tensor is None or self._is_kept(index):
            self._kept[index] = None if tensor is None else _of_its_own(tensor)
        else:
            self._kept.pop(index, None)
            self._recent.put(index, tensor)

    def _is_kept(self, index: int) -> bool:
        value = self._trace.values[index]
        if index in self._fixed or value.call < 0:
            self._steps[index] = 0
            return index in self._fixed
        steps = 1 + max((self._steps.get(each.index, 0) for each in _taken(self._trace.calls[value.call])), default=0)
        self._steps[index] = 0 if steps > _STEPS else steps
        return steps > _STEPS


def _taken(call: Call) -> list[Value]:
    """What a call is given, but for parameters."""
    return [value for _, value in argument_values(call) if value.role != "param"]


def _of_its_own(tensor: Tensor) -> Tensor:
    """A piece of a larger tensor would keep the whole in memory."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        return tensor
    own = tensor.numel() * tensor.element_size()
    return tensor.clone() if tensor.untyped_storage().nbytes() > 2 * own else tensor

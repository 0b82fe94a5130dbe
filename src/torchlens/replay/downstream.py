"""Compute again everything that depends on changed values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, partial
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from ..capture import rng
from ..capture.containers import reconstructed
from ..capture.functions import OUTPUT, RAISED
from ..capture.records import Call, NotRebuilt, Trace, Value, argument_values
from ..errors import ReplayError
from ..graph.call_stacks import call_in_words
from ..graph.graph import Graph
from .call import UNINITIALISED, recompute
from .guard import Guard
from .memory import laid_as
from .reasons import NotReplayable


class Edits:
    """What may be replaced while values are computed again. This one replaces nothing; override what you need.

    For each call that is computed, in the order of the forward pass:

        argument(call, value, tensor)   once for each value among its arguments, before the call runs: along one edge
        result(value, tensor)           once for each value it makes, before anything uses it

    concern(call, ...) says whether either may be another.
    """

    def concern(self, number: int, call: Call) -> bool:
        """May anything be replaced that this call takes or makes?"""
        return False

    def argument(self, call: int, value: Value, tensor: Tensor) -> Tensor:
        """What the call with this number gets in place of a value, which stays what it is for every other call."""
        return tensor

    def result(self, value: Value, tensor: Tensor) -> Tensor:
        """What takes the place of a value that was just computed."""
        return tensor


class Downstream:
    """The values of a forward pass in which some were changed.

    >>> run = Downstream(log.graph, {log["fc"]._value: torch.zeros(5, 5)})
    >>> new = dict(run.values())        # what was computed again, in order
    >>> run.output().shape              # what the model would have returned
    torch.Size([5, 5])

    Args:
        graph: of the forward pass.
        given: values that are others, each with its tensor, or with None for the tensor that was saved. What depends
            on them is computed again; all else is as it was saved. A parameter can be given as well.
        calls: numbers of calls to compute in any case, with all that depends on them: where an edit is to happen.
        everything: compute every call of the graph.
        edits: what may replace values on the way.
        without_grad: run all calls without autograd, whatever mode they ran in; kernels may then round differently.
        any_geometry: let values have other shapes and types than they had, for callers who know that the model does not
            depend on them.

    Random operations draw the same numbers again. Without autograd around it, the results have no history. Where the
    model would have read something else from a value, or may have, `DivergenceError` is raised.
    """

    def __init__(
        self,
        graph: Graph,
        given: Mapping[Value, Tensor | None],
        *,
        calls: Collection[int] = (),
        everything: bool = False,
        edits: Edits | None = None,
        any_geometry: bool = False,
        without_grad: bool = False,
    ) -> None:
        self.graph = graph
        self.trace: Trace = graph.trace
        self.given = given
        self.calls = calls
        self.everything = everything
        self.edits = edits or Edits()
        self.guard = Guard(graph)
        self.raised = {event.call for event in self.trace.events if event.function == RAISED}
        self.any_geometry = any_geometry
        self.without_grad = without_grad
        # Outside of autograd, operations run as they did, since kernels are chosen by whether a gradient is required,
        # and their results are cut off one by one.
        self.differentiably = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        self.new: dict[Value, Tensor] = {}
        self.changed = set(given)
        for value, tensor in given.items():
            if tensor is not None:
                self._put(value, laid_as(value.kept, tensor))

    def values(self) -> Iterator[tuple[Value, Tensor]]:
        """Compute what depends on the changes, call by call: each new value with its tensor."""
        for number, call in enumerate(self.trace.calls):
            self._check_reads(number)
            if self._is_affected(number, call):
                run = partial(self._run, number, call)
                draws = call.rng is not None or call.function.random or call.function.foreign
                yield from rng.restoring(run) if draws else run()
        self._check_reads(len(self.trace.calls))

    def _check_reads(self, number: int) -> None:
        for event in self.guard.due(number, self.changed):
            self.guard.check(event, self.changed, self.tensor)

    def output(self) -> Any:
        """What the model returns; to be asked when all values have been computed."""
        if not self.trace.complete:
            raise ReplayError("the forward pass raised, so there is no output")
        if isinstance(self.trace.output, NotRebuilt):
            raise ReplayError(f"what the model returned can't be rebuilt: {self.trace.output.reason}")
        return reconstructed(self.trace.output, Value, self._result)

    def tensor(self, value: Value) -> Tensor | None:
        """The tensor of a value in this forward pass: the new one, or what was saved; None if it was not saved."""
        if value in self.new:
            return self.new[value]
        saved = value.saved
        if value.role == "param":
            return saved
        connections = self.trace.connections
        connected = connections.tensor(value) if connections is not None and self.differentiably else None
        saved = saved if connected is None else connected
        if saved is not None and saved.dtype != value.dtype:
            raise NotReplayable(f"a parent was saved as {saved.dtype}, but was {value.dtype}")
        return saved.clone() if saved is not None and saved.is_inference() and self.differentiably else saved

    # ---- one call -------------------------------------------------------------------------------------------

    def _is_affected(self, number: int, call: Call) -> bool:
        if all(value in self.given for value in call.outputs):
            return False
        if number in self.calls or any(value in self.changed for _, value in argument_values(call)):
            return True
        if not self.everything or call.function.name in UNINITIALISED:
            return False
        return any(value.index in self.graph.place for value in call.outputs)

    def _run(self, number: int, call: Call) -> list[tuple[Value, Tensor]]:
        try:
            results = self._results(number, call)
        except NotReplayable as reason:
            raise ReplayError(f"{self._where(call)} can't be recomputed: {reason}") from None
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ReplayError(f"{self._where(call)} raised when it was recomputed: {error}") from error
        found = [pair for pair in zip(call.outputs, results, strict=True) if pair[0] not in self.given]
        for value, tensor in found:
            self._put(value, self.edits.result(value, tensor if self.differentiably else tensor.detach()))
        return [(value, self.new[value]) for value, _ in found]

    def _put(self, value: Value, tensor: Tensor) -> None:
        if not self.any_geometry:
            self.guard.check_geometry(value, tensor)
        self.new[value] = tensor
        self.changed.add(value)

    def _results(self, number: int, call: Call) -> list[Tensor]:
        if call.function is OUTPUT:
            (origin,) = call.args
            return [self._result(origin)]
        state = None if not self.without_grad else (False, *call.state[1:])
        if self.differentiably:
            if any(code in call.site for code in self._custom_forwards) and self._has_history(call):
                raise NotReplayable(
                    "it is part of a custom autograd function, whose gradient is not recorded; "
                    "replay it under torch.no_grad()"
                )
            if not self.trace.grad_enabled:  # the model did not choose to run without grad
                state = (True, False, *call.state[2:])

        def argument(value: Value) -> Tensor | None:
            tensor = self.tensor(value)
            return None if tensor is None else self.edits.argument(number, value, tensor)

        may_raise = number in self.raised
        return recompute(call, argument, differentiably=self.differentiably, state=state, may_raise=may_raise)

    @cached_property
    def _custom_forwards(self) -> list[CodeType]:
        return _forwards_of_custom_functions()

    def _has_history(self, call: Call) -> bool:
        tensors = [self.tensor(value) for _, value in argument_values(call)]
        return any(tensor is not None and tensor.requires_grad for tensor in tensors)

    def _result(self, value: Value) -> Tensor:
        tensor = self.tensor(value)
        if tensor is None:
            raise ReplayError(
                "an output of the model was not saved, and is not recomputed, since nothing that it depends on was "
                "changed"
            )
        if value in self.new or tensor.requires_grad:
            return tensor
        return tensor.detach().clone()  # what is given away may be overwritten

    def _where(self, call: Call) -> str:
        places = [self.graph.place[v.index] for v in call.outputs if v.index in self.graph.place]
        name = self.graph.label(places[0]) if places else call.function.name
        return call_in_words(self.trace, call, name)


def replayed_output(graph: Graph, given: Mapping[Value, Tensor | None], edits: Edits | None = None) -> Any:
    """What the model returns when some of its values are changed; with none given, everything is computed again."""
    run = Downstream(graph, given, everything=not given, edits=edits)
    for _ in run.values():
        pass
    return run.output()


def _forwards_of_custom_functions() -> list[CodeType]:
    """The code of the forward of every custom autograd function."""
    found, kinds = [], [torch.autograd.Function]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if hasattr(kind.forward, "__code__"):
            found.append(kind.forward.__code__)
    return found

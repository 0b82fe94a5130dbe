"""Run the recorded functions again, without the model's own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..capture import rng
from ..capture.containers import reconstructed
from ..capture.functions import OUTPUT
from ..capture.records import Call, NotRebuilt, Trace, Value
from ..errors import ReplayError
from ..graph.graph import Graph
from ..graph.link import argument_values
from ..graph.sites import call_in_words
from ..validate.replay import NotReplayable, replay
from ..validate.validate import UNINITIALISED

_CUSTOM_FUNCTION = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def replay_graph(graph: Graph, values: Mapping[int, Tensor | None] | None) -> Any:
    """What the model returns when some of its values are others than they were.

    `values` maps indexes of values to tensors, or to None for the tensor that was saved. What comes of them is computed
    again, in the order of the forward pass; all else is as it was saved. Without `values`, everything is.
    """
    return _Replay(graph, values).run()


class _Replay:
    def __init__(self, graph: Graph, values: Mapping[int, Tensor | None] | None) -> None:
        self.graph = graph
        self.trace: Trace = graph.trace
        self.everything = values is None
        self.given = dict(values or {})
        # Outside of autograd, operations run as they did, since kernels are chosen by whether a gradient is required,
        # and their results are cut off one by one.
        self.differentiably = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        self.new: dict[int, Tensor] = {i: tensor for i, tensor in self.given.items() if tensor is not None}
        self.changed = set(self.given)

    def run(self) -> Any:
        if not self.trace.complete:
            raise ReplayError("the forward pass raised, so there is nothing that it returned")
        if isinstance(self.trace.output, NotRebuilt):
            raise ReplayError(f"what the model returned can't be made again: {self.trace.output.reason}")
        with rng.restored():
            for call in self.trace.calls:
                if self._is_affected(call):
                    self._run(call)
        return reconstructed(self.trace.output, Value, self._result)

    def _is_affected(self, call: Call) -> bool:
        if all(value.index in self.given for value in call.outputs):
            return False
        if any(v.index in self.changed and v.role != "param" for _, v in argument_values(call)):
            return True
        if not self.everything or call.function.name in UNINITIALISED:
            return False
        return any(value.index in self.graph.place for value in call.outputs)

    def _run(self, call: Call) -> None:
        try:
            results = self._results(call)
        except NotReplayable as reason:
            raise ReplayError(f"{self._where(call)} can't be run again: {reason}") from None
        except RuntimeError as error:
            raise ReplayError(f"{self._where(call)} raised when it was run again: {error}") from error
        for value, tensor in zip(call.outputs, results, strict=True):
            if value.index not in self.given:
                self.new[value.index] = tensor if self.differentiably else tensor.detach()
                self.changed.add(value.index)

    def _results(self, call: Call) -> list[Tensor]:
        if call.function is OUTPUT:
            (origin,) = call.args
            return [self._result(origin)]
        state = call.state
        if self.differentiably:
            if _CUSTOM_FUNCTION in call.site and self._has_history(call):
                raise NotReplayable(
                    "it is part of a custom autograd function, whose gradient is not recorded; "
                    "replay it under torch.no_grad()"
                )
            if not self.trace.grad_enabled:  # the model did not choose to run without grad
                state = (True, False, *state[2:])
        return replay(call, self._tensor, differentiably=self.differentiably, state=state)

    def _has_history(self, call: Call) -> bool:
        tensors = [self._tensor(value, value.saved) for _, value in argument_values(call)]
        return any(tensor is not None and tensor.requires_grad for tensor in tensors)

    def _tensor(self, value: Value, saved: Tensor | None) -> Tensor | None:
        if value.role == "param":
            return saved
        if value.index in self.new:
            return self.new[value.index]
        connections = self.trace.connections
        connected = connections.tensor(value) if connections is not None and self.differentiably else None
        saved = saved if connected is None else connected
        if saved is not None and saved.dtype != value.dtype:
            raise NotReplayable(f"a parent was saved as {saved.dtype}, but was {value.dtype}")
        return saved.clone() if saved is not None and saved.is_inference() and self.differentiably else saved

    def _result(self, value: Value) -> Tensor:
        tensor = self._tensor(value, value.saved)
        if tensor is None:
            raise ReplayError("an output of the model was not saved, and nothing that it is computed from was changed")
        if value.index in self.new or tensor.requires_grad:
            return tensor
        return tensor.detach().clone()  # what is given away may be overwritten

    def _where(self, call: Call) -> str:
        places = [self.graph.place[v.index] for v in call.outputs if v.index in self.graph.place]
        name = self.graph.label(places[0]) if places else call.function.name
        return call_in_words(self.trace, call, name)

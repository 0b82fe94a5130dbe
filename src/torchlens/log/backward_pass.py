"""The backward passes through a logged forward pass: autograd's graph, what ran when, what was kept for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from ..capture.gradients import AutogradNode, Gradients, SavedForBackward
from ..capture.records import fetched
from ..errors import ArgumentError, FidelityWarning, TorchVersionError, warn
from ..graph.graph import Graph

#: The logs that record backward passes, as long as they exist.
listening: WeakSet[Any] = WeakSet()


class GradFnLog:
    """One node of autograd's graph, and the operation of the forward pass that it belongs to.

    >>> log = tl.log_forward_pass(model, x, save_gradients=True)
    >>> log["fc"].grad_fns
    [GradFnLog(AddmmBackward0 of linear_1_3), GradFnLog(TBackward0 of linear_1_3)]
    >>> log["fc"].grad_fns[0].next_grad_fns
    [GradFnLog(AccumulateGrad of fc.bias), GradFnLog(TBackward0 of linear_1_3)]
    """

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self._node = gradients_of(graph).nodes[number]
        self.number = number

    @property
    def name(self) -> str:
        """Autograd's name for it: `AddmmBackward0`."""
        return self._node.name.rpartition("::")[2]

    @property
    def layer(self) -> str | None:
        """The operation whose gradient it computes; for what was there before the forward pass, the input."""
        graph = self._graph
        if self._node.call >= 0:
            indexes = [value.index for value in graph.trace.calls[self._node.call].outputs]
        else:
            indexes = [] if self._node.value is None else [self._node.value]
        places = [graph.place[index] for index in indexes if index in graph.place]
        return graph.label(places[0]) if places else None

    @property
    def param(self) -> str | None:
        """The address of the parameter whose gradient it adds up."""
        return self._node.param

    @property
    def next_grad_fns(self) -> list[GradFnLog]:
        """The nodes that it hands gradients to."""
        return [GradFnLog(self._graph, number) for number in self._node.next]

    @property
    def saved_tensors(self) -> list[SavedForBackward]:
        """What autograd kept of the forward pass for it: names and sizes."""
        return list(saved_by(self._node))

    @property
    def saved_memory(self) -> int:
        """Bytes kept for it, parameters not counted."""
        return memory_of(saved_by(self._node))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFnLog) and (self._graph, self.number) == (other._graph, other.number)

    def __hash__(self) -> int:
        return hash((id(self._graph), self.number))

    def __repr__(self) -> str:
        return f"GradFnLog({self.name} of {self.param or self.layer or 'a tensor from before'})"


class BackwardPass:
    """One backward pass: an entry of `log.backward_passes`.

    >>> log = tl.log_forward_pass(model, x, save_gradients=True)
    >>> log.log_backward(log.output.sum())
    BackwardPass(1: 7 nodes of 6 layers)
    >>> log.backward_passes[0].grad_fns[0].layer
    'mul_1_10'
    """

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self.number = number + 1
        self._pass = gradients_of(graph).passes[number]

    @property
    def grad_fns(self) -> list[GradFnLog]:
        """The nodes that ran, in order."""
        return [GradFnLog(self._graph, step.node) for step in self._pass.steps]

    @property
    def times(self) -> list[float]:
        """Seconds spent in each of them."""
        return [max(0, step.stop - step.start) / 1e9 for step in self._pass.steps]

    @property
    def time_total(self) -> float:
        """Seconds from the first node's beginning to the last one's end."""
        steps = self._pass.steps
        return (max(step.stop for step in steps) - steps[0].start) / 1e9 if steps else 0.0

    @property
    def layers(self) -> list[str]:
        """The operations that the pass came through, in order."""
        return list(dict.fromkeys(node.layer for node in self.grad_fns if node.layer is not None))

    def __repr__(self) -> str:
        return f"BackwardPass({self.number}: {len(self._pass.steps)} nodes of {len(self.layers)} layers)"


def check_loss(loss: Any) -> None:
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise ArgumentError(
            "there is nothing to differentiate: the loss is not connected to autograd. Compute it, with grad enabled, "
            "from what a log with save_gradients or train_mode holds, or from what the model returned"
        )


def gradients_of(graph: Graph) -> Gradients:
    gradients = graph.trace.gradients
    if gradients is None:
        raise ArgumentError("this log does not record backward passes; log with save_gradients=True")
    return gradients


def why_none(graph: Graph, index: int) -> str | None:
    """Why a value has no gradient; None if it has one."""
    gradients = graph.trace.gradients
    if gradients is None:
        return "this log has no gradients: make it with save_gradients=True"
    if gradients.received.get(index):
        return None
    if not gradients.passes:
        return "no backward pass has come through this log: loss.backward(), with a loss of log.output, makes one"
    if gradients.wanted is not None and index not in gradients.wanted:
        return "save_gradients did not choose this layer"
    return "no backward pass reached it"


def warn_if_none(graph: Graph, index: int) -> None:
    """Say why no layer at all has a gradient. That this one was not chosen, or not reached, is an answer."""
    gradients = graph.trace.gradients
    if gradients is None or not gradients.passes:
        warn(f"the gradient is None, since {why_none(graph, index)}", FidelityWarning)


def gradients_by_pass(graph: Graph, index: int, *, transformed: bool = False) -> list[Any]:
    """The gradients of a value, one for each backward pass, None where the pass did not reach it."""
    gradients = graph.trace.gradients
    if gradients is None:
        return []
    found: dict[int, Any] = (gradients.transformed if transformed else gradients.received).get(index, {})
    return [fetched(found.get(number)) for number in range(len(gradients.passes))]


def last(gradients: Iterable[Tensor | None]) -> Any:
    return next((gradient for gradient in reversed(list(gradients)) if gradient is not None), None)


def saved_by(node: AutogradNode) -> tuple[SavedForBackward, ...]:
    """What autograd kept of the forward pass for this node."""
    if node.saved is None:
        raise TorchVersionError(
            f"torch {torch.__version__} does not tell what autograd keeps for the backward pass; torch 2.9 and newer do"
        )
    return node.saved


def memory_of(saved: Iterable[SavedForBackward]) -> int:
    """Bytes of tensors kept for the backward pass, each piece of memory once, without parameters."""
    return sum({each.memory: each.nbytes for each in saved if not each.is_param}.values())


def grad_fns_of(graph: Graph, place: int) -> list[GradFnLog]:
    """The nodes of autograd that an operation made."""
    gradients = graph.trace.gradients
    numbers = [] if gradients is None else gradients.nodes_of(graph.entries[place])
    return [GradFnLog(graph, number) for number in numbers]

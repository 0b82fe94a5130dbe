"""Follow the tensors of a forward pass into autograd, when gradients or training are asked for.

Of every tensor that requires a gradient, two things are noted: its position in the autograd graph, so that its
gradient can be collected later (gradients.py), and the tensor itself, so that a loss can be computed from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._torch import call_with_grad, is_functorch_wrapped
from ..errors import FidelityWarning, warn
from .autograd_state import MOST_GRAD_FNS, is_leaf
from .containers import paired
from .functions import Function
from .keeping import Keeper
from .observer import Arguments, Observer
from .records import Trace, Value
from .tensor_memory import address_of


class AutogradEdge(NamedTuple):
    """The position of a tensor in the autograd graph."""

    node: Any  # the grad_fn; of a leaf, what accumulates its gradient
    output: int  # which of the node's outputs it is
    leaf: Tensor | None  # the tensor, if nothing computed it


class Connected(NamedTuple):
    """A tensor as the model had it, with its history."""

    tensor: Tensor
    version: int


class Connections:
    """The tensors of a forward pass that a loss may be computed from, by the index of their value.

    They are the model's own tensors, so that gradients add up in the order they do without a log. Before the model
    overwrites one, its value is copied through autograd, and the copy takes its place here.
    """

    def __init__(self) -> None:
        self.by_index: dict[int, Connected] = {}
        self.transformed: dict[int, Tensor] = {}  # what the user's function made of them
        self._in_memory: dict[int, set[int]] = {}  # what a write to this storage would change

    def add(self, value: Value, tensor: Tensor) -> None:
        self.by_index[value.index] = Connected(tensor, tensor._version)
        self._in_memory.setdefault(address_of(tensor) or 0, set()).add(value.index)

    def before_write(self, tensor: Tensor) -> None:
        """The memory of `tensor` is about to be overwritten: replace the tensors that lie in it by copies."""
        address = address_of(tensor)
        for index in self._in_memory.pop(address, ()) if address else ():
            connected = self.by_index[index]
            if connected.tensor._version == connected.version:
                copy = call_with_grad(True, connected.tensor.clone)
                self.by_index[index] = Connected(copy, copy._version)

    def __deepcopy__(self, memo: Any) -> Connections:
        """The same tensors: what is connected to autograd can't be copied out of it."""
        new = Connections()
        new.by_index, new.transformed = dict(self.by_index), dict(self.transformed)
        new._in_memory = {memory: set(indexes) for memory, indexes in self._in_memory.items()}
        return new

    def drop(self, value: Value) -> None:
        self.by_index.pop(value.index, None)

    def keep_only(self, indexes: set[int]) -> None:
        self.by_index = {index: connected for index, connected in self.by_index.items() if index in indexes}

    def tensor(self, value: Value) -> Tensor | None:
        """The tensor of a value with its history; None if it has none, or none any more."""
        connected = self.by_index.get(value.index)
        if connected is None:
            return None
        if connected.tensor._version != connected.version:
            warn(
                f"a tensor of shape {tuple(value.shape)} was overwritten after it was logged; the log keeps its "
                "earlier value, detached from autograd",
                FidelityWarning,
            )
            return None
        return connected.tensor


class Following(Observer):
    """Notes the position of every value in the autograd graph."""

    def __init__(self, edges_wanted: bool) -> None:
        self.edges_wanted = edges_wanted
        self.edges: dict[int, AutogradEdge] = {}
        self.connections = Connections()
        self._without_history: set[int] = set()  # indexes of values that may get one later
        self._most_edges = MOST_GRAD_FNS  # Python sees the node of each

    def begin(self, trace: Trace, keeper: Keeper) -> None:
        self.trace = trace

    def held(self) -> Counter[int]:
        """How often each tensor is held, by id."""
        leaves = [edge.leaf for edge in self.edges.values() if edge.leaf is not None]
        return Counter(map(id, [connected.tensor for connected in self.connections.by_index.values()] + leaves))

    def value(self, value: Value, tensor: Tensor, module_call: int) -> None:
        if value.role == "output":
            self._look_again(self.trace.calls[value.call].args[0], tensor)
        if tensor.requires_grad:
            self._follow(tensor, value)
        else:
            self._without_history.add(value.index)

    def before_call(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], stored: Arguments
    ) -> None:
        for value, argument in paired([*stored[0], *stored[1].values()], [*args, *kwargs.values()]):
            self._look_again(value, argument)

    def replaced(self, value: Value, tensor: Tensor) -> None:
        self.connections.drop(value)
        self.edges.pop(value.index, None)
        self.value(value, tensor, -1)

    def before_write(self, tensor: Tensor) -> None:
        self.connections.before_write(tensor)

    def _look_again(self, value: Value, tensor: Tensor) -> None:
        """What a custom autograd function returns gets its history only after the operations in it have run."""
        if value.index in self._without_history and value.role != "param" and tensor.requires_grad:
            self._without_history.remove(value.index)
            self._follow(tensor, value)

    def _follow(self, tensor: Tensor, value: Value) -> None:
        if not torch.is_grad_enabled():
            self._without_history.add(value.index)
        if is_functorch_wrapped(tensor):  # valid only inside torch.func.grad and the like
            return
        if is_leaf(tensor) and tensor._is_view():  # made without grad, perhaps inside a custom autograd function
            return
        self.connections.add(value, tensor)
        if not self.edges_wanted:
            return
        if len(self.edges) < self._most_edges:
            node, output = torch.autograd.graph.get_gradient_edge(tensor)[:2]
            self.edges[value.index] = AutogradEdge(node, output, tensor if tensor.is_leaf else None)
        else:
            self._warn_of_depth()

    def _warn_of_depth(self) -> None:
        if self._most_edges == len(self.edges):  # once
            self._most_edges -= 1
            self.trace.warnings.append(
                f"only the first {len(self.edges)} values get their gradients: torch frees autograd nodes that Python "
                "has looked at recursively, and more of them could overflow the stack"
            )

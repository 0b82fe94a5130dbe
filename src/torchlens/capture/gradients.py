"""The backward passes through a logged forward pass, and the gradients they compute.

Hooks on autograd's nodes, and on the leaves among the inputs, hand each gradient to `Gradients` and note when each node
began and ended. They refer to it weakly: neither keeps the other alive, and when the log is dropped the hooks are
removed. Nothing is registered on the model's own tensors.

A node has two hooks. One on its output sees the gradient even if a backward pass ends there, as in
`torch.autograd.grad(loss, tensor)`. One on the node itself sees, just before the node runs, the gradient as the user's
own hooks have changed it, which is what `retain_grad` would keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from time import perf_counter_ns
from typing import Any, NamedTuple
from weakref import finalize, ref

from torch import Tensor
from torch.utils.hooks import unserializable_hook

from .._torch import (
    current_backward,
    hook_node_output,
    saved_for_backward,
    storage_address,
    tells_what_is_saved,
    without_torch_function,
)
from .following import AutogradEdge
from .records import Trace, Value

Postfunc = Callable[[Tensor], Any]


class SavedForBackward(NamedTuple):
    """A tensor of the forward pass that autograd keeps for the backward pass."""

    name: str  # under which autograd keeps it: self, other, result, mat1
    nbytes: int
    memory: int  # equal for tensors that share memory
    is_param: bool


class AutogradNode(NamedTuple):
    """One node of the autograd graph."""

    name: str
    call: int  # the torch call that made it, an index in Trace.calls; -1 for what was there before
    next: tuple[int, ...]  # the nodes that it hands gradients to
    saved: tuple[SavedForBackward, ...] | None  # None where torch does not tell
    param: str | None  # the address of the parameter whose gradient it accumulates
    value: int | None  # the index of the value that was given with it, such as an input


@dataclass
class Step:
    """One execution of a node. Times are the performance counter's, in nanoseconds."""

    node: int
    start: int
    stop: int


@dataclass
class Pass:
    """One backward pass: what ran, in the order in which it began."""

    steps: list[Step] = field(default_factory=list)
    running: dict[int, Step] = field(default_factory=dict)  # by node


@dataclass
class _Outlet:
    """A place in the autograd graph where a gradient comes out: an output of a node, or a leaf."""

    indexes: list[int] = field(default_factory=list)  # the values whose gradient it is
    given: bool = False  # was it there before the forward pass?
    fresh: ref[Tensor] | None = None  # what the first hook saw, until the second one has


class Gradients:
    """The autograd graph of a forward pass, the backward passes through it, and the gradients they brought."""

    def __init__(self, trace: Trace, edges: Mapping[int, AutogradEdge], postfunc: Postfunc | None) -> None:
        self.postfunc = postfunc
        self.passes: list[Pass] = []
        self.received: dict[int, dict[int, Tensor]] = {}  # by index of the value, then by number of the pass
        self.transformed: dict[int, dict[int, Any]] = {}
        self.wanted: set[int] | None = None  # the values whose gradients are kept; None for all
        self._passes_by_task: dict[int, int] = {}  # by autograd's number for a backward pass
        made_by = _find_nodes(trace, edges)
        self.nodes = _described(trace, edges, made_by)
        self._to_hook: tuple[Mapping[int, AutogradEdge], dict[Any, int]] | None = (edges, made_by)

    @classmethod
    def restored(
        cls,
        nodes: list[AutogradNode],
        passes: list[Pass],
        received: dict[int, dict[int, Any]],
        transformed: dict[int, dict[int, Any]],
    ) -> Gradients:
        """From what was saved. There are no hooks, so later backward passes add nothing."""
        gradients = cls.__new__(cls)
        gradients.postfunc = None
        gradients.nodes, gradients.passes = nodes, passes
        gradients.received, gradients.transformed = received, transformed
        gradients.wanted = None
        gradients._passes_by_task, gradients._to_hook = {}, None
        return gradients

    def __deepcopy__(self, memo: dict[int, Any]) -> Gradients:
        """A copy of the gradients so far; the hooks stay with the original."""
        came = deepcopy((self.nodes, self.passes, self.received, self.transformed), memo)
        return Gradients.restored(*came)

    def attach(self, trace: Trace, wanted: set[int] | None) -> None:
        """From now on, note every backward pass, with the gradients of the values of these indexes; None for all."""
        assert self._to_hook is not None
        self.wanted = wanted
        edges, made_by = self._to_hook
        self._to_hook = None  # it kept the graph alive
        store = ref(self)
        undo: list[Callable[[], None]] = []
        finalize(self, _undo, undo).atexit = False
        outlets: dict[Any, list[tuple[int, _Outlet]]] = {}
        for edge, outlet in _outlets(trace, edges, made_by):
            outlet.indexes = [index for index in outlet.indexes if wanted is None or index in wanted]
            hook = partial(_receive, store, outlet)
            if edge.leaf is not None and outlet.indexes:
                undo.append(_hook_leaf(edge.leaf, hook))
            elif outlet.indexes:
                undo.append(hook_node_output(edge.node, edge.output, hook))
                outlets.setdefault(edge.node, []).append((edge.output, outlet))
        for number, (node, call) in enumerate(made_by.items()):
            if call >= 0:
                begin = partial(_begin, store, number, outlets.get(node, []))
                undo.append(node.register_prehook(begin).remove)
                undo.append(node.register_hook(partial(_end, store, number)).remove)

    def nodes_of(self, value: Value) -> list[int]:
        """The numbers of the nodes that the call made which made a value; of an input, of those given with it."""
        return self._nodes_by.get(("call", value.call) if value.call >= 0 else ("value", value.index), [])

    @cached_property
    def _nodes_by(self) -> dict[tuple[str, int | None], list[int]]:
        found: dict[tuple[str, int | None], list[int]] = {}
        for number, node in enumerate(self.nodes):
            found.setdefault(("call", node.call), []).append(number)
            found.setdefault(("value", node.value), []).append(number)
        return found

    @property
    def current_pass(self) -> int | None:
        """The running backward pass, if it has already come through a node of this forward pass."""
        return self._passes_by_task.get(current_backward())

    def enter_pass(self) -> int:
        number = self._passes_by_task.setdefault(current_backward(), len(self.passes))
        if number == len(self.passes):
            self.passes.append(Pass())
        return number

    def receive(self, outlet: _Outlet, number: int, gradient: Tensor) -> None:
        with without_torch_function():
            # With create_graph=True a gradient has a history of its own, and is never changed.
            kept = gradient if gradient.requires_grad else gradient.detach().clone()
        for index in outlet.indexes:
            self.received.setdefault(index, {})[number] = kept
        if self.postfunc is not None:
            transformed = self.postfunc(kept)
            for index in outlet.indexes:
                self.transformed.setdefault(index, {})[number] = transformed


# ---- the hooks: they return nothing, so that autograd goes on with what it has --------------------------------


def _receive(store: ref[Gradients], outlet: _Outlet, gradient: Tensor | None) -> None:
    gradients = store()
    if gradients is None or gradient is None:
        return
    # A tensor from outside may be part of other graphs; only a backward pass that came through this one counts.
    number = gradients.current_pass if outlet.given else gradients.enter_pass()
    if number is not None:
        outlet.fresh = ref(gradient)
        gradients.receive(outlet, number, gradient)


def _begin(store: ref[Gradients], node: int, outlets: list[tuple[int, _Outlet]], given: tuple[Any, ...]) -> None:
    gradients = store()
    if gradients is None:
        return
    number = gradients.enter_pass()
    for output, outlet in outlets:
        fresh, outlet.fresh = outlet.fresh and outlet.fresh(), None
        if given[output] is not None and given[output] is not fresh:
            gradients.receive(outlet, number, given[output])
    current = gradients.passes[number]
    step = current.running[node] = Step(node, perf_counter_ns(), 0)
    current.steps.append(step)


def _end(store: ref[Gradients], node: int, made: Any, given: Any) -> None:
    now = perf_counter_ns()
    gradients = store()
    number = gradients.current_pass if gradients is not None else None
    if gradients is not None and number is not None:
        step = gradients.passes[number].running.pop(node, None)
        if step is not None:
            step.stop = now


def _hook_leaf(leaf: Tensor, hook: Callable[[Tensor], None]) -> Callable[[], None]:
    was_bare = leaf._backward_hooks is None
    handle = leaf.register_hook(unserializable_hook(hook))  # type: ignore[no-untyped-call]
    tensor = ref(leaf)

    def undo() -> None:
        handle.remove()
        leaf = tensor()
        if leaf is not None and was_bare and not leaf._backward_hooks:
            leaf._backward_hooks = None

    return undo


def _undo(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()


# ---- the graph ------------------------------------------------------------------------------------------------


def _find_nodes(trace: Trace, edges: Mapping[int, AutogradEdge]) -> dict[Any, int]:
    """Every node of the forward pass with the call that made it: those behind its result that were not there before.

    Inputs come first among the values, so what lies behind them is never entered.
    """
    made_by: dict[Any, int] = {}
    for index in sorted(edges):
        call = trace.values[index].call
        if call < 0:
            made_by.setdefault(edges[index].node, -1)
            continue
        found = [edges[index].node]
        while found:
            node = found.pop()
            if node not in made_by:
                made_by[node] = -1 if _is_accumulator(node) else call
                found += [following for following, _ in node.next_functions if following is not None]
    return made_by


def _is_accumulator(node: Any) -> bool:
    return hasattr(node, "variable")


def _described(trace: Trace, edges: Mapping[int, AutogradEdge], made_by: dict[Any, int]) -> list[AutogradNode]:
    given = {edge.node: index for index, edge in reversed(list(edges.items())) if trace.values[index].call < 0}
    numbers = {node: number for number, node in enumerate(made_by)}
    params = {id(param.saved): param.address for param in trace.params}
    memory = {storage_address(param.saved) for param in trace.params if param.saved is not None}
    return [
        AutogradNode(
            node.name(),
            call,
            tuple([numbers[following] for following, _ in node.next_functions if following in numbers]),
            tuple(_saved(node, memory)) if tells_what_is_saved() else None,
            params.get(id(node.variable)) if _is_accumulator(node) else None,
            given.get(node),
        )
        for node, call in made_by.items()
    ]


def _saved(node: Any, params: set[int]) -> Iterator[SavedForBackward]:
    for name, tensor in saved_for_backward(node):
        try:
            memory = storage_address(tensor)
        except RuntimeError:  # a layout without storage
            memory = -id(tensor)
        yield SavedForBackward(name, tensor.numel() * tensor.element_size(), memory, memory in params)


def _outlets(
    trace: Trace, edges: Mapping[int, AutogradEdge], made_by: dict[Any, int]
) -> Iterator[tuple[AutogradEdge, _Outlet]]:
    """Where gradients come out, each place once: a function may return its argument, and a model its input."""
    found: dict[tuple[Any, int], tuple[AutogradEdge, _Outlet]] = {}
    for index, edge in edges.items():
        given = made_by[edge.node] < 0
        _, outlet = found.setdefault((edge.node, edge.output), (edge, _Outlet(given=given)))
        outlet.indexes.append(index)
        if trace.values[index].role == "output":
            outlet.given = False
    yield from found.values()

"""What the model returned, and which operation made a tensor."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._torch import call_with_grad, without_torch_function
from ..capture.containers import reconstructed
from ..capture.records import NotRebuilt, Value, facts_of
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..replay.same import same, without_values
from .op_log import OpLog


def output_of(graph: Graph) -> Any:
    """What the model returned, with the saved values in place of its tensors."""
    trace = graph.trace
    if not trace.complete:
        raise ArgumentError("there is no output: the forward pass raised before the model returned")
    if isinstance(trace.output, NotRebuilt):
        raise ArgumentError(f"{trace.output.reason}; its tensors are the log's output_layers")

    def saved(value: Value) -> Tensor:
        op = OpLog(graph, graph.place[value.index])
        tensor = op.activation
        if tensor is None:
            raise ArgumentError(f"{op.label} was not saved, so there is no output; add 'output' to layers_to_save")
        return tensor

    return reconstructed(trace.output, Value, saved)


def place_of(graph: Graph, tensor: Tensor) -> int | None:
    """The first entry that has this tensor, else the first whose value is equal to it; None if there is none."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"log.find takes a tensor, not {type(tensor).__name__}; to look up a name, use log[name]")
    found = next((place for place, value in enumerate(graph.entries) if _is_held(graph, value, tensor)), None)
    if found is not None:
        return found
    with without_torch_function():
        return call_with_grad(False, _equal, graph, tensor)


def _is_held(graph: Graph, value: Value, tensor: Tensor) -> bool:
    connections = graph.trace.connections
    connected = connections.by_index.get(value.index) if connections is not None else None
    return value.kept is tensor or (connected is not None and connected.tensor is tensor)


def _equal(graph: Graph, tensor: Tensor) -> int | None:
    if without_values(tensor):
        raise ArgumentError("a tensor without values can't be compared with those of the log")
    tensor = tensor.detach()
    shape, dtype, _ = facts_of(tensor)
    unknown = []
    for place, value in enumerate(graph.entries):
        if value.shape != shape or value.dtype != dtype:
            continue
        saved = value.saved
        if saved is None or saved.dtype != dtype or without_values(saved):
            unknown.append(place)
        elif same(saved.to(tensor.device), tensor):
            return place
    if unknown:
        raise ArgumentError(
            f"no saved value equals this tensor, but {len(unknown)} of its shape and type were not saved unchanged "
            f"(such as {graph.label(unknown[0])}); log with layers_to_save='all'"
        )
    return None

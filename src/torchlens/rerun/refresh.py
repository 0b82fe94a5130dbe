"""The same graph with the values of another forward pass."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

from ..capture.naming import frames, is_library_code
from ..capture.records import Call, Trace, Value, argument_values
from ..errors import ArgumentError, DivergenceError
from ..graph.call_stacks import call_in_words
from ..graph.graph import Graph
from ..source import FuncCallLocation


def refreshed(graph: Graph, trace: Trace) -> Graph:
    """The graph over a new trace of the same operations. Raises if they are not the same; changes nothing."""
    _check_same_model(graph.trace, trace)
    _check_same_path(graph, trace)
    new = copy(graph)
    for name in list(vars(new)):  # what is derived from the values is derived again when it is asked for
        if isinstance(getattr(Graph, name, None), cached_property):
            del vars(new)[name]
    new.trace = trace
    new.entries = [trace.values[value.index] for value in graph.entries]
    return new


def _check_same_model(old: Trace, new: Trace) -> None:
    before, now = ([(info.address, info.class_qualname) for info in trace.modules] for trace in (old, new))
    if before != now:
        differing = next(
            (f"{_placed(*b)}, then {_placed(*a)}" for a, b in zip(before, now, strict=False) if a != b),
            f"{len(now)} modules, then {len(before)}",
        )
        raise ArgumentError(f"this is not the model that was logged: now {differing}")


def _placed(address: str, class_name: str) -> str:
    return f"{address or 'the model'} is a {class_name}"


def _check_same_path(graph: Graph, new: Trace) -> None:
    old = graph.trace
    for number, (before, now) in enumerate(zip(old.calls, new.calls, strict=False)):
        if not (_same_call(before, now) and _same_modules(old, new, before, now) and _same_lines(before, now)):
            what = f"{call_in_words(new, now)} now runs where {call_in_words(old, before)} ran"
            raise _divergence(graph, number, what)
    if len(old.calls) > len(new.calls):
        number = len(new.calls)
        raise _divergence(graph, number, f"the model ended before {call_in_words(old, old.calls[number])}")
    if len(new.calls) > len(old.calls):
        number = len(old.calls)
        raise _divergence(graph, number, f"the model went on with {call_in_words(new, new.calls[number])}")
    if [_identity(value) for value in old.values] != [_identity(value) for value in new.values]:
        raise DivergenceError("the new forward pass was given other inputs, or used other buffers, than the logged one")


def _same_call(before: Call, now: Call) -> bool:
    """The same function on the same values? Sizes and other numbers may differ."""
    return (
        before.function is now.function
        and [_identity(value) for value in before.outputs] == [_identity(value) for value in now.outputs]
        and [(at, _identity(v)) for at, v in argument_values(before)]
        == [(at, _identity(v)) for at, v in argument_values(now)]
    )


def _same_lines(before: Call, now: Call) -> bool:
    """Called from the same lines? Where the interpreter stands within a line depends on how often it has run it."""
    if before.site == now.site or before.module_call < 0:
        return True
    return _lines(before) == _lines(now)


def _lines(call: Call) -> list[tuple[str, int]]:
    stack = [FuncCallLocation(code, at) for code, at in frames(call.site) if not is_library_code(code)]
    return [(location.file, location.line) for location in stack]


def _same_modules(old: Trace, new: Trace, before: Call, now: Call) -> bool:
    if before.module_call < 0 or now.module_call < 0:
        return before.module_call == now.module_call
    one, other = old.module_calls[before.module_call], new.module_calls[now.module_call]
    return (one.module, one.number) == (other.module, other.number)


def _identity(value: Value) -> tuple[Any, ...]:
    return (value.role, value.index, value.call, value.position, value.address)


def _divergence(graph: Graph, number: int, what: str) -> DivergenceError:
    before = [graph.label(graph.place[v.index]) for c in graph.trace.calls[:number][::-1] for v in c.outputs
              if v.index in graph.place]  # fmt: skip
    after = f" after {before[0]}" if before else " at the very beginning"
    return DivergenceError(f"the new input takes another path through the model{after}: {what}; the log is unchanged")

"""What an exception from the user's model says about the forward pass that it ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import GeneratorType
from typing import Any

from ..capture.modules import MODULE_BOUNDARY
from ..capture.records import ModuleCall, Trace
from ..graph.call_stacks import call_in_words
from ..words import counted
from .model_log import ModelLog


def annotated(error: BaseException, log: ModelLog, inputs: list[Any]) -> BaseException:
    """The user's own exception, with a note of how far the forward pass got and the log until there."""
    with contextlib.suppress(AttributeError, TypeError):  # an exception may refuse new attributes
        error.partial_log = log  # type: ignore[attr-defined]
    if sys.version_info >= (3, 11):
        error.add_note(
            f"torchlens: {how_far(log._trace, error)} (what was logged until then is in this exception's partial_log)"
        )
        if any(type(given).__module__ == "numpy" for given in inputs):
            error.add_note("torchlens: an input is a NumPy array; torch.from_numpy makes a tensor of it")
        if any(isinstance(given, Iterator) for given in inputs):
            kind = "generator" if any(isinstance(given, GeneratorType) for given in inputs) else "iterator"
            error.add_note(
                f"torchlens: an input is a {kind}; what goes to forward is a tensor, a list or tuple of inputs"
            )
        if len(inputs) > 1 and isinstance(error, TypeError) and "positional argument" in str(error):
            error.add_note(
                f"torchlens: {len(inputs)} inputs were given: a tuple or list is taken as that many arguments of "
                "forward; one argument that is a tuple is given as [(a, b)]"
            )
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            error.add_note("torchlens: the only input is a dict; keyword arguments are given as input_kwargs")
    return error


def how_far(trace: Trace, error: BaseException) -> str:
    """Where a forward pass was when it raised."""
    running = _running(trace, error)
    inside = f" in {_in_words(trace, running)}" if running is not None else ""
    note = f"the forward pass raised{inside} after {counted(len(trace.calls), 'operation')}"
    if trace.calls:
        last = trace.calls[-1]
        place = f" in {_in_words(trace, trace.module_calls[last.module_call])}" if last.module_call >= 0 else ""
        note += f"; the last one was {call_in_words(trace, last, last.function.name + place)}"
    return note


def _running(trace: Trace, error: BaseException) -> ModuleCall | None:
    """The innermost module call that the exception came out of."""
    recorded = {id(call): call for call in trace.module_calls}
    found, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is MODULE_BOUNDARY:
            reported = traceback.tb_frame.f_locals
            calls = [reported.get("call"), *(call for _, call in reported.get("calls", ()))]
            found = next((call for call in calls if id(call) in recorded), found)
        traceback = traceback.tb_next
    return found


def _in_words(trace: Trace, call: ModuleCall) -> str:
    module = trace.modules[call.module]
    times = f":{call.number}" if call.number > 1 else ""
    return f"{module.address}{times} ({module.class_name})" if module.address else "the model itself"

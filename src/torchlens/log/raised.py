"""What an exception from the user's model says about the forward pass that it ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from ..capture.records import Trace
from ..graph.call_stacks import call_in_words
from ..words import counted
from .model_log import ModelLog


def annotated(error: BaseException, log: ModelLog, inputs: list[Any]) -> BaseException:
    """The user's own exception, with a note of how far the forward pass got and the log until there."""
    with contextlib.suppress(AttributeError, TypeError):  # an exception may refuse new attributes
        error.partial_log = log  # type: ignore[attr-defined]
    if sys.version_info >= (3, 11):
        error.add_note(
            f"torchlens: {how_far(log._trace)} (what was logged until then is in this exception's partial_log)"
        )
        if any(type(given).__module__ == "numpy" for given in inputs):
            error.add_note("torchlens: an input is a NumPy array; torch.from_numpy makes a tensor of it")
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            error.add_note("torchlens: the only input is a dict; keyword arguments are given as input_kwargs")
    return error


def how_far(trace: Trace) -> str:
    """Where a forward pass was when it raised."""
    note = f"the forward pass raised after {counted(len(trace.calls), 'operation')}"
    if trace.calls:
        last = trace.calls[-1]
        inside = ""
        if last.module_call >= 0:
            module = trace.modules[trace.module_calls[last.module_call].module]
            inside = f" in {module.address or 'the model itself'}"
        note += f"; the last one was {call_in_words(trace, last, last.function.name + inside)}"
    return note

"""Apply one edit to one tensor, with the checks that go with it; and say what there is to say afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from ..capture.functions import OUTPUT
from ..capture.records import Applied, Trace, Value, argument_values, facts_of
from ..errors import ArgumentError
from .edits import FunctionEdit, Moment, Swap
from .sites import ARGUMENT, EditRequest


def apply_edit(
    request: EditRequest, tensor: Tensor, moment: Moment, allow_change: bool, changes: bool = False
) -> tuple[Tensor, bool]:
    """The edited tensor, and whether any element is another; with `changes`, that is taken for granted."""
    edit = request.edit
    try:
        edited = edit.apply(tensor, moment)
    except (RuntimeError, TypeError) as error:
        if any(isinstance(each, (FunctionEdit, Swap)) for each in (edit, *edit.members)):
            raise  # the user's own
        reason = str(error).partition("\n")[0]
        raise ArgumentError(
            f"{ARGUMENT}: {request.site}: {edit!r} can't be applied to {_in_words(tensor)}: {reason}"
        ) from error
    kind = Tensor if isinstance(tensor, Parameter) else type(tensor)
    if not allow_change and (facts_of(tensor) != facts_of(edited) or not isinstance(edited, kind)):
        raise ArgumentError(
            f"{ARGUMENT}: {request.site}: {edit!r} makes {_in_words(edited)} of {_in_words(tensor)}; "
            "if that is what you want, say allow_change=True"
        )
    changes = not edit.is_backward and (changes or _differ(tensor, edited))
    if not changes and not edit.is_backward and not (tensor.requires_grad or edited.requires_grad):
        edited = tensor  # what it shares memory with stays as it is
    return edited, changes


def _in_words(tensor: Tensor) -> str:
    shape, dtype, device = facts_of(tensor)
    kind = "" if type(tensor) in (Tensor, Parameter) else f"{type(tensor).__name__} of "
    return f"{kind}{dtype} of shape {tuple(shape)} on {device}"


def _differ(tensor: Tensor, edited: Tensor) -> bool:
    """Is any element another?"""
    if edited is tensor:
        return False
    if facts_of(tensor) != facts_of(edited):
        return True
    try:
        return not torch.equal(tensor, edited)
    except (RuntimeError, TypeError, NotImplementedError):  # sparse, nested
        return True


def remarks(
    trace: Trace, requests: Sequence[EditRequest], changed: Sequence[bool], applied: list[Applied]
) -> Iterable[str]:
    """What the user should know of edits that were applied."""
    needed = _needed(trace)
    for number, request in enumerate(requests):
        if not request.edit.is_backward and not changed[number]:
            yield f"{request.site}: {request.edit!r} changed no element"
        if not any(_matters(trace, needed, each) for each in applied if each.intervention == number):
            yield f"{request.site}: nothing that the model returned depends on what was edited"


def _needed(trace: Trace) -> set[Value]:
    """The values that something that the model returned depends on."""
    needed: set[Value] = set()
    for call in reversed(trace.calls):
        if call.function is OUTPUT or any(value in needed for value in call.outputs):
            needed.update([*call.outputs, *(value for _, value in argument_values(call))])
    return needed


def _matters(trace: Trace, needed: set[Value], applied: Applied) -> bool:
    if applied.call >= 0:
        return any(value in needed for value in trace.calls[applied.call].outputs)
    return applied.value in needed

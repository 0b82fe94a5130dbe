"""Apply one edit to one tensor, with the checks that go with it; and say what there is to say afterwards."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import FrameType

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.nn import Parameter

from ..capture.functions import OUTPUT
from ..capture.origins import OUTSIDE
from ..capture.records import Applied, Trace, Value, facts_of, values_given
from ..errors import ArgumentError
from .edit_base import Moment
from .edits import FunctionEdit, Swap
from .sites import ARGUMENT, EditRequest

_index = attrgetter("index")

_CHECKPOINT = torch.utils.checkpoint.__file__


def apply_edit(
    request: EditRequest, tensor: Tensor, moment: Moment, allow_change: bool, changes: bool = False
) -> tuple[Tensor, bool]:
    """The edited tensor, and whether any element is another; with `changes`, that is taken for granted."""
    edit = request.edit
    try:
        edited = edit.apply(tensor, moment)
    except Exception as error:
        if any(isinstance(each, (FunctionEdit, Swap)) for each in (edit, *edit.members)):
            _note(error, f"{request.site}: {edit!r}")
            raise  # the user's own
        if not isinstance(error, (RuntimeError, TypeError)):
            raise
        reason = str(error).partition("\n")[0]
        raise ArgumentError(
            f"{ARGUMENT}: {request.site}: {edit!r} can't be applied to {_in_words(tensor)}: {reason}"
        ) from error
    kind = Tensor if isinstance(tensor, Parameter) else type(tensor)
    same_facts = facts_of(tensor) == facts_of(edited)
    if not allow_change and not (same_facts and isinstance(edited, kind)):
        raise ArgumentError(
            f"{ARGUMENT}: {request.site}: what {edit!r} returns {_difference(tensor, edited)}; "
            "if that is what you want, pass allow_change=True"
        )
    changes = not edit.is_backward and (changes or not same_facts or _differ(tensor, edited))
    if not changes and not edit.is_backward and not (tensor.requires_grad or edited.requires_grad):
        edited = tensor  # what it shares memory with stays as it is
    return edited, changes


def check_reachable(request: EditRequest, unreachable: str | None, grad_enabled: bool) -> None:
    """Refuse an edit that would not reach all that depends on the value: why not, capture may know."""
    why = unreachable or (_computed_again() if grad_enabled else None)
    if why is not None:
        raise ArgumentError(f"{ARGUMENT}: {request.site} can't be edited: {why}")


def _computed_again() -> str | None:
    """Why what runs now must not be edited if there may be a backward pass; None if it may."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _CHECKPOINT:
            return (
                "it runs in torch.utils.checkpoint, which computes it again for the backward pass, without the edit; "
                "run the model under torch.no_grad(), or without checkpoints"
            )
        frame = frame.f_back
    return None


def _in_words(tensor: Tensor) -> str:
    shape, dtype, device = facts_of(tensor)
    kind = "" if type(tensor) in (Tensor, Parameter) else f"{type(tensor).__name__} of "
    return f"{kind}{dtype} of shape {tuple(shape)} on {device}"


def _note(error: Exception, intervention: str) -> None:
    if hasattr(error, "add_note"):  # since Python 3.11
        error.add_note(f"torchlens: raised by an intervention, {intervention}")


def _difference(tensor: Tensor, edited: Tensor) -> str:
    """What is not the same: "has shape (1, 5); the value has (1, 7)"."""
    pairs = zip(("shape", "dtype", "device"), facts_of(edited), facts_of(tensor), strict=True)
    other = [(name, *map(_plain, (new, old))) for name, new, old in pairs if new != old]
    other = other or [("class", type(edited).__name__, type(tensor).__name__)]
    new, old = [", ".join(f"{each[0]} {each[n]}" for each in other) for n in (1, 2)]
    return f"has {new}; the value has {old if len(other) > 1 else other[0][2]}"


def _plain(fact: object) -> str:
    return str(tuple(fact) if isinstance(fact, torch.Size) else fact)


def _differ(tensor: Tensor, edited: Tensor) -> bool:
    """Is any element another?"""
    try:
        return edited is not tensor and not torch.equal(tensor, edited)
    except (RuntimeError, TypeError, NotImplementedError):  # sparse, nested
        return True


def remarks(
    trace: Trace, requests: Sequence[EditRequest], changed: Sequence[bool], applied: list[Applied]
) -> Iterable[str]:
    """What the user should know of edits that were applied."""
    edited: dict[int, set[Value]] = {number: set() for number in range(len(requests))}
    for each in applied:
        edited[each.intervention].update(trace.calls[each.call].outputs if each.call >= 0 else [each.value])
    matter = _needed(trace, edited)
    for number, request in enumerate(requests):
        if not request.edit.is_backward and not changed[number]:
            yield f"{request.site}: {request.edit!r} changed no element"
        if number in matter:
            continue
        if any(OUTSIDE in warning for warning in trace.warnings):
            yield (
                f"{request.site}: whether what the model returned depends on what was edited is not known: it computes "
                "outside of torch"
            )
        else:
            yield f"{request.site}: nothing that the model returned depends on what was edited"


def _needed(trace: Trace, edited: Mapping[int, set[Value]]) -> set[int]:
    """For which of these sets of values does something that the model returned depend on one of them?

    Looks back from what was returned, first along the argument that was made the longest ago: that is how skip
    connections go, and mostly all is found after a few steps.
    """
    wanted: dict[Value, list[int]] = {}
    for number, values in edited.items():
        for value in values:
            wanted.setdefault(value, []).append(number)
    found: set[int] = set()
    at_the_end = itertools.takewhile(lambda call: call.function.func is None, reversed(trace.calls))
    waiting = [value for call in at_the_end if call.function is OUTPUT for value in call.outputs]
    seen = set(waiting)
    while waiting and len(found) < len(edited):
        value = waiting.pop()
        if value in wanted:
            found.update(wanted[value])
        if value.call >= 0:
            arguments = set(values_given(trace.calls[value.call])) - seen
            seen |= arguments
            waiting += sorted(arguments, key=_index, reverse=True) if len(arguments) > 1 else arguments
    return found

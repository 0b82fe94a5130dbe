"""Apply one edit to one tensor, with the checks that go with it; and say what there is to say afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from ..capture.records import Applied, facts_of
from ..errors import ArgumentError
from ..graph.graph import Graph
from .edits import Function, Moment, Swap
from .sites import ARGUMENT, Request


def apply_edit(request: Request, tensor: Tensor, moment: Moment, allow_change: bool) -> tuple[Tensor, bool]:
    """The edited tensor, and whether any element is another."""
    edit = request.edit
    try:
        edited = edit.apply(tensor, moment)
    except (RuntimeError, TypeError) as error:
        if any(isinstance(each, (Function, Swap)) for each in (edit, *edit.members)):
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
    changes = not edit.is_backward and _differ(tensor, edited)
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
    graph: Graph, requests: Sequence[Request], changed: Sequence[bool], applied: list[Applied]
) -> Iterable[str]:
    """What the user should know of edits that were applied."""
    for number, request in enumerate(requests):
        if not request.edit.is_backward and not changed[number]:
            yield f"{request.site}: {request.edit!r} changed no element"
        if not any(_matters(graph, each) for each in applied if each.intervention == number):
            yield f"{request.site}: nothing that the model returned depends on what was edited"


def _matters(graph: Graph, applied: Applied) -> bool:
    """Does anything that the model returned depend on what was edited?"""
    if applied.value.role == "param" and applied.call < 0:
        return True
    values = graph.trace.calls[applied.call].outputs if applied.call >= 0 else (applied.value,)
    waiting = [graph.place[value.index] for value in values if value.index in graph.place]
    seen = set(waiting)
    while waiting:
        place = waiting.pop()
        if graph.entries[place].role == "output":
            return True
        new = [child for child in graph.children[place] if child not in seen]
        seen.update(new)
        waiting += new
    return False

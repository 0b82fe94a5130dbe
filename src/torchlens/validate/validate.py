"""Prove a log right: compute every operation again from its parents' saved values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..capture import rng
from ..capture.functions import EDIT, UNEDITED
from ..capture.records import Call, Value, argument_values, fetched
from ..capture.tensor_memory import version_of
from ..errors import ArgumentError, BundleError, UnknownFunctionError, UntrustedError
from ..graph.graph import Graph
from ..intervene.again import AppliedEdits
from ..replay.call import UNINITIALISED, TensorOf, recompute
from ..replay.reasons import NotReplayable
from ..replay.same import difference, same, without_values
from .report import Problem, ValidationReport


def validate_graph(graph: Graph, perturb: bool = True) -> ValidationReport:
    """Replay every operation of a graph, compare bit for bit, and make sure that the comparison could have failed."""
    if not graph.trace.values_kept:
        raise ArgumentError('only a log with values can be validated; make one with layers_to_save="all"')
    return rng.restoring(partial(_validate, graph, perturb))


def _validate(graph: Graph, perturb: bool) -> ValidationReport:
    report = ValidationReport()
    report.problems += [Problem("warning", None, warning) for warning in graph.trace.warnings]
    if graph.trace.completeness is not None:
        completeness = graph.trace.completeness
        report.problems += [Problem("completeness", None, f"{m} was not logged") for m in completeness.missed]
        report.problems += [Problem("completeness", None, str(tensor)) for tensor in completeness.unknown]
    changed = _changed_params(graph)
    report.problems += [
        Problem(
            "parameters",
            None,
            f"{param.address} has been written to since the forward pass, and what was computed from it can't be "
            "checked any more; validate before training goes on, or log again",
        )
        for param in changed
    ]
    edits = AppliedEdits(graph.trace)
    done: set[int] = set()
    for place, value in enumerate(graph.entries):
        label = graph.label(place)
        if value.call < 0:
            report.given.append(label)
        elif value.role == "output":
            _check_output(edits.before(value), graph.trace.calls[value.call], label, report)
        elif value.call not in done:
            done.add(value.call)
            call = graph.trace.calls[value.call]
            touched = [v.address for _, v in argument_values(call) if v in changed] if changed else []
            if touched:
                report.unverified.append((label, f"{touched[0]} is not what it was"))
            else:
                _check_call(graph, call, value.call, edits, report, perturb)
    _check_edits(graph, edits, report)
    return report


def _check_edits(graph: Graph, edits: AppliedEdits, report: ValidationReport) -> None:
    """Apply every edit again: it must give what was logged, and the last one of a value what the log holds."""
    for applied in graph.trace.applied:
        intervention = graph.trace.interventions[applied.intervention]
        after = fetched(applied.after)
        try:
            again = fetched(applied.before) if intervention.edit.is_backward else edits.again(graph, applied)
        except (NotReplayable, BundleError) as reason:
            report.unverified.append((f"the edit of {intervention.site}", str(reason)))
            continue
        if after is None or again is None or not same(after, again.detach()):
            report.problems.append(
                Problem("edits", None, f"{intervention.site}: {intervention.edit!r} does not give what was logged")
            )
    for value, applications in edits.of_value.items():
        after, saved = fetched(applications[-1].after), value.saved
        if after is not None and saved is not None and not same(after, saved):
            place = graph.place.get(value.index) if value.role != "param" else None
            label = value.address if place is None else graph.label(place)
            report.problems.append(Problem("edits", label, "is not what its edit left"))


def _changed_params(graph: Graph) -> list[Value]:
    """The parameters that are no longer what they were: a log does not copy them."""
    versions = zip(graph.trace.params, graph.trace.param_versions, strict=True)
    return [
        param for param, version in versions if isinstance(param.kept, Tensor) and version_of(param.kept) != version
    ]


def _check_output(saved: Tensor | None, call: Call, label: str, report: ValidationReport) -> None:
    (origin,) = call.args
    if saved is None or origin.saved is None or not same(saved, origin.saved):
        report.problems.append(Problem("outputs", label, "is not what its parent holds"))


def _check_call(
    graph: Graph, call: Call, number: int, edits: AppliedEdits, report: ValidationReport, perturb: bool
) -> None:
    entries = [(graph.label(graph.place[v.index]), v) for v in call.outputs if v.index in graph.place]
    labels = [label for label, _ in entries]
    if call.function.name in UNINITIALISED:
        report.given += labels
        return
    if call.function in (EDIT, UNEDITED):
        report.replayed += labels
        before = edits.before(call.args[0]) if call.function is UNEDITED else call.args[0].saved
        found = [edits.before(value) for _, value in entries]
        if before is None or not all(each is not None and same(before, each) for each in found):
            report.problems.append(Problem("replay", labels[0], "is not what its parent held"))
        return
    argument = partial(edits.argument, number)
    try:
        again = recompute(call, argument)
        differing = _differing(call, again, entries, edits)
    except (NotReplayable, UnknownFunctionError, UntrustedError) as reason:
        report.unverified += [(label, str(reason)) for label in labels]
        return
    except Exception as error:  # whatever the function raises on what was saved, the log is wrong
        report.problems.append(Problem("replay", labels[0], f"{type(error).__name__}: {error}"))
        return
    report.replayed += labels
    for label, saved, tensor in differing:
        _report_difference(call, argument, label, saved, tensor, report)
    if perturb and not any(tensor.is_nested or without_values(tensor) for tensor in again):
        _perturb_parents(graph, call, argument, labels[0], again, report)


def _differing(
    call: Call, again: list[Tensor], entries: list[tuple[str, Value]], edits: AppliedEdits
) -> list[tuple[str, Tensor, Tensor]]:
    """The entries whose saved tensor is not the one that was computed again, with both."""
    found = dict(zip(call.outputs, again, strict=True))
    pairs = [(label, edits.before(value), found[value]) for label, value in entries]
    return [(label, saved, tensor) for label, saved, tensor in pairs if saved is not None and not same(saved, tensor)]


def _report_difference(
    call: Call, argument: TensorOf, label: str, saved: Tensor, again: Tensor, report: ValidationReport
) -> None:
    third = recompute(call, argument)
    if all(not same(again, tensor) for tensor in third if tensor.shape == again.shape):
        report.unstable.append(label)
    else:
        report.problems.append(
            Problem("replay", label, f"differs from what its parents give: {difference(saved, again)}")
        )


def _perturb_parents(
    graph: Graph, call: Call, argument: TensorOf, label: str, baseline: list[Tensor], report: ValidationReport
) -> None:
    """Change each parent in turn: the result must change too, or the replay would have proved nothing about it.

    Some parents have no influence at the values they meet (a product with zero, the masked side of a `where`, a tensor
    of which only the shape matters). That is not taken on trust: several quite different changes must have none.
    """
    if call.function.foreign:  # it may hand out the same memory each time
        baseline = [tensor.detach().clone() for tensor in baseline]
    parents = dict.fromkeys(v for _, v in argument_values(call) if v.role != "param" and v.index in graph.place)
    for parent in parents:
        if parent.saved is not None and parent.saved.numel() and _has_influence(call, argument, parent, baseline):
            report.perturbed += 1
        else:
            report.without_influence.append((label, graph.label(graph.place[parent.index])))


def _has_influence(call: Call, argument: TensorOf, parent: Value, baseline: list[Tensor]) -> bool:
    for change in _CHANGES:
        try:
            changed = recompute(call, partial(_perturbed, argument, parent, change))
        except Exception:  # an index out of range, a matrix that can't be inverted: the value matters
            return True
        if not all(same(before, after) for before, after in zip(baseline, changed, strict=True)):
            return True
    return False


def _perturbed(argument: TensorOf, parent: Value, change: Callable[[Tensor], Tensor], value: Value) -> Tensor | None:
    saved = argument(value)
    return change(saved) if value is parent and saved is not None else saved


def _affine(tensor: Tensor) -> Tensor:
    if tensor.dtype is torch.bool:
        return ~tensor
    if not tensor.is_floating_point() and not tensor.is_complex():
        return _other_numbers(tensor)
    return torch.rsub(tensor, 0.5, alpha=1.37)  # in one go


def _other_numbers(tensor: Tensor) -> Tensor:
    """Other integers, none beyond those there are: they may be indices, and not every kernel checks its own."""
    if tensor.layout is not torch.strided:
        return tensor * 2
    least, most = tensor.min(), tensor.max()
    if least != most:
        return least + most - tensor
    return torch.zeros_like(tensor) if most > 0 else tensor + 1


def _shuffled(tensor: Tensor) -> Tensor:
    return tensor.flatten().flip(0).reshape(tensor.shape) if tensor.layout is torch.strided else _affine(tensor)


def _large(tensor: Tensor) -> Tensor:
    return (
        _affine(tensor) if not tensor.is_floating_point() else torch.randn(tensor.shape, device="cpu").to(tensor) * 1e4
    )


def _other_way(tensor: Tensor) -> Tensor:
    return _affine(tensor) if not tensor.is_floating_point() else -_large(tensor)


_CHANGES: tuple[Callable[[Tensor], Tensor], ...] = (_affine, _shuffled, _large, _other_way)

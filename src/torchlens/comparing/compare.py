"""Where do two runs begin to differ, and why?"""

from __future__ import annotations

import math

import torch

from ..errors import ArgumentError
from ..log.model_log import ModelLog
from ..replay.same import same
from .aligned import Aligned, same_graph
from .causes import name_cause
from .comparison import Comparison, Outcome
from .findings import Finding
from .heal import graft
from .matching import Matching
from .preconditions import run_checks
from .proof import output_error, tensor_error
from .search import Search
from .sides import Side, coarseness

#: Values that differ by less in float64 are equal.
_TOLERANCE = 1e-9

#: Tables and folded weights are made in float32 in another order: they differ by this much even in float64.
_CONSTANTS = 8 * torch.finfo(torch.float32).eps

#: Where values had to be taken as they were saved: so many times what their type rounds by.
_ROUNDINGS, _COARSEST = 500, 0.05

#: Found one by one; those of one family are healed together and not counted.
_MOST_FINDINGS = 60


def compare(a: ModelLog, b: ModelLog) -> Comparison:
    """Where do two runs begin to differ, and why?

    >>> same = tl.log_forward_pass(model, x, random_seed=log.random_seed_used)
    >>> tl.compare(log, same)
    Identical: all 12 values of A and B agree bit for bit.
    >>> other = tl.log_forward_pass(model, x + 1, random_seed=log.random_seed_used)
    >>> difference = tl.compare(log, other)
    >>> bool(difference), difference.first_difference.a, difference.first_difference.cause
    (False, 'input_1_0', "the inputs differ: B's is 1 times A's +1")

    The two may be runs of one model, before and after a change, or of two implementations of it: values are matched by
    what they hold, up to layout and type, and weights by content. Both are computed again in float64, where rounding
    all but vanishes: what still differs is a real difference, and the first operation whose inputs agree and whose
    result does not is to blame. It is proved by putting the value of one run into the other.

    `bool(comparison)` is True if they agree but for rounding. Inputs and outputs have to be saved in both logs, as they
    are unless `layers_to_save` says otherwise. Logs from `tl.load` work the same; without `trust=True` some of their
    functions are not run, and the comparison says so.
    """
    sides = _side(a, "A"), _side(b, "B")
    aligned = same_graph(*sides)
    if aligned and _bit_for_bit(*sides):
        for side in sides:
            side.take_saved()
        return Comparison(*sides, Outcome("identical"), run_checks(*sides))
    coarse = max((side.param_type for side in sides), key=coarseness)
    for side in sides:
        side.compute(coarse)
    donor, recipient = _oriented(*sides)
    outcome = _outcome(donor, recipient, aligned, _tolerance(donor, recipient))
    return Comparison(*sides, outcome, run_checks(*sides))


def _side(log: ModelLog, name: str) -> Side:
    if not isinstance(log, ModelLog):
        raise ArgumentError(f"tl.compare takes two logs; {name} is of type {type(log).__name__}")
    side = Side(log, name)
    missing = [i for i in (*side.inputs, *side.outputs) if side.value(i).kept is None]
    if missing:
        raise ArgumentError(
            f"log {name} did not save {side.label(missing[0])}: inputs and outputs are needed; "
            'log with layers_to_save="all"'
        )
    if not log.is_complete:
        raise ArgumentError(f"log {name} was cut short by an exception: there is no output to compare")
    return side


def _oriented(a: Side, b: Side) -> tuple[Side, Side]:
    """Donor and recipient, whatever the order in which they were given: the finer graph gives."""
    return (a, b) if _key(a) >= _key(b) else (b, a)


def _key(side: Side) -> tuple[object, ...]:
    outputs = [value.saved for value in map(side.value, (*side.inputs, *side.outputs))]
    numbers = [
        repr(tensor.double().sum().item()) for tensor in outputs if tensor is not None and not tensor.is_complex()
    ]
    params = [repr(tensor.sum().item()) for tensor in map(side.param, side.trace.params) if tensor is not None]
    functions = [call.function.name for call in side.trace.calls]
    return len(side.trace.calls), len(side.ids), functions, numbers, params, side.trace.model_name


def _bit_for_bit(a: Side, b: Side) -> bool:
    pairs = [(a.value(i), b.value(j)) for i, j in zip(a.ids, b.ids, strict=True)]
    for one, other in pairs:
        x, y = one.saved, other.saved
        if (x is None) != (y is None) or (x is not None and y is not None and not same(x, y)):
            return False
    return True


def _tolerance(donor: Side, recipient: Side) -> float:
    """How far equal values may be apart: more where something had to be taken as it was saved."""
    if not any(_kept_floats(side) for side in (donor, recipient)):
        return _TOLERANCE
    coarse = max(coarseness(side.param_type) for side in (donor, recipient))
    return min(_COARSEST, _ROUNDINGS * coarse)


def _kept_floats(side: Side) -> list[int]:
    calls = side.trace.calls
    return [n for n in side.exact.kept if any(output.dtype.is_floating_point for output in calls[n].outputs)]


def _outcome(donor: Side, recipient: Side, aligned: bool, tolerance: float) -> Outcome:
    """What is found; if that is less than rounding, whether it is only that constants were rounded in another way."""
    values = dict(recipient.values)
    matching, findings = _search(donor, recipient, aligned, tolerance)
    outcome = Outcome("rounding", matching, findings)
    outcome.observed = output_error(donor, recipient)
    outcome.rounding = {
        side.name: _rounding(side, values if side is recipient else side.values) for side in (donor, recipient)
    }
    outcome.in_float64 = _exact_error(donor, recipient, values)
    if not findings and not matching.bad_outputs():
        return outcome
    small = outcome.in_float64 <= sum(outcome.rounding.values())
    found = _only_constants(outcome, aligned, values) if small and tolerance < _CONSTANTS else None
    if found is not None:
        outcome.matching, outcome.findings, outcome.constants = found, [], True
        return outcome
    outcome.status = "hidden" if findings and small else "differs"
    return outcome


def _only_constants(
    outcome: Outcome, aligned: bool, values: dict[int, torch.Tensor | None]
) -> Matching | Aligned | None:
    """The matching in which only constants differ, by how they were rounded; None if there is more to it."""
    matching = outcome.matching
    assert matching is not None
    if aligned:
        return matching if all(finding.error <= _CONSTANTS for finding in outcome.findings) else None
    matching.recipient.values = dict(values)
    loose, more = _search(matching.donor, matching.recipient, aligned, _CONSTANTS)
    return loose if not more and not loose.bad_outputs() else None


def _search(donor: Side, recipient: Side, aligned: bool, tolerance: float) -> tuple[Matching | Aligned, list[Finding]]:
    if aligned:
        sweep = Aligned(donor, recipient, tolerance)
        return sweep, [name_cause(sweep, finding) for finding in sweep.findings()]
    matching = Matching(donor, recipient, tolerance)
    found: list[Finding] = []
    for _ in range(_MOST_FINDINGS):
        if not matching.bad_outputs():
            break
        finding = Search(matching).find()
        if finding is None or finding.recipient in matching.grafts:
            break
        found.append(name_cause(matching, finding))
        graft(matching, finding, found)
    return matching, found


def _rounding(side: Side, values: dict[int, torch.Tensor | None]) -> float:
    """What the side's own arithmetic does to its outputs, against the same computation in float64."""
    worst = 0.0
    for i in side.outputs:
        saved, exact = side.value(i).saved, values[i]
        if saved is not None and exact is not None and saved.is_floating_point():
            worst = max(worst, tensor_error(saved, exact))
    return 0.0 if math.isinf(worst) else worst


def _exact_error(donor: Side, recipient: Side, values: dict[int, torch.Tensor | None]) -> float:
    worst = 0.0
    for j, i in zip(donor.outputs, recipient.outputs, strict=False):
        one, other = donor.values[j], values[i]
        worst = max(worst, math.inf if one is None or other is None else tensor_error(one, other))
    return worst

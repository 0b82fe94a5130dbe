"""Where do two runs begin to differ, and why?"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..errors import ArgumentError
from ..log.model_log import ModelLog
from ..replay.call import UNINITIALISED
from ..replay.same import same
from .aligned import Aligned, errors, same_graph
from .causes import name_cause
from .comparison import Comparison, Outcome
from .findings import Finding
from .float64_values import Values
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

#: What a search comes to, and a search by how far equal values may be apart.
Found = tuple["Matching | Aligned", list[Finding]]
SearchAt = Callable[[float], Found]

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
    _prepare(*sides)
    unwritten = _bit_for_bit(*sides) if aligned else None
    if unwritten is not None:
        return Comparison(*sides, Outcome("identical", unwritten=unwritten), run_checks(*sides))
    outcome = _outcome(*_oriented(*sides), aligned)
    if outcome.status == "rounding" and outcome.observed > _coarsely(*sides) and any(map(_has_unwritten, sides)):
        _prepare(*sides, blank=False)  # it is no rounding: memory that nothing was written to reaches the outputs
        outcome = _outcome(*_oriented(*sides), aligned)
    return Comparison(*sides, outcome, run_checks(*sides))


def _prepare(a: Side, b: Side, *, blank: bool = True) -> None:
    coarse = max(a.param_type, b.param_type, key=coarseness)
    for side, other in ((a, b), (b, a)):
        side.prepare(coarse, other, blank=blank)


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


def _bit_for_bit(a: Side, b: Side) -> int | None:
    """Do all values agree? If so, how many do not for one reason only: part of their memory was not written to yet."""
    unwritten: set[int] = set()
    for i, j in zip(a.ids, b.ids, strict=True):
        one, other = a.value(i).saved, b.value(j).saved
        if one is None or other is None:
            if one is not other:
                return None
        elif not same(one, other):
            if a.value(i).role == "output" or not (_is_unwritten(a, i) or unwritten.intersection(a.parents[i])):
                return None
            unwritten.add(i)
    return len(unwritten)


def _is_unwritten(side: Side, i: int) -> bool:
    return side.spelled(i) in UNINITIALISED


def _has_unwritten(side: Side) -> bool:
    return any(_is_unwritten(side, i) for i in side.ids)


def _tolerance(donor: Side, recipient: Side) -> float:
    """How far equal values may be apart: more where something had to be taken as it was saved."""
    kept = any(_kept_floats(side) for side in (donor, recipient))
    return _coarsely(donor, recipient) if kept else _TOLERANCE


def _coarsely(one: Side, other: Side) -> float:
    """How far values may be apart that were rounded on the way."""
    return min(_COARSEST, _ROUNDINGS * max(coarseness(side.param_type) for side in (one, other)))


def _kept_floats(side: Side) -> list[int]:
    calls = side.trace.calls
    return [n for n in side.exact.kept if any(output.dtype.is_floating_point for output in calls[n].outputs)]


def _outcome(donor: Side, recipient: Side, aligned: bool) -> Outcome:
    """What is found; if that is less than rounding, whether it is only that constants were rounded in another way."""
    search = _aligned_search(donor, recipient) if aligned else _matching_search(donor, recipient)
    tolerance = _tolerance(donor, recipient)
    original = recipient.values if aligned else recipient.values.copy()
    matching, findings = search(tolerance)
    outcome = Outcome("rounding", matching, findings, original=original)
    outcome.observed = output_error(donor, recipient)
    outcome.rounding = {donor.name: _rounding(donor, donor.values), recipient.name: _rounding(recipient, original)}
    outcome.in_float64 = _exact_error(donor, recipient, original)
    if not findings and not matching.bad_outputs():
        return outcome
    small = outcome.in_float64 <= sum(outcome.rounding.values())
    found = _only_constants(outcome, search) if small and tolerance < _CONSTANTS else None
    if found is not None:
        outcome.matching, outcome.findings, outcome.constants = found, [], True
        return outcome
    outcome.status = "hidden" if findings and small else "differs"
    return outcome


def _only_constants(outcome: Outcome, search: SearchAt) -> Matching | Aligned | None:
    """The matching in which only constants differ, by how they were rounded; None if there is more to it."""
    matching, original = outcome.matching, outcome.original
    assert matching is not None and original is not None
    if isinstance(matching, Aligned):
        return matching if all(finding.error <= _CONSTANTS for finding in outcome.findings) else None
    matching.recipient.values = original.copy()
    loose, more = search(_CONSTANTS)
    return loose if not more and not loose.bad_outputs() else None


def _aligned_search(donor: Side, recipient: Side) -> SearchAt:
    error = errors(donor, recipient)

    def search(tolerance: float) -> Found:
        sweep = Aligned(donor, recipient, tolerance, error)
        return sweep, [name_cause(sweep, finding) for finding in sweep.findings()]

    return search


def _matching_search(donor: Side, recipient: Side) -> SearchAt:
    prints = {side.name: side.fingerprints() for side in (donor, recipient)}

    def search(tolerance: float) -> Found:
        matching = Matching(donor, recipient, tolerance, prints)
        found: list[Finding] = []
        for _ in range(_MOST_FINDINGS):
            finding = Search(matching).find() if matching.bad_outputs() else None
            if finding is None or finding.recipient in matching.grafts:
                break
            found.append(name_cause(matching, finding))
            graft(matching, finding, found)
        return matching, found

    return search


def _rounding(side: Side, values: Values) -> float:
    """What the side's own arithmetic does to its outputs, against the same computation in float64."""
    worst = 0.0
    for i in side.outputs:
        saved, exact = side.value(i).saved, values[i]
        if saved is not None and exact is not None and saved.is_floating_point():
            worst = max(worst, tensor_error(saved, exact))
    return 0.0 if math.isinf(worst) else worst


def _exact_error(donor: Side, recipient: Side, values: Values) -> float:
    worst = 0.0
    for j, i in zip(donor.outputs, recipient.outputs, strict=False):
        one, other = donor.values[j], values[i]
        worst = max(worst, math.inf if one is None or other is None else tensor_error(one, other))
    return worst

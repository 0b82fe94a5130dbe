"""The operations of two runs, aligned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from .layouts import Fit, best_fit, laid_out_as, relative_error
from .sides import Side

if TYPE_CHECKING:
    from .comparison import Outcome

ExactOf = Callable[[int], "Tensor | None"]


@dataclass(frozen=True)
class Row:
    """An operation of A and its partner in B.

    >>> tl.compare(log, log).rows[0].status
    'equal'

    `status` is "equal" (in float64, or bit for bit), "differs", "first difference", "only in A" or "only in B". The
    errors are relative: between the values as they were saved, what rounding alone does to the two, and between them in
    float64; None where there is nothing to compare.
    """

    a: str | None
    b: str | None
    shape_a: tuple[int, ...] | None
    shape_b: tuple[int, ...] | None
    error: float | None
    rounding: float | None
    in_float64: float | None
    status: str


def aligned_rows(a: Side, b: Side, pairs: dict[int, int], outcome: Outcome) -> list[Row]:
    """In the order of A; what only B has stands before the next pair."""
    exact = {side.name: _exact(side, outcome) for side in (a, b)}
    partners = {x: y for y, x in pairs.items()}
    findings = [(f.donor, f.recipient) for f in outcome.findings]
    donor_is_a = outcome.matching is None or outcome.matching.donor is a
    first = None if not findings else findings[0] if donor_is_a else findings[0][::-1]
    rows: list[Row] = []
    waiting = [i for i in b.ids if i not in pairs]
    for x in a.ids:
        y = partners.get(x)
        if y is None:
            rows.append(Row(a.label(x), None, tuple(a.value(x).shape), None, None, None, None, "only in A"))
            continue
        while waiting and waiting[0] < y:
            rows.append(_only_in_b(b, waiting.pop(0)))
        rows.append(_pair(a, b, x, y, exact, (x, y) == first, outcome))
    return rows + [_only_in_b(b, i) for i in waiting]


def _exact(side: Side, outcome: Outcome) -> ExactOf:
    """A side's values before anything was grafted; as they were saved, if nothing had to be computed again."""
    if outcome.matching is None or outcome.original is None:
        return lambda index: side.value(index).saved
    values = outcome.original if side is outcome.matching.recipient else side.values
    return values.__getitem__


def _only_in_b(b: Side, i: int) -> Row:
    return Row(None, b.label(i), None, tuple(b.value(i).shape), None, None, None, "only in B")


def _pair(a: Side, b: Side, x: int, y: int, exact: dict[str, ExactOf], is_first: bool, outcome: Outcome) -> Row:
    one, other = exact["A"](x), exact["B"](y)
    saved, own = a.value(x).saved, b.value(y).saved
    found = None if one is None or other is None else best_fit(one, other, 1e-9)
    error = _error(saved, own, found)
    rounding = _sum(_error(saved, one), _error(own, other))
    in_float64 = None if found is None else found.error
    tolerance = outcome.matching.tolerance if outcome.matching is not None else 0.0
    equal = in_float64 is not None and in_float64 <= max(tolerance, 1e-9)
    status = "first difference" if is_first else "equal" if equal else "differs"
    shapes = tuple(a.value(x).shape), tuple(b.value(y).shape)
    return Row(a.label(x), b.label(y), *shapes, error, rounding, in_float64, status)


def _error(one: Tensor | None, other: Tensor | None, found: Fit | None = None) -> float | None:
    if one is None or other is None or one.is_nested or one.numel() != other.numel():
        return None
    if found is not None and one.shape != other.shape:
        one = laid_out_as(one, other.shape, found.how)
    return relative_error(one, other)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other

"""What a comparison prints: first the answer, then a short aligned table."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..words import counted, shape_words
from .operation_pairs import Row

if TYPE_CHECKING:
    from .comparison import Comparison, Difference

_WIDTH = 116
_ROWS_BEFORE, _ROWS_AFTER = 4, 8
_FEW = 4

#: Above the columns of the table.
HEADS = ("A", "B", "shape A", "shape B", "error", "rounding", "float64", "")


def describe(comparison: Comparison) -> str:
    """The whole print."""
    if comparison.status == "identical":
        return verdict(comparison)
    places = _places(comparison)
    parts = [line if line in places else _filled(line) for line in answer_lines(comparison)]
    table = _table(comparison)
    return "\n".join([*parts, "", *table] if table else parts)


def answer_lines(comparison: Comparison) -> list[str]:
    """The verdict and what it rests on, a line each, however long."""
    if comparison.status == "identical":
        return [verdict(comparison)]
    found = [verdict(comparison), *_checks(comparison), *_places(comparison)]
    return [*found, *_matched(comparison), *_proof(comparison), *_more(comparison)]


def _filled(line: str) -> str:
    return textwrap.fill(line, _WIDTH, subsequent_indent="    " if line[0] == " " else "", break_long_words=False)


# ---- the answer -----------------------------------------------------------------------------------------------------


def verdict(comparison: Comparison) -> str:
    outcome = comparison._outcome
    total = f"{max(outcome.rounding.values(), default=0.0):.1e}"
    if comparison.status == "identical":
        words = f"Identical: all {len(comparison._a.ids)} values of A and B agree bit for bit"
        if outcome.unwritten:
            words += f", but for memory that nothing was written to yet, in {outcome.unwritten} of them"
        return words + "."
    if comparison.status == "rounding":
        return _rounding(comparison, total)
    first = comparison.first_difference
    if first is None:
        return f"Different: the outputs {_by(outcome.observed)}, and the place where this begins was not found."
    place = first.a if first.a == first.b else f"{first.a} in A, {first.b} in B,"
    if comparison.status == "hidden":
        return (
            f"Different, by less than rounding: the runs differ from {place} on: {first.cause}. In float64 the outputs "
            f"{_by(outcome.in_float64)}; rounding alone changes them by up to {total}."
        )
    if first.kind == "unproven":
        return (
            f"Different: the outputs {_by(outcome.observed)}. The first operations of one function that differ are "
            f"{place.rstrip(',')}, and nothing that was tried there makes the rest agree: {first.cause}."
        )
    return (
        f"Different from {place} on: {first.cause}. The outputs {_by(outcome.observed)}; rounding alone would "
        f"change them by {sum(outcome.rounding.values()):.1e}."
    )


def _rounding(comparison: Comparison, total: str) -> str:
    outcome = comparison._outcome
    if outcome.observed == 0:
        words = "Rounding only: the outputs agree bit for bit, and all that leads to them agrees but for rounding"
    else:
        words = (
            f"Rounding only: the outputs {_by(outcome.observed)}, and in float64 they {_by(outcome.in_float64)}. "
            f"Rounding alone changes them by {_each(outcome.rounding)}"
        )
    if outcome.constants:
        words += "; constants, such as tables or folded weights, were computed in a different order and rounded"
    return words + "."


def _each(rounding: dict[str, float]) -> str:
    return f"{rounding['A']:.1e} in A and {rounding['B']:.1e} in B"


def _by(error: float) -> str:
    """
    >>> _by(0.0), _by(0.00012)
    ('agree exactly', 'differ by 1.2e-04 (relative)')
    """
    if error == float("inf"):
        return "differ in shape or kind"
    return f"differ by {error:.1e} (relative)" if error else "agree exactly"


def _places(comparison: Comparison) -> list[str]:
    first = comparison.first_difference
    if first is None:
        return []
    each = [("A", first.module_a, first.line_a), ("B", first.module_b, first.line_b)]
    width = max(len(module) for _, module, _ in each)
    return [f"  {name}  {module or '(the model itself)':{width}}  {line}".rstrip() for name, module, line in each]


def _matched(comparison: Comparison) -> list[str]:
    matching = comparison._outcome.matching
    if matching is None or comparison.first_difference is None:
        return []
    equal = sum(partner is not None for partner in matching.first_partner.values())
    name, other = matching.recipient.name, matching.donor.name
    return [f"  {equal} of {len(matching.first_partner)} values of {name} have an equal in {other}."]


def _proof(comparison: Comparison) -> list[str]:
    proof, matching = comparison.proof, comparison._outcome.matching
    if proof is None or matching is None:
        return []
    if proof.error is None:
        return [f"  Not proved: {proof.reason}."]
    values = f"{matching.donor.name}'s value put into {matching.recipient.name}"
    where = f"here, for {proof.edge} alone," if proof.edge else "here"
    again = f"{counted(proof.operations, 'operation')} computed again"
    proved = comparison.is_proved
    words = f"  {'Proof' if proved else 'Not proved'}: with {values} {where} and {again}, the outputs "
    words += _by(proof.error) if proved or not proof.error else f"still {_by(proof.error)}"
    if proof.operations < 2:
        words += " (so near to the output that it proves little)"
    full = comparison.full_proof
    if full is not None and full.error is not None:
        words += f"; with all {len(comparison._findings)} differences healed, they {_by(full.error)}"
    return [words + "."]


# ---- what else ------------------------------------------------------------------------------------------------------


def _checks(comparison: Comparison) -> list[str]:
    return [f"  Check {check.name}: {check.text}." for check in comparison.checks if not check.same]


def _more(comparison: Comparison) -> list[str]:
    lines = [
        f"  {_again(each, number)}" for number, each in enumerate(comparison.differences) if number or each.times > 1
    ]
    for side in (comparison._a, comparison._b):
        if side.exact.kept:
            reason = next(iter(side.exact.kept.values())).splitlines()[0]
            calls = counted(len(side.exact.kept), "operation")
            lines.append(f"  Not computed again in float64, so taken as saved: {calls} of {side.name} ({reason}).")
    outputs = len(comparison._a.outputs), len(comparison._b.outputs)
    if outputs[0] != outputs[1]:
        lines.append(f"  A returns {counted(outputs[0], 'tensor')}, B {outputs[1]}; they were compared in order.")
    return lines


def _again(difference: Difference, number: int) -> str:
    places = [a if a == b else f"{a} / {b}" for a, b in difference.places]
    if number == 0:
        return f"The same {counted(difference.times - 1, 'more time')}: at {_listed(places[1:])}."
    return f"Then {difference.cause}: at {_listed(places)}."


def _listed(places: list[str]) -> str:
    return ", ".join(places[:_FEW]) + (f" and {len(places) - _FEW} more" if len(places) > _FEW else "")


# ---- the table ------------------------------------------------------------------------------------------------------


def _table(comparison: Comparison) -> list[str]:
    begin, shown = rows_around(comparison, _ROWS_BEFORE, _ROWS_AFTER)
    if not shown:
        return []
    cells = [HEADS, *(cells_of(row) for row in shown)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    left = (0, 1, 2, 3, 7)
    lines = [
        "  ".join(f"{c:<{w}}" if n in left else f"{c:>{w}}" for n, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    ]
    before, after = begin, len(comparison.rows) - begin - len(shown)
    notes = [f"... {counted(count, 'row')} {where}" for count, where in ((before, "before"), (after, "after")) if count]
    return [*(line.rstrip() for line in lines), *([", ".join(notes)] if notes else [])]


def rows_around(comparison: Comparison, before: int, after: int) -> tuple[int, list[Row]]:
    """The rows around the first difference, or the first rows, and the number of those that come before them."""
    rows = comparison.rows
    first = next((n for n, row in enumerate(rows) if row.status == "first difference"), 0)
    begin = max(0, first - before)
    return begin, rows[begin : begin + before + after + 1]


def cells_of(row: Row) -> tuple[str, ...]:
    """What a table says of a row."""
    shapes = ["." if shape is None else shape_words(shape) for shape in (row.shape_a, row.shape_b)]
    numbers = [_number(each) for each in (row.error, row.rounding, row.in_float64)]
    mark = {"first difference": "<- here", "equal": ""}.get(row.status, row.status)
    return (row.a or ".", row.b or ".", *shapes, *numbers, mark)


def _number(error: float | None) -> str:
    return "" if error is None else "0" if error == 0 else f"{error:.0e}"

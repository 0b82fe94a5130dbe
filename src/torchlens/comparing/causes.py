"""Why two values differ, in words.

`name_cause` fills in the `cause` of a finding and its `family`: findings of one family are told together.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..replay.call import UNINITIALISED
from .aligned import Aligned
from .findings import Finding
from .layouts import relative_error
from .literal_arguments import TENSOR, arguments_by_name, literals
from .matching import Matching
from .sides import Side
from .weights import have_other_weights, used_transposed, weight_notes

_EQUAL = 1e-6


def name_cause(matching: Matching | Aligned, finding: Finding) -> Finding:
    """The finding, with its cause in words."""
    finding.cause, finding.family = _Cause(matching, finding).named()
    return finding


class _Cause:
    def __init__(self, matching: Matching | Aligned, finding: Finding) -> None:
        self.matching, self.finding = matching, finding
        self.donor, self.recipient = matching.donor, matching.recipient
        self.j, self.i = finding.donor, finding.recipient

    def named(self) -> tuple[str, tuple[Any, ...]]:
        if self.donor.call(self.j) is None and self.recipient.call(self.i) is None:
            return self._source()
        special = {"missing": self._missing, "extra": self._extra, "order": self._order}.get(self.finding.kind)
        if special is not None:
            return special()
        turned = self._transposed()
        if turned:
            return turned
        steps = [k for k in self.finding.donor_region if not self.donor.is_view(k)]
        own_steps = [k for k in self.finding.recipient_region if not self.recipient.is_view(k)]
        if len(steps) <= 1 and len(own_steps) <= 1 and self.finding.kind != "unproven":
            return self._operation()
        return self._region()

    def both(self, of_donor: str, of_recipient: str) -> str:
        """A's and B's, in this order."""
        each = sorted([(self.donor.name, of_donor), (self.recipient.name, of_recipient)])
        return f"{each[0][1]} in {each[0][0]}, {each[1][1]} in {each[1][0]}"

    def spelled(self, side: Side, i: int) -> str:
        call = side.call(i)
        return side.spelled(i) + ("" if call is None else literals(call))

    # ---- one step more or less -----------------------------------------------------------------------------------

    def _missing(self) -> tuple[str, tuple[Any, ...]]:
        return self._one_has(self.donor, self.j, self.recipient)

    def _extra(self) -> tuple[str, tuple[Any, ...]]:
        return self._one_has(self.recipient, self.i, self.donor)

    def _one_has(self, side: Side, i: int, other: Side) -> tuple[str, tuple[Any, ...]]:
        call = side.call(i)
        given = {} if call is None else arguments_by_name(call)
        if side.function(i) == "dropout" and given.get("train"):
            return f"dropout is active in {side.name} only (p={given.get('p')}): it ran in training mode", ("dropout",)
        return f"missing operation: {other.name} has no such step: {self.spelled(side, i)}", ("step", side.function(i))

    # ---- sources and order ---------------------------------------------------------------------------------------

    def _source(self) -> tuple[str, tuple[Any, ...]]:
        role = self.donor.value(self.j).role
        what = {"input": "the inputs differ", "buffer": "the buffers differ"}.get(role, "the constants differ")
        names = [self.donor.value(self.j).address, self.recipient.value(self.i).address]
        if role == "buffer" and names[0]:
            what += f": {names[0]}" if names[0] == names[1] else f": {self.both(names[0] or '', names[1] or '')}"
        one, other = self.donor.values[self.j], self.recipient.values[self.i]
        if one is None or other is None:
            return what, ("source", role)
        by_name = {self.donor.name: one, self.recipient.name: other}
        return what + _relation(by_name["A"], by_name["B"]), ("source", role)

    def _order(self) -> tuple[str, tuple[Any, ...]]:
        j, i = self.j, self.i
        if not self.donor.is_view(j) and self.donor.function(j) == self.recipient.function(i):
            parents, own = self.donor.parents[j], self.recipient.parents[i]
            if len(parents) == 2 == len(own) and self._class(own[1]) == self._donor_class(parents[0]):
                return f"the operands of {self.donor.spelled(j)} are swapped", ("swapped", self.donor.function(j))
        names = self.both(self.spelled(self.donor, j), self.spelled(self.recipient, i))
        family = ("order", self.donor.function(j), self.recipient.function(i))
        return f"different layout: the same numbers in a different order (a view or transpose): {names}", family

    def _class(self, i: int) -> int | None:
        return self.matching.class_of(i) if isinstance(self.matching, Matching) else None

    def _donor_class(self, j: int) -> int | None:
        return self.matching.index.classes[j] if isinstance(self.matching, Matching) else -1

    # ---- a weight used the wrong way round -----------------------------------------------------------------------

    def _transposed(self) -> tuple[str, tuple[Any, ...]] | None:
        """A square weight, written for another function: with its transpose, one side gives the other's numbers."""
        j, i = self.j, self.i
        if self.donor.spelled(j) == self.recipient.spelled(i) or self.finding.kind == "unproven":
            return None
        sides = [(self.donor, j, self.finding.donor_region), (self.recipient, i, self.finding.recipient_region)]
        b, a = sorted(sides, key=lambda each: each[0].name, reverse=True)
        for (side, end, region), (other, wanted, _) in ((b, a), (a, b)):
            weight = used_transposed(side, end, region, other.values[wanted], self.matching.tolerance)
            if weight is not None:
                words = f"{weight.address} of {side.name} is used transposed: with the transpose of {weight.address}"
                return f"different weights: {words}, {side.name} gives {other.name}'s numbers here", ("transposed",)
        return None

    # ---- one operation against one -------------------------------------------------------------------------------

    def _operation(self) -> tuple[str, tuple[Any, ...]]:
        j, i = self.j, self.i
        name = self.recipient.spelled(i)
        told = self._edited() or self._changed_since()
        if told:
            return told
        notes = "; ".join(weight_notes(self.donor, self.recipient, j, i))
        weights = [f"different weights: {notes}"] if notes else []
        if self.donor.function(j) != self.recipient.function(i):
            names = self.both(self.spelled(self.donor, j), self.spelled(self.recipient, i))
            function = ("function", self.donor.function(j), self.recipient.function(i))
            return "; ".join([f"different functions: {names}", *weights]), function
        arguments = self._other_arguments()
        if notes and not arguments:
            return weights[0], ("weights",)
        if arguments:
            return "; ".join([f"different argument of {name}: {arguments}", *weights]), ("argument", name, arguments)
        return self._same_in_words(name)

    def _edited(self) -> tuple[str, tuple[Any, ...]] | None:
        for side, index in ((self.donor, self.j), (self.recipient, self.i)):
            number = side.exact.edited.get(index, side.exact.edited_calls.get(side.value(index).call))
            if number is not None:
                asked = side.trace.interventions[number]
                return f"an intervention of {side.name}: {asked.edit!r} at {asked.site}", ("intervention", side.name)
        return None

    def _changed_since(self) -> tuple[str, tuple[Any, ...]] | None:
        for side, index in ((self.donor, self.j), (self.recipient, self.i)):
            changed = [v.address for v in side.params(index) if v.index in side.exact.changed_since]
            if changed:
                was = f"{changed[0]} has been changed since log {side.name} was made; a log does not copy weights"
                return f"different weights: {was} (tl.save does)", ("weights changed",)
        return None

    def _same_in_words(self, name: str) -> tuple[str, tuple[Any, ...]]:
        """The same function with the same literals and weights: what else can it be?"""
        call = self.recipient.call(self.i)
        if call is not None and call.function.name in UNINITIALISED:
            return f"{name} is memory that nothing was written to, and reaches the outputs", ("unwritten",)
        if call is not None and call.rng is not None:
            return f"{name} drew different random numbers: a different seed, or different draws before it", ("random",)
        if isinstance(self.matching, Matching):
            above = [self.matching.index.classes[p] for p in self.donor.parents[self.j]]
            if above != [self.matching.class_of(p) for p in self.recipient.parents[self.i]]:
                return f"different operands: {name} is given different values, or in a different order", (
                    "operands",
                    name,
                )
        return f"{name} gives different numbers for equal inputs, arguments and weights", ("unknown", name)

    def _other_arguments(self) -> str:
        calls = self.donor.call(self.j), self.recipient.call(self.i)
        if calls[0] is None or calls[1] is None or calls[0].function.name != calls[1].function.name:
            return ""
        by_name = {self.donor.name: arguments_by_name(calls[0]), self.recipient.name: arguments_by_name(calls[1])}
        one, other = by_name["A"], by_name["B"]
        words = []
        for name in {**one, **other}:
            pair = one.get(name), other.get(name)
            if pair[0] == pair[1] or (TENSOR in pair and None not in pair):
                continue
            words.append(f"{name} is {pair[0]!r} in A and {pair[1]!r} in B")
            if name in ("training", "train"):
                words[-1] += ": training mode against evaluation mode"
        return ", ".join(words)

    # ---- several operations against several ----------------------------------------------------------------------

    def _region(self) -> tuple[str, tuple[Any, ...]]:
        j, i = self.j, self.i
        steps = self._steps(self.donor, self.finding.donor_region)
        own_steps = self._steps(self.recipient, self.finding.recipient_region)
        each = sorted([(self.donor.name, steps), (self.recipient.name, own_steps)])
        where = "from here on" if self.finding.kind == "unproven" else "between the last agreement and here"
        words = f"different operations: {where}, A does {_chain(each[0][1])}; B does {_chain(each[1][1])}"
        same_end = self.donor.function(j) == self.recipient.function(i) and bool(self.donor.params(j))
        if same_end and not have_other_weights(self.donor, self.recipient, j, i):
            words = f"the same {self.donor.spelled(j)} with the same weights is fed by something else: " + words
        return words + self._own_numbers(), ("region", tuple(steps), tuple(own_steps))

    def _steps(self, side: Side, region: list[int]) -> list[str]:
        steps = [i for i in region if not side.is_view(i)]
        return [
            side.spelled(i) + (f" {side.value(i).address}" if side.call(i) is None and side.value(i).address else "")
            for i in steps
        ]

    def _own_numbers(self) -> str:
        """Numbers that only one of the two regions has: an eps, a scale."""
        found = {}
        for side, region in (
            (self.donor, self.finding.donor_region),
            (self.recipient, self.finding.recipient_region),
        ):
            calls = [call for call in (side.call(i) for i in region) if call is not None]
            found[side.name] = {v for call in calls for v in arguments_by_name(call).values() if isinstance(v, float)}
        words = ""
        for name, other in (("A", "B"), ("B", "A")):
            only = sorted(found[name] - found[other])
            if only:
                words += f"; only in {name}: {', '.join(f'{number:.6g}' for number in only[:4])}"
        return words


_LONGEST = 8


def _chain(steps: list[str]) -> str:
    if len(steps) > _LONGEST:
        steps = [*steps[: _LONGEST // 2], f"... {len(steps) - _LONGEST} more ...", *steps[-_LONGEST // 2 :]]
    return " > ".join(steps) or "nothing"


def _relation(one: Tensor, other: Tensor) -> str:
    """How an input of A is related to that of B, where that can be seen."""
    if one.shape != other.shape:
        return f": shape {tuple(one.shape)} in A, {tuple(other.shape)} in B"
    for dimension in range(one.dim()):
        if one.shape[dimension] > 1 and relative_error(one.flip(dimension), other) < _EQUAL:
            return f": the same numbers, dimension {dimension} reversed"
    if not one.is_floating_point():
        differ = int((one != other).sum())
        return f": {differ} of {one.numel()} elements"
    error = relative_error(one, other)
    words = f" (relative difference {error:.1e})"
    if one.numel() > 2 and float(one.std()) > 0 and float(other.std()) > 0:
        scale = float(other.std() / one.std())
        shift = float(other.mean() - scale * one.mean())
        if relative_error(one * scale + shift, other) < 1e-5:
            return f": B's is {scale:.4g} times A's{f' {shift:+.4g}' if abs(shift) > 1e-6 * float(other.std()) else ''}"
    if one.reshape(-1).sort()[0].equal(other.reshape(-1).sort()[0]):
        return ": the same numbers in a different order"
    return words

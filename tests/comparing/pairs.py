"""Pairs of runs whose truth is known: what `tl.compare` has to find, written down before it was run.

    @pair()                                                  no defect: rounding, at most
    @pair(at="layer_norm", module="ln_1", says="eps")        the guilty function, in which module, a word of the cause

`at` and `says` name alternatives, separated by spaces, where several answers are right. A pair is a function that
returns two logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torchlens as tl

Logs = tuple[tl.ModelLog, tl.ModelLog]


@dataclass(frozen=True)
class Pair:
    name: str
    build: Callable[[], Logs]
    at: frozenset[str]
    module: str
    says: tuple[str, ...]

    @property
    def has_defect(self) -> bool:
        return bool(self.at)


@dataclass(frozen=True)
class Answer:
    """What was found of one pair."""

    pair: Pair
    comparison: tl.Comparison

    @property
    def verdict_is_right(self) -> bool:
        return bool(self.comparison) != self.pair.has_defect

    @property
    def place_is_right(self) -> bool:
        difference = self.comparison.first_difference
        if difference is None:
            return not self.pair.has_defect
        functions = {
            self._function(label, log) for label, log in zip((difference.a, difference.b), self._logs, strict=True)
        }
        here = self.pair.module in difference.module_a or self.pair.module in difference.module_b
        return bool(functions & self.pair.at) and here

    @property
    def cause_is_right(self) -> bool:
        difference = self.comparison.first_difference
        return (
            (difference is None)
            if not self.pair.has_defect
            else bool(difference is not None and any(word in difference.cause for word in self.pair.says))
        )

    @property
    def is_right(self) -> bool:
        return self.verdict_is_right and self.place_is_right and self.cause_is_right

    @property
    def _logs(self) -> Logs:
        return self.comparison._a.log, self.comparison._b.log

    @staticmethod
    def _function(label: str, log: tl.ModelLog) -> str:
        op = log[label]
        return (op.func_name or op.layer_type).strip("_")


PAIRS: dict[str, Pair] = {}


def pair(at: str = "", module: str = "", says: str = "") -> Callable[[Callable[[], Logs]], Callable[[], Logs]]:
    """Register a pair; see the top of this file."""

    def register(build: Callable[[], Logs]) -> Callable[[], Logs]:
        name = build.__name__
        assert name not in PAIRS, name
        PAIRS[name] = Pair(name, build, frozenset(at.split()), module, tuple(says.split("|")) if says else ())
        return build

    return register


def answer(each: Pair) -> Answer:
    return Answer(each, tl.compare(*each.build()))


def answers_both_ways(each: Pair) -> tuple[Answer, bool]:
    """What is found of a pair, and whether it is the same with A and B exchanged, but for the names."""
    one, other = each.build()
    forth, back = tl.compare(one, other), tl.compare(other, one)
    return Answer(each, forth), is_mirrored(forth, back)


def is_mirrored(forth: tl.Comparison, back: tl.Comparison) -> bool:
    """Does one comparison say of B and A what the other says of A and B?"""
    places = [(d.a, d.b, d.kind, d.places) for d in forth.differences]
    mirrored = [(d.b, d.a, d.kind, tuple((b, a) for a, b in d.places)) for d in back.differences]
    same_checks = [check.same for check in forth.checks] == [check.same for check in back.checks]
    return forth.status == back.status and places == mirrored and same_checks

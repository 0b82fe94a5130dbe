"""Pairs of runs with known truth. The tiny ones run here; `python -m tests.comparing` runs all."""

from __future__ import annotations

import pytest
from tests.comparing import small_pairs  # noqa: F401  (registers them)
from tests.comparing.pairs import PAIRS, Pair, answer

import torchlens as tl


@pytest.mark.parametrize("pair", PAIRS.values(), ids=lambda pair: pair.name)
def test_the_truth_is_found(pair: Pair) -> None:
    found = answer(pair)
    assert found.verdict_is_right, repr(found.comparison)
    assert found.place_is_right, repr(found.comparison)
    assert found.cause_is_right, repr(found.comparison)


@pytest.mark.parametrize("pair", list(PAIRS.values())[::3], ids=lambda pair: pair.name)
def test_the_order_changes_nothing_but_the_names(pair: Pair) -> None:
    one, other = pair.build()
    forth, back = tl.compare(one, other), tl.compare(other, one)
    assert forth.status == back.status
    assert [(d.a, d.b, d.kind) for d in forth.differences] == [(d.b, d.a, d.kind) for d in back.differences]

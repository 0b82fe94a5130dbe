"""Pairs of runs with known truth. The tiny ones run here; `python -m tests.comparing` runs all."""

from __future__ import annotations

import pytest
from tests.comparing import small_pairs  # noqa: F401  (registers them)
from tests.comparing.pairs import PAIRS, Pair, answers_both_ways


@pytest.mark.parametrize("pair", PAIRS.values(), ids=lambda pair: pair.name)
def test_the_truth_is_found(pair: Pair) -> None:
    found, is_mirrored = answers_both_ways(pair)
    assert found.verdict_is_right, repr(found.comparison)
    assert found.place_is_right, repr(found.comparison)
    assert found.cause_is_right, repr(found.comparison)
    assert is_mirrored, "A and B exchanged, something else is found"

"""Tensors that are looked at in pieces, and what is infinite in them."""

from __future__ import annotations

import math

import pytest
import torch

from torchlens.comparing import layouts
from torchlens.comparing.fingerprints import fingerprint, same_numbers
from torchlens.comparing.layouts import pieces, relative_error

NUMBERS = torch.randn(7, 5, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASKED = NUMBERS.masked_fill(NUMBERS > 1.5, -math.inf)
NOT_A_NUMBER = NUMBERS.masked_fill(NUMBERS > 1.5, math.nan)


@pytest.mark.parametrize("tensor", [NUMBERS, NUMBERS.transpose(0, 2), MASKED, NOT_A_NUMBER, NUMBERS.float()])
@pytest.mark.parametrize("large", [1, 10, 100])
def test_pieces_change_nothing(tensor: torch.Tensor, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tensor + 0.25 * NUMBERS.reshape(tensor.shape)
    error, mark = relative_error(tensor, other), fingerprint(tensor)
    monkeypatch.setattr(layouts, "_LARGE", large)
    assert len(pieces(tensor)) == min(11, math.ceil(tensor.numel() / large))
    assert relative_error(tensor, other) == pytest.approx(error, rel=1e-12)
    assert fingerprint(tensor) == pytest.approx(mark, rel=1e-12)


def test_what_is_infinite_has_to_be_infinite_in_both() -> None:
    assert relative_error(MASKED, MASKED.clone()) == 0
    assert relative_error(MASKED, NUMBERS) == math.inf and relative_error(NUMBERS, MASKED) == math.inf
    assert relative_error(MASKED, NOT_A_NUMBER) == math.inf
    assert fingerprint(MASKED).infinite == int((NUMBERS > 1.5).sum())


SCORES = torch.randn(4, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
HIDDEN = torch.ones(6, 6).triu(1).bool()


@pytest.mark.parametrize("fill", [-1e4, -65504.0, -1e6, -1e9, -1e14, -1e20, 1e9])
@pytest.mark.parametrize("large", [10, 1 << 20])
def test_a_fill_value_hides_nothing(fill: float, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs outside of the mask counts against what stands there, however large the fill value is."""
    monkeypatch.setattr(layouts, "_LARGE", large)
    seen = relative_error(SCORES[:, ~HIDDEN], 1.5 * SCORES[:, ~HIDDEN])
    one, other = (scores.masked_fill(HIDDEN, fill) for scores in (SCORES, 1.5 * SCORES))
    assert relative_error(one, other) == pytest.approx(seen, rel=1e-12)
    added, more = (scores + HIDDEN * fill for scores in (SCORES, 1.5 * SCORES))
    assert relative_error(added, more) > (0.3 if abs(fill) > 1e5 else 1e-5)
    assert not same_numbers(fingerprint(one), fingerprint(other), 1e-9)
    assert same_numbers(fingerprint(one), fingerprint(one.transpose(0, 2).contiguous()), 1e-9)


def test_a_fill_value_is_compared_itself() -> None:
    one, other = SCORES.masked_fill(HIDDEN, -1e9), SCORES.masked_fill(HIDDEN, -1e12)
    assert relative_error(one, other) == pytest.approx(1, abs=0.01)
    assert not same_numbers(fingerprint(one), fingerprint(other), 1e-9)
    assert relative_error(one, SCORES.masked_fill(HIDDEN.T, -1e9)) > 0.5


def test_outliers_are_no_fill_value() -> None:
    """A few large numbers that differ from each other: what is small beside them may be what rounding left of them."""
    peaks = torch.full((8, 8), 1e-17, dtype=torch.float64)
    peaks[0, :4] = torch.tensor([1.1e5, 2.3e5, 3.7e5, 4.9e5])
    assert relative_error(peaks, peaks + 1e-16) < 1e-15
    ones = torch.eye(8, dtype=torch.float64)
    assert relative_error(ones, ones + 1e-17) < 1e-15

"""Tensors that are looked at in pieces, and what is infinite in them."""

from __future__ import annotations

import math

import pytest
import torch

from torchlens.comparing import layouts
from torchlens.comparing.fingerprints import fingerprint
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

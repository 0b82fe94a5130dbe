"""The first operation that made a NaN or an Inf."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl


class Dividing(nn.Module):
    """Divides by what may be zero, twice; NaN spreads from there."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x).relu()
        z = y / x
        return torch.log(z * 0 - 1) + z


SOUND, ZERO = torch.full((2, 3), 2.0), torch.zeros(2, 3)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Dividing()


def test_the_first_operation_that_made_one(model: nn.Module) -> None:
    found = tl.log_forward_pass(model, ZERO).first_nan()
    assert found is not None and found.label == "truediv_1_3"
    log = tl.log_forward_pass(model, SOUND)
    assert log.first_nan() is log["log"], "the logarithm of a negative number"


def test_there_is_none() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert tl.log_forward_pass(model, SOUND).first_nan() is None


def test_it_came_with_the_input_or_a_parameter(model: nn.Module) -> None:
    found = tl.log_forward_pass(model, torch.full((2, 3), float("inf"))).first_nan()
    assert found is not None and found.label == "input_1_0"
    with torch.no_grad():
        model.fc.bias[0] = float("nan")  # type: ignore[index, union-attr, operator]
    found = tl.log_forward_pass(model, SOUND).first_nan()
    assert found is not None and found.label == "linear_1_1", "the first operation in which it shows"


class Attending(nn.Module):
    """Attention with a causal mask; what comes after it may be NaN."""

    def __init__(self, mask: str, after: str) -> None:
        super().__init__()
        self.mask, self.after = mask, after

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        scores = x @ x.mT
        hidden = torch.ones(3, 3).triu(1).bool()
        if self.mask == "filled":
            scores = scores.masked_fill(hidden, -torch.inf)
        elif self.mask == "where":
            scores = torch.where(hidden, float("-inf"), scores) * 2
        elif self.mask == "added":
            scores = scores + torch.full((3, 3), float("-inf")).triu(1)
        else:
            scores = scores + given
        if self.after == "returned":
            return scores
        y = scores.softmax(-1) @ x
        return torch.sqrt(y - 5) if self.after == "nan" else y


@pytest.mark.parametrize("mask", ["filled", "where", "added", "given"])
def test_a_mask_is_none(mask: str, tmp_path: Path) -> None:
    x = [torch.rand(3, 4), torch.full((3, 3), -torch.inf).triu(1)]
    assert tl.log_forward_pass(Attending(mask, "nothing"), x).first_nan() is None
    log = tl.log_forward_pass(Attending(mask, "nan"), [x[0], x[1] if mask == "given" else ZERO])
    tl.save(log, tmp_path / "log")
    for each in (log, tl.load(tmp_path / "log")):
        found = each.first_nan()
        assert found is not None and found.layer_type == "sqrt"


def test_a_mask_that_is_returned_counts() -> None:
    found = tl.log_forward_pass(Attending("filled", "returned"), [torch.rand(3, 4), ZERO]).first_nan()
    assert found is not None and found.layer_type == "maskedfill"


def test_a_row_that_is_masked_altogether() -> None:
    found = tl.log_forward_pass(Attending("given", "nothing"), [torch.rand(3, 4), torch.full((3, 3), -torch.inf)])
    first = found.first_nan()
    assert first is not None and first.layer_type == "softmax"


def test_an_infinity_that_was_computed_is_no_mask() -> None:
    class Logarithm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (torch.log(x) * 0).softmax(-1)

    found = tl.log_forward_pass(Logarithm(), ZERO).first_nan()
    assert found is not None and found.layer_type == "log"


@pytest.mark.parametrize("lazy", [False, True])
def test_of_a_loaded_log(model: nn.Module, tmp_path: Path, lazy: bool) -> None:
    tl.save(tl.log_forward_pass(model, ZERO), tmp_path / "log")
    found = tl.load(tmp_path / "log", lazy=lazy).first_nan()
    assert found is not None and found.label == "truediv_1_3"


def test_values_that_were_not_saved(model: nn.Module) -> None:
    with pytest.raises(tl.ArgumentError, match="input_1_0 was not saved.*layers_to_save='all'"):
        tl.get_model_metadata(model, ZERO).first_nan()
    with pytest.raises(tl.ArgumentError, match="linear_1_1 was not saved"):
        tl.log_forward_pass(model, ZERO, layers_to_save=["input", "relu", "truediv"]).first_nan()
    found = tl.log_forward_pass(model, ZERO, layers_to_save=[0, 1, 2, 3]).first_nan()
    assert found is not None and found.label == "truediv_1_3", "all that counts was saved"
    with pytest.raises(tl.ArgumentError, match="input_1_0 was saved as torch.float16"):
        tl.log_forward_pass(model, SOUND * 1e6, output_dtype=torch.float16).first_nan()


def test_kinds_of_tensors() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            count = x.to(torch.int32).sum()
            sparse = (x * 2).to_sparse()
            number = torch.complex(x, x / 0)
            return (sparse.to_dense() + number.imag) * count

    found = tl.log_forward_pass(Odd(), torch.ones(2, 2)).first_nan()
    assert found is not None and found.layer_type == "truediv"
    narrow = tl.log_forward_pass(nn.Identity(), torch.tensor([float("nan")]).to(torch.float8_e4m3fn)).first_nan()
    assert narrow is not None and narrow.label == "input_1_0"

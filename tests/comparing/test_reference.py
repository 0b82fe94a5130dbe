"""Goldens for numbers: `assert_same` with another log, and with a small file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.comparing.test_compare import Net, X, logged

import torchlens as tl


def test_two_logs() -> None:
    tl.assert_same(logged(), logged())
    tl.assert_same(logged(), logged(Net().bfloat16(), X.bfloat16()))
    with pytest.raises(
        AssertionError, match="Different from layernorm_1_3 on: different argument of layer_norm: eps is"
    ):
        tl.assert_same(logged(), logged(Net(eps=1e-3)))


def test_rtol_is_about_the_outputs() -> None:
    other = logged(Net(eps=1e-3))
    tl.assert_same(logged(), other, rtol=0.1)
    with pytest.raises(AssertionError, match="Different from layernorm_1_3"):
        tl.assert_same(logged(), other, rtol=1e-6)
    with pytest.raises(AssertionError, match=r"The outputs differ by more than rtol=1e-06.\nRounding only"):
        tl.assert_same(logged(), logged(Net().bfloat16(), X.bfloat16()), rtol=1e-6)
    with pytest.raises(tl.ArgumentError, match="rtol must be a number, 0 or more, not 'much'"):
        tl.assert_same(logged(), other, rtol="much")  # type: ignore[arg-type]


def test_a_reference(tmp_path: Path) -> None:
    path = tl.save_reference(logged(), tmp_path / "golden" / "net.json")
    assert path.stat().st_size < 4000
    tl.assert_same(logged(), path)
    tl.assert_same(logged(), str(path))
    with pytest.raises(AssertionError) as caught:
        tl.assert_same(logged(Net(eps=1e-2)), path)
    message = str(caught.value)
    assert message.startswith("Different from the reference from layernorm_1_3 on (") and "test_compare.py:" in message
    assert message.endswith("The weights are those of the reference.")
    tl.assert_same(logged(Net(eps=1e-2)), path, rtol=0.5)


def test_a_reference_knows_its_weights(tmp_path: Path) -> None:
    path = tl.save_reference(logged(), tmp_path / "net.json")
    net = Net()
    with torch.no_grad():
        net.last.weight.mul_(2)
    with pytest.raises(AssertionError, match="from linear_2_5 on .*1 of 6 weights differ from the reference, such as"):
        tl.assert_same(logged(net), path)


def test_a_reference_of_another_graph(tmp_path: Path) -> None:
    path = tl.save_reference(logged(), tmp_path / "net.json")
    with pytest.raises(AssertionError, match="it was gelu_1_2 and is relu_1_2"):
        tl.assert_same(logged(Net(torch.nn.ReLU())), path)
    with pytest.raises(AssertionError, match=r"its shape was \[5, 8\] and is \[3, 8\]"):
        tl.assert_same(logged(x=X[:3]), path)


def test_what_is_no_reference(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"format": "something"}))
    with pytest.raises(tl.ArgumentError, match="is not a reference of this version"):
        tl.assert_same(logged(), path)
    with pytest.raises(tl.ArgumentError, match="can't be read as a reference"):
        tl.assert_same(logged(), tmp_path / "missing.json")


class Masked(torch.nn.Module):
    def __init__(self, scale: float, fill: float) -> None:
        super().__init__()
        self.scale, self.fill = scale, fill

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.mT * self.scale) + torch.ones(4, 4).triu(1) * self.fill


def test_a_fill_value_hides_nothing_from_a_reference(tmp_path: Path) -> None:
    def sums(scale: float) -> tl.ModelLog:
        return tl.log_forward_pass(Masked(scale, -1e9), X[:4], layers_to_save=["add"])

    path = tl.save_reference(sums(0.1), tmp_path / "masked.json")
    tl.assert_same(sums(0.1), path)
    with pytest.raises(AssertionError, match="add_1_.* on .*: its .* differ by up to"):
        tl.assert_same(sums(0.2), path)

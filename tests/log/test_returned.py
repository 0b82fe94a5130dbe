"""What the model returned (`log.output`), and which operation made a tensor (`log.find`)."""

from __future__ import annotations

from collections import namedtuple
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl

Pair = namedtuple("Pair", "first second")


@dataclass
class Result:
    hidden: Tensor
    steps: int


class Returning(nn.Module):
    """Returns its hidden value in whatever `wrap` makes of it."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.fc, self.wrap = nn.Linear(3, 3), wrap

    def forward(self, x: Tensor) -> Any:
        self.last = self.fc(x).relu()
        return self.wrap(self.last, self.last * 2)


X = torch.rand(2, 3)
WRAPS = {
    "tensor": lambda a, b: b,
    "tuple": lambda a, b: (a, [b, 3]),
    "dict": lambda a, b: {"a": a, "b": {"c": b}, "name": "x"},
    "named": Pair,
    "object": lambda a, b: Result(a, 2),
    "nothing": lambda a, b: None,
}


@pytest.mark.parametrize("name", WRAPS)
def test_as_the_model_returned_it(name: str) -> None:
    model = Returning(WRAPS[name])
    log, plain = tl.log_forward_pass(model, X), model(X)
    _assert_equal(log.output, plain)
    _assert_equal(deepcopy(log).output, plain)


def _assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            _assert_equal(one[key], other[key])
    elif isinstance(one, (tuple, list)):
        for a, b in zip(one, other, strict=True):
            _assert_equal(a, b)
    elif isinstance(one, Result):
        _assert_equal(vars(one), vars(other))
    else:
        assert one == other


@pytest.mark.parametrize("lazy", [False, True])
def test_of_a_loaded_log(tmp_path: Path, lazy: bool) -> None:
    for name in ("tensor", "tuple", "dict", "nothing"):
        log = tl.log_forward_pass(Returning(WRAPS[name]), X)
        tl.save(log, tmp_path / name)
        _assert_equal(tl.load(tmp_path / name, lazy=lazy).output, log.output)


def test_of_a_loaded_log_without_the_classes(tmp_path: Path) -> None:
    log = tl.log_forward_pass(Returning(Pair), X)
    tl.save(log, tmp_path / "named")
    assert torch.equal(tl.load(tmp_path / "named").output[1], log.output.second)
    tl.save(tl.log_forward_pass(Returning(WRAPS["object"]), X), tmp_path / "object")
    loaded = tl.load(tmp_path / "object")
    assert "Result(" in repr(loaded.output)
    assert loaded["hidden"].activation is not None


def test_of_a_language_model(tmp_path: Path) -> None:
    torchvision_models()  # transformers imports torchvision where it is installed, which on some machines needs help
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=8, bos_token_id=1, eos_token_id=2
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.tensor([[1, 2, 3]])
    log = tl.log_forward_pass(model, ids)
    assert torch.equal(log.output.logits, model(ids).logits)
    assert log.find(log.output.logits) is log["lm_head"], "and not log[-1], which is part of the KV cache"
    tl.save(log, tmp_path / "gpt2")
    assert torch.equal(tl.load(tmp_path / "gpt2").output["logits"], log.output.logits)


def test_can_be_differentiated() -> None:
    log = tl.log_forward_pass(Returning(WRAPS["tuple"]), X, save_gradients=True)
    log.output[1][0].sum().backward()
    assert log["fc"].gradient is not None


def test_output_that_is_not_there() -> None:
    model = Returning(WRAPS["tensor"])
    with pytest.raises(tl.ArgumentError, match="output_1_4 was not saved.*'output'"):
        _ = tl.log_forward_pass(model, X, layers_to_save=["fc"]).output
    assert tl.log_forward_pass(model, X, layers_to_save=["output"]).output.shape == (2, 3)
    with pytest.raises(RuntimeError) as raised:
        tl.log_forward_pass(model, torch.rand(2, 4))
    with pytest.raises(tl.ArgumentError, match="raised before"):
        _ = raised.value.partial_log.output  # type: ignore[attr-defined]


# ---- find -----------------------------------------------------------------------------------------------------


def test_by_identity_and_by_content() -> None:
    model = Returning(WRAPS["tensor"])
    log = tl.log_forward_pass(model, X)
    for op in log:
        assert op.activation is not None
        assert log.find(op.activation) is (op if op is not log[-1] else log["mul"]), (
            "what made it, not that it is returned"
        )
    found = log.find(model.last)
    assert found is log["relu"], "a tensor that the model keeps"
    assert log.find(X.clone()) is log["input"]
    assert log.find(X + 1) is None and log.find(X.double()) is None and log.find(X[0]) is None


def test_a_connected_tensor() -> None:
    log = tl.log_forward_pass(Returning(WRAPS["tensor"]), X, train_mode=True)
    assert log.find(log["fc"].activation) is log["fc"]


def test_an_odd_tensor() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x / 0 * 0).to_sparse()

    log = tl.log_forward_pass(Odd(), torch.ones(2))
    assert log.find(torch.full((2,), float("nan"))) is log["mul"]
    assert log.find(log.output.clone()) is log["tosparse"]


def test_a_pass_of_a_loaded_log(tmp_path: Path) -> None:
    cell = nn.Linear(3, 3)
    log = tl.log_forward_pass(nn.Sequential(cell, cell, cell), X)
    tl.save(log, tmp_path / "log")
    found = tl.load(tmp_path / "log", lazy=True).find(cell(cell(X)))
    assert found is not None and found.label == "linear_1_1:2"


def test_what_was_not_saved() -> None:
    model = Returning(WRAPS["tensor"])
    log = tl.log_forward_pass(model, X, layers_to_save=["relu"])
    assert log.find(model.last) is log["relu"]
    with pytest.raises(tl.ArgumentError, match="4 of its shape and type were not saved .*input_1_0"):
        log.find(torch.rand(2, 3))
    with pytest.raises(tl.ArgumentError, match="takes a tensor, not str"):
        log.find("relu")  # type: ignore[arg-type]

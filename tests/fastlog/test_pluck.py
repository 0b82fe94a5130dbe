"""pluck: one call, one tensor, and no more of the model than needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.fastlog.test_recorder import Counting, Net, X
from torch import nn

import torchlens as tl


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize(
    "selector", ["features.0", "features", "rnn[0]", "rnn[1]", "head:2", "self", "relu_1", "conv2d_1_1", 1, -1]
)
def test_one_tensor(net: nn.Module, selector: Any) -> None:
    log = tl.log_forward_pass(net, X)
    assert torch.equal(tl.pluck(net, X, selector), log[selector].activation)


def test_a_module_of_several_calls_means_the_first(net: nn.Module) -> None:
    assert torch.equal(tl.pluck(net, X, "head"), tl.pluck(net, X, "head:1"))


def test_several(net: nn.Module) -> None:
    found = tl.pluck(net, X, ["features.0", "head:2"])
    assert list(found) == ["features.0", "head:2"] and found["head:2"].shape == (3, 4, 4)
    mixed = tl.pluck(net, X, ["features.0", "relu_1"])
    assert torch.equal(mixed["features.0"], found["features.0"])
    assert list(tl.pluck(net, X, ["features.0"])) == ["features.0"]


def test_it_stops_early() -> None:
    model = Counting()
    tl.pluck(model, torch.rand(2, 3), ["layers.1", "layers.0"])
    assert model.ran == [0]
    assert tl.pluck(model, None, "layers.0", {"x": torch.rand(2, 3)}).shape == (2, 3)


def test_a_seed() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Identity())
    first, second = (tl.pluck(model, torch.ones(30), "0", random_seed=1) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("layers", "error", "words"),
    [
        ("head:3", tl.LayerNotFoundError, "head:3"),
        ("featurs", tl.LayerNotFoundError, "did you mean 'features'"),
        ([], tl.ArgumentError, "layers is empty"),
        (lambda ctx: True, tl.ArgumentError, "fastlog.record takes functions"),
        ("relu", tl.LayerNotFoundError, "several names"),
    ],
)
def test_errors(net: nn.Module, layers: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        tl.pluck(net, X, layers)

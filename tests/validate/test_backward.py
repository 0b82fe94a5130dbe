"""Validation of gradients says yes to right ones and no to wrong ones."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from tests.models import CASES, Case
from tests.test_documented import DemoNetwork
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture.gradients import Gradients

UNCOPYABLE = {"LazyModules"}  # torch refuses to copy a model without shapes
DIFFERENTIABLE = [
    case for case in CASES if case.backward and "train" in case.modes and not case.warns and case.name not in UNCOPYABLE
]


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda case: case.name)
def test_the_gradients_of_every_model_are_right(case: Case, train: bool) -> None:
    torch.manual_seed(0)
    inputs = case.inputs()
    for tensor in inputs:
        if isinstance(tensor, Tensor) and case.input_grad and (tensor.is_floating_point() or tensor.is_complex()):
            tensor.requires_grad_()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = tl.validate_backward_pass(case.build().train(train), inputs, case.kwargs())
    except tl.ArgumentError as error:
        assert "requires a gradient" in str(error)
        return
    if case.repeatable:
        assert report, str(report)
        assert report.layers


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_known_models(name: str) -> None:
    model = getattr(torchvision_models(), name)()
    x = torch.rand(2, 3, 64, 64, requires_grad=True)
    state = copy.deepcopy(model.state_dict())
    report = tl.validate_backward_pass(model, x, loss_fn=lambda output: output.logsumexp(1).sum())
    assert report, str(report)
    assert len(report.params) == len(list(model.parameters())) and report.inputs == ["input_1_0"]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert x.grad is None and all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("damage", [lambda g: g * (1 + 1e-6), lambda g: g.flip(0), torch.zeros_like])
def test_wrong_gradients_are_found(monkeypatch: pytest.MonkeyPatch, damage: Any) -> None:
    receive = Gradients.receive
    monkeypatch.setattr(Gradients, "receive", lambda self, outlet, number, g: receive(self, outlet, number, damage(g)))
    report = tl.validate_backward_pass(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.rand(4, 3))
    assert not report
    assert "hooks: tanh_1_2: the gradient is wrong" in str(report)
    assert {problem.check for problem in report.problems} == {"hooks", "autograd"}


def test_gradients_that_are_missing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gradients, "receive", lambda self, outlet, number, gradient: None)
    report = tl.validate_backward_pass(DemoNetwork(), torch.rand(5, 5))
    assert not report and "there is no gradient" in str(report)


def test_verbose_prints(capsys: pytest.CaptureFixture[str]) -> None:
    tl.validate_backward_pass(DemoNetwork(), torch.rand(5, 5), verbose=True)
    assert capsys.readouterr().out.startswith("Valid: gradients of 2 parameters")


def test_misuse() -> None:
    with pytest.raises(tl.ArgumentError, match="one element"):
        tl.validate_backward_pass(DemoNetwork(), torch.rand(5, 5), loss_fn=lambda output: output)
    with pytest.raises(tl.ArgumentError, match="depends on nothing that requires a gradient"):
        tl.validate_backward_pass(nn.ReLU(), torch.rand(3))

"""Nothing runs at the dispatcher that is not in the log, or it is reported."""

from __future__ import annotations

import warnings

import pytest
import torch
from tests.models import CASES, Case
from tests.test_documented import DemoNetwork
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_operation_is_seen(case: Case, grad: bool) -> None:
    with warnings.catch_warnings(), torch.set_grad_enabled(grad):
        warnings.simplefilter("ignore")
        log = tl.log_forward_pass(case.build(), case.inputs(), case.kwargs(), check_completeness=True)
    assert log.completeness is not None
    assert log.completeness, str(log.completeness)


def test_the_check_changes_nothing() -> None:
    model, x = DemoNetwork(), torch.rand(5, 5)
    plain = tl.log_forward_pass(model, x, random_seed=1)
    checked = tl.log_forward_pass(model, x, random_seed=1, check_completeness=True)
    assert plain.completeness is None
    assert plain.layer_labels == checked.layer_labels
    for one, other in zip(plain, checked, strict=True):
        assert torch.equal(one.activation, other.activation)  # type: ignore[arg-type]
    assert checked.completeness is not None and checked.completeness.operations >= 9
    assert str(checked.completeness).startswith("complete: ")


class Hidden(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            y = (x * 2).relu()
        return y.exp()


def test_what_was_missed_is_named_with_its_line() -> None:
    with torch.no_grad(), pytest.warns(tl.FidelityWarning, match="can't be observed"):
        log = tl.log_forward_pass(Hidden(), torch.rand(3), check_completeness=True)
    assert log.completeness is not None and not log.completeness
    assert [missed.operation for missed in log.completeness.missed] == ["aten.mul.Tensor", "aten.relu.default"]
    assert "test_completeness.py" in str(log.completeness)


def test_validation_fails_on_an_incomplete_log() -> None:
    with torch.no_grad():
        report = tl.validate_model_activations(Hidden(), torch.rand(3))
    assert not report
    assert "completeness: aten.mul.Tensor at " in str(report)


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return (x * 2).relu()


class WithScript(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scripted(x + 1).exp()


def test_scripted_functions_are_recorded_at_the_dispatcher() -> None:
    before = torch._C.ScriptFunction.__call__
    log = tl.log_forward_pass(WithScript(), torch.rand(3), check_completeness=True)
    assert log.layer_labels == ["input_1_0", "add_1_1", "mul_1_2", "relu_1_3", "exp_1_4", "output_1_5"]
    assert log.completeness and log.validate() and not log.warnings
    assert torch._C.ScriptFunction.__call__ == before


def test_scripted_modules_are_recorded_at_the_dispatcher() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = torch.rand(2, 3)
    log = tl.log_forward_pass(model, x, check_completeness=True)
    assert [op.layer_type for op in log] == ["input", "t", "addmm", "relu", "t", "addmm", "output"]
    assert torch.equal(log[-1].activation, model(x))  # type: ignore[arg-type]
    assert log["addmm_1"].param_addresses == ["0.bias"]
    assert log.completeness and log.validate()


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "swin_v2_t", "vit_b_16", "googlenet", "densenet121"])
def test_known_models_are_complete(name: str) -> None:
    options = {"init_weights": False} if name == "googlenet" else {}
    model = getattr(torchvision_models(), name)(**options)
    log = tl.get_model_metadata(model, torch.rand(2, 3, 224, 224))
    checked = tl.log_forward_pass(model, torch.rand(2, 3, 224, 224), layers_to_save=None, check_completeness=True)
    assert checked.completeness, str(checked.completeness)
    assert checked.layer_labels == log.layer_labels

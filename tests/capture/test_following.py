"""Losses computed from a log train the model as losses computed with hand-written hooks do, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.models import Case
from tests.test_oracle import content, differentiable_runs, logged_run, prepared, surroundings
from torch import Tensor, nn

import torchlens as tl


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 8), nn.Tanh(),
        nn.Linear(8, 2),
    )  # fmt: skip


def images() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(5, 3, 8, 8)


def hooked(model: nn.Module, x: Tensor, taps: dict[str, bool]) -> dict[str, Tensor]:
    """What the tapped modules return in a plain run; with True, a copy made before anything overwrites it."""
    seen: dict[str, Tensor] = {}

    def keep(address: str, copied: bool) -> Callable[..., None]:
        return lambda module, args, result: seen.update({address: result.clone() if copied else result})

    handles = [model.get_submodule(a).register_forward_hook(keep(a, copied)) for a, copied in taps.items()]
    seen["self"] = model(x)
    for handle in handles:
        handle.remove()
    return seen


def assert_equal_gradients(one: nn.Module, other: nn.Module) -> None:
    for (name, first), (_, second) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert (first.grad is None) == (second.grad is None), name
        assert first.grad is None or torch.equal(first.grad, second.grad), name
        assert first.requires_grad == second.requires_grad, name


# ---- losses -----------------------------------------------------------------------------------------------------


def test_an_auxiliary_loss() -> None:
    model, twin, x = network(), network(), images()
    log = tl.log_forward_pass(model, x, train_mode=True)
    (log["self"].activation.mean() + log["4"].activation.square().mean()).backward()
    seen = hooked(twin, x, {"4": False})
    (seen["self"].mean() + seen["4"].square().mean()).backward()
    assert_equal_gradients(model, twin)
    assert torch.equal(model[1].running_mean, twin[1].running_mean)


def test_a_loss_of_many_layers_adds_up_in_the_same_order() -> None:
    """With three or more uses of a tensor, the order in which gradients are added shows in the last bit."""
    model, twin, x = network(), network(), images()
    log = tl.log_forward_pass(model, x, train_mode=True)
    taps = {"0": True, "1": True, "2": False, "4": False, "5": False}
    seen = hooked(twin, x, taps)

    def loss(tensors: Any) -> Tensor:
        total = tensors("self").sum()
        for address in taps:
            tensor = tensors(address)
            total = total + tensor.sin().mean() + (tensor * 0.37).exp().mean() * tensor.square().mean()
        return total

    loss(lambda address: log[address].activation).backward()
    loss(lambda address: seen[address]).backward()
    assert_equal_gradients(model, twin)


def test_a_frozen_backbone_stays_frozen() -> None:
    model, twin, x = network(), network(), images()
    for each in (model, twin):
        for parameter in each[:5].parameters():
            parameter.requires_grad_(False)
    log = tl.log_forward_pass(model, x, train_mode=True)
    seen = hooked(twin, x, {"4": False, "5": False})
    assert not log["4"].activation.requires_grad and not log["5"].activation.requires_grad
    probe = nn.Linear(8, 3)
    probe_twin = copy.deepcopy(probe)
    F.cross_entropy(probe(log["5"].activation), torch.arange(5) % 3).backward()
    F.cross_entropy(probe_twin(seen["5"]), torch.arange(5) % 3).backward()
    assert_equal_gradients(probe, probe_twin)
    log["self"].activation.sum().backward()
    seen["self"].sum().backward()
    assert_equal_gradients(model, twin)
    assert model[4].weight.grad is None and model[6].weight.grad is not None


def test_distillation_from_one_log_to_another() -> None:
    student, twin, teacher, x = network(), network(), network().eval().requires_grad_(False), images()
    with torch.no_grad():
        teacher[4].weight.mul_(1.1)
    taught = tl.log_forward_pass(teacher, x)
    learned = tl.log_forward_pass(student, x, train_mode=True)
    sum(F.mse_loss(learned[a].activation, taught[a].activation) for a in ("1", "4", "self")).backward()
    expected, seen = hooked(teacher, x, {"1": True, "4": False}), hooked(twin, x, {"1": True, "4": False})
    sum(F.mse_loss(seen[a], expected[a]) for a in ("1", "4", "self")).backward()
    assert_equal_gradients(student, twin)


def test_detach_saved_tensors_is_the_older_spelling() -> None:
    log = tl.log_forward_pass(network(), images(), detach_saved_tensors=False)
    assert log["4"].activation.grad_fn is not None
    with torch.no_grad():
        assert tl.log_forward_pass(network(), images(), detach_saved_tensors=False)["4"].activation.grad_fn is None


def test_gradients_with_respect_to_a_saved_value() -> None:
    model, twin, x = network(), network(), images()
    log = tl.log_forward_pass(model, x, train_mode=True)
    (gradient,) = torch.autograd.grad(log["self"].activation.sum(), log["2"].activation)
    seen = hooked(twin, x, {"2": False})
    assert torch.equal(gradient, torch.autograd.grad(seen["self"].sum(), seen["2"])[0])


# ---- values that are overwritten --------------------------------------------------------------------------------


class Overwriting(nn.Module):
    """A value is overwritten itself, through a view, and through what it is a view of."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        a = x * self.scale
        a.add_(1)
        b = a * 2
        b.view(-1)[:2].zero_()
        c = b * 3
        part = c[0]
        c.mul_(2)
        with torch.no_grad():
            a.mul_(5)
        return c + part.sum()


def test_values_that_are_overwritten_stay_right_in_value_and_history() -> None:
    model, x = Overwriting(), torch.rand(2, 3)
    log = tl.log_forward_pass(model, x, train_mode=True)
    plain = tl.log_forward_pass(model, x)
    assert log.layer_labels == plain.layer_labels
    scale = model.scale
    a = x * scale
    twins = {"mul_1": a, "add_1": a + 1, "mul_2": (a + 1) * 2}
    cleared = (a + 1) * 2 * torch.tensor([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    twins |= {"mul_3": cleared * 3, "getitem_2": (cleared * 3)[0], "mul_4": cleared * 6}
    for op in log:
        assert torch.equal(op.activation, plain[op.label].activation), op.label
    for label, twin in twins.items():
        activation = log[label].activation
        assert torch.equal(activation, twin), label
        weights = torch.rand_like(twin)
        (got,) = torch.autograd.grad((activation * weights).sum(), scale, retain_graph=True)
        (expected,) = torch.autograd.grad((twin * weights).sum(), scale, retain_graph=True)
        assert torch.allclose(got, expected), label


def test_a_value_overwritten_after_the_forward_pass() -> None:
    log = tl.log_forward_pass(network(), images(), train_mode=True)
    before = log["self"].activation.detach().clone()
    log["self"].activation.mul_(3)
    with pytest.warns(tl.FidelityWarning, match="overwritten after it was logged"):
        after = log["self"].activation
    assert torch.equal(after, before) and not after.requires_grad


def test_a_value_exported_to_numpy_and_overwritten_there() -> None:
    class Exporting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y.detach().numpy()[:] = 7
            return y + x

    x = torch.rand(3, requires_grad=True)
    with pytest.warns(tl.FidelityWarning):
        log = tl.log_forward_pass(Exporting(), x, train_mode=True)
    assert torch.equal(log["mul"].activation, x * 2)
    assert torch.equal(torch.autograd.grad(log["mul"].activation.sum(), x)[0], torch.full((3,), 2.0))


# ---- every hard case --------------------------------------------------------------------------------------------


@differentiable_runs
def test_train_mode_changes_no_value_and_connects_what_can_be(case: Case, mode: str) -> None:
    plain = logged_run(case, mode)
    run = prepared(case, mode)
    with surroundings(case, mode):
        log = tl.log_forward_pass(run.model, run.args, run.kwargs, detach_saved_tensors=False)
    assert log.layer_labels == plain.log.layer_labels
    for op, other in zip(log, plain.log, strict=True):
        if case.repeatable:
            assert content(op.activation) == content(other.activation), op.label
        if op.grad_fn_name is not None:
            assert op.activation.requires_grad, op.label
        assert not op.activation.requires_grad or op.activation.dtype.is_floating_point or op.activation.is_complex()


# ---- misuse -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{"train_mode": True}, {"save_gradients": True}])
def test_without_autograd_there_is_nothing_to_train(asked: dict[str, Any]) -> None:
    with torch.no_grad(), pytest.raises(tl.ArgumentError, match=r"torch.no_grad\(\) has switched off"):
        tl.log_forward_pass(network(), images(), **asked)
    with torch.inference_mode(), pytest.raises(tl.ArgumentError, match=r"torch.inference_mode\(\)"):
        tl.log_forward_pass(network(), images(), **asked)


def test_a_model_that_runs_without_grad() -> None:
    class Sealed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        @torch.no_grad()
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x)

    with pytest.raises(tl.ArgumentError, match="nothing in this forward pass is connected"):
        tl.log_forward_pass(Sealed(), torch.rand(2, 2), train_mode=True)


def test_train_mode_saves_something() -> None:
    with pytest.raises(tl.ArgumentError, match="layers_to_save is None"):
        tl.log_forward_pass(network(), images(), train_mode=True, layers_to_save=None)


def test_nothing_of_the_model_changes() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    state = copy.deepcopy(model.state_dict())
    flags = [(p.requires_grad, p.grad, p.is_leaf) for p in model.parameters()]
    tl.log_forward_pass(model.eval(), images(), train_mode=True)
    assert flags == [(p.requires_grad, p.grad, p.is_leaf) for p in model.parameters()]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


# ---- with a choice of layers ------------------------------------------------------------------------------------


def test_the_readme_example() -> None:
    model, twin, x = network(), network(), images()
    log = tl.log_forward_pass(model, x, layers_to_save=["4"], train_mode=True)
    log["4"].activation.square().mean().backward()
    hooked(twin, x, {"4": False})["4"].square().mean().backward()
    assert_equal_gradients(model, twin)
    assert log.layer_labels == ["linear_1_9"] and log["self"].activation is None


def test_what_is_not_saved_is_let_go() -> None:
    log = tl.log_forward_pass(network(), images(), layers_to_save=["tanh"], train_mode=True)
    connections = log._trace.connections
    assert connections is not None
    assert set(connections.by_index) == {log["tanh"]._value.index}


def test_a_differentiable_function_of_each_value() -> None:
    model, twin, x = network(), network(), images()
    log = tl.log_forward_pass(
        model, x, layers_to_save=["0", "4"], activation_postfunc=lambda t: t.flatten(1).mean(1), train_mode=True
    )
    (log["0"].transformed_activation.sum() + log["4"].transformed_activation.exp().sum()).backward()
    seen = hooked(twin, x, {"0": True, "4": False})
    (seen["0"].flatten(1).mean(1).sum() + seen["4"].flatten(1).mean(1).exp().sum()).backward()
    assert_equal_gradients(model, twin)
    assert torch.equal(log["0"].activation, seen["0"])
    only = tl.log_forward_pass(
        model, x, layers_to_save=["4"], activation_postfunc=torch.tanh, save_raw_activation=False, train_mode=True
    )
    assert only["4"].activation is None and only["4"].transformed_activation.requires_grad


def test_values_in_another_type_stay_connected() -> None:
    model = network()
    log = tl.log_forward_pass(model, images(), layers_to_save=["4"], output_dtype=torch.float64, train_mode=True)
    assert log["4"].activation.dtype is torch.float64
    log["4"].activation.sum().backward()
    assert model[0].weight.grad is not None and model[0].weight.grad.dtype is torch.float32
    with pytest.raises(tl.ReplayError, match="saved as torch.float64"):
        log.replay(from_layer="4")


@pytest.mark.parametrize("function", [lambda t: t.argmax(1), lambda t: t.detach(), lambda t: (t > 0).int()])
def test_a_function_that_can_not_be_differentiated_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(tl.ArgumentError, match="activation_postfunc returned for linear_1_9 is not connected"):
        tl.log_forward_pass(network(), images(), layers_to_save=["4"], activation_postfunc=function, train_mode=True)


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(tl.ArgumentError, match="activation_postfunc raised ZeroDivisionError for linear_1_9"):
        tl.log_forward_pass(
            network(), images(), layers_to_save=["4"], activation_postfunc=lambda t: 1 / 0, train_mode=True
        )

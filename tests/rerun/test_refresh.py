"""New values for the same graph; another path through the model is found and told."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from tests.models import Case
from tests.test_oracle import content, every_run, prepared, surroundings
from torch import Tensor, nn

import torchlens as tl


@every_run
def test_new_values_are_those_of_a_new_log(case: Case, mode: str) -> None:
    run = prepared(case, mode)
    with surroundings(case, mode):
        log = tl.log_forward_pass(run.model, run.args, run.kwargs)
        labels, old = log.op_labels, {op.label: op for op in log}
        before = [content(op.activation) for op in log]
        fresh = prepared(case, mode)
        expected = tl.log_forward_pass(fresh.model, fresh.args, fresh.kwargs)
        again = prepared(case, mode)
        try:
            log.save_new_activations(again.model, again.args, again.kwargs)
        except tl.DivergenceError:
            assert not case.repeatable
            assert [content(op.activation) for op in log] == before
            return
    assert log.op_labels == labels
    if not any(op.activation.is_nested for op in log):
        assert tl.lint(log) == []
    if case.repeatable:
        assert [content(op.activation) for op in log] == [content(op.activation) for op in expected]
    assert [content(op.activation) for op in old.values()] == before


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor, steps: int = 2, order: bool = False) -> Tensor:
        for _ in range(steps):
            x = self.fc(x)
        if x.sum() > 1000:
            x = x.sin()
        elif x.sum() > 500:
            x = x * 2
        else:
            x = x * 3
        a, b = x.exp(), x.cos()
        return self.drop(b - a if order else a - b)


def logged(**arguments: Any) -> tuple[Deciding, Tensor, tl.ModelLog]:
    torch.manual_seed(0)
    model, x = Deciding(), torch.rand(2, 3)
    return model, x, tl.log_forward_pass(model, x, **arguments)


def test_a_new_input_of_another_size() -> None:
    model, _, log = logged()
    x = torch.rand(7, 3)
    log.save_new_activations(model, x, random_seed=3)
    torch.manual_seed(3)
    assert torch.equal(log["output_1"].activation, model(x).detach())
    assert log["fc:2"].tensor_shape == (7, 3) and log.random_seed_used == 3
    assert log.total_activation_memory == 2 * sum(op.tensor_memory for op in log) // 2
    assert log.conditionals[0].value is False
    assert log.validate()


def line_of(text: str) -> int:
    with open(__file__) as source:
        return next(number for number, line in enumerate(source, 1) if line.strip().startswith(text))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([torch.full((2, 3), 1e6), 2], r"sin \(.*:{x = x.sin}\) now runs where sum \(.*:{elif x.sum}\) ran"),
        ([None, 3], r"after linear_1_1:2: linear .* now runs where sum .*:{if x.sum}"),
        ([None, 1], r"after linear_1_1:1: sum .*:{if x.sum}.* now runs where linear"),
        ([None, 2, True], r"sub \(.*:{return self.drop}\) now runs where sub \(.*:{return self.drop}\) ran"),
    ],
    ids=["branch", "more loops", "fewer loops", "other order"],
)
def test_another_path_is_told(arguments: list[Any], message: str) -> None:
    model, x, log = logged()
    with torch.no_grad():
        model.fc.weight.copy_(torch.eye(3))
    log.save_new_activations(model, x, random_seed=0)
    before = [content(op.activation) for op in log]
    graph = log.graph
    pattern = re.sub(r"\{(.*?)\}", lambda match: str(line_of(match[1])), message)
    given = [x if arguments[0] is None else arguments[0], *arguments[1:]]
    with pytest.raises(tl.DivergenceError, match=pattern):
        log.save_new_activations(model, given)
    assert log.graph is graph and [content(op.activation) for op in log] == before


def test_the_same_function_on_another_line_is_another_path() -> None:
    model, _, log = logged()
    with torch.no_grad():
        model.fc.weight.copy_(torch.eye(3))
        model.fc.bias.zero_()
    with pytest.raises(tl.DivergenceError, match=rf"mul .*:{line_of('x = x * 2')}\) now runs where mul"):
        log.save_new_activations(model, torch.full((2, 3), 120.0))


def test_a_model_that_goes_on_or_ends() -> None:
    class Ending(nn.Module):
        def forward(self, x: Tensor, more: bool) -> Tensor:
            y = x + 1
            return y.exp() if more else y

    short, long = (tl.log_forward_pass(Ending(), [torch.rand(2), more]) for more in (False, True))
    with pytest.raises(tl.DivergenceError, match="after add_1_1: exp .* now runs where output ran"):
        short.save_new_activations(Ending(), [torch.rand(2), True])
    with pytest.raises(tl.DivergenceError, match="after add_1_1: output now runs where exp"):
        long.save_new_activations(Ending(), [torch.rand(2), False])


def test_another_model_is_refused() -> None:
    _, x, log = logged()
    with pytest.raises(tl.ArgumentError, match="not the model that was logged: now .*, then "):
        log.save_new_activations(nn.Sequential(nn.Linear(3, 3)), x)
    with pytest.raises(tl.ArgumentError, match="an nn.Module"):
        log.save_new_activations(x, x)


def test_an_error_in_the_model_leaves_the_log() -> None:
    model, _, log = logged()
    before = log["output_1"].activation
    with pytest.raises(RuntimeError, match="mat1"):
        log.save_new_activations(model, torch.rand(2, 8))
    assert log["output_1"].activation is before


def test_other_weights_of_the_same_model() -> None:
    _, x, log = logged()
    other = Deciding().eval()
    log.save_new_activations(other, x)
    assert torch.equal(log["output_1"].activation, other(x).detach())


def test_train_mode_goes_on_unless_told_otherwise() -> None:
    model, x, log = logged(train_mode=True)
    log.save_new_activations(model, x, random_seed=1)
    twin = copy.deepcopy(model)
    log["output_1"].activation.sum().backward()
    torch.manual_seed(1)
    twin(x).sum().backward()
    assert torch.equal(model.fc.weight.grad, twin.fc.weight.grad)
    log.save_new_activations(model, x, train_mode=False)
    assert not log["output_1"].activation.requires_grad
    _, _, plain = logged()
    plain.save_new_activations(model, x, train_mode=True)
    assert plain["output_1"].activation.requires_grad


@pytest.mark.filterwarnings("ignore:the gradient is None, since no backward pass:torchlens.errors.FidelityWarning")
def test_gradients_of_the_new_run() -> None:
    model, x, log = logged(save_gradients=True)
    log.log_backward(log[-1].activation.sum())
    log.save_new_activations(model, x * 2, random_seed=1)
    assert log["fc:1"].gradient is None
    log.log_backward(log[-1].activation.sum())
    assert len(log.backward_passes) == 1 and log["fc:1"].gradient is not None


def test_other_layers_of_the_same_graph() -> None:
    model, x, log = logged(layers_to_save=["exp"])
    assert log.op_labels == ["exp_1_7"]
    log.save_new_activations(model, x * 2)
    assert log.op_labels == ["exp_1_7"]
    log.save_new_activations(model, x, layers_to_save=["fc", "cos"])
    assert log.op_labels == ["linear_1_1:1", "linear_1_1:2", "cos_1_8"]
    assert all(op.activation is not None for op in log)
    with pytest.raises(tl.LayerNotFoundError):
        log.save_new_activations(model, x, layers_to_save=["conv"])
    assert log.op_labels == ["linear_1_1:1", "linear_1_1:2", "cos_1_8"]


def test_a_log_of_a_submodule_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), nn.ReLU())
    x = torch.rand(2, 3)
    log = tl.log_forward_pass(model, x, module="1", save_gradients=True)
    log.save_new_activations(model, x * 2)
    assert torch.equal(log["output_1"].activation, model[1](model[0](x * 2)))
    log.log_backward(log["output_1"].activation.sum())
    assert torch.allclose(log["input_1"].gradient, log["tanh"].gradient * (1 - log["tanh"].activation.square()))

"""`module=` logs one call of one submodule, with what the model gives it; the rest of the model runs plainly."""

from __future__ import annotations

import pytest
import torch
from tests.models import Recursive
from torch import Tensor, nn

import torchlens as tl


class Core(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor, *, gain: float = 1.0) -> tuple[Tensor, Tensor]:
        self.count += 1
        y = torch.relu(self.fc(x)) * gain
        return y, y.sum()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.core, self.unused = nn.Linear(2, 3), Core(), nn.ReLU()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        x = self.stem(x) + torch.rand(3)
        x, _ = self.core(x, gain=2.0)
        x = x.add_(1)
        return self.core(x)[0]


def log_of(model: Model, module: str, **arguments: object) -> tl.ModelLog:
    return tl.log_forward_pass(model, torch.ones(1, 2), module=module, random_seed=0, **arguments)


@pytest.mark.parametrize("call", ["core:1", "core:2"])
def test_one_call_alone(call: str) -> None:
    model = Model()
    whole = tl.log_forward_pass(model, torch.ones(1, 2), random_seed=0)
    model.core.count.zero_()
    log = log_of(model, call)
    assert log.model_name == "Core" and log.random_seed_used == 0
    assert log.module_addresses == ["fc"] and len(log.output_layers) == 2
    inside = whole.modules[call].layers
    same = [op for op in log if op.func_name not in (None, "__iadd__", "add_")]
    assert [op.layer_type for op in same] == [whole[label].layer_type for label in inside if "buffer" not in label][
        -len(same) :
    ]
    for op in same:
        twin = next(w for w in map(whole.__getitem__, inside) if w.func_name == op.func_name)
        assert torch.equal(op.activation, twin.activation)
    assert log.validate()


def test_the_model_runs_once_and_is_left_as_it_was() -> None:
    model = Model()
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    log_of(model, "core:2")
    assert model.runs == 1 and model.core.count == 2
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    assert not model.core._forward_hooks


def test_what_the_model_does_later_does_not_change_the_log() -> None:
    log = log_of(Model(), "core:1")
    product = log[log.output_layers[0]].parent_layers[0]
    assert torch.equal(log[log.output_layers[0]].activation, log[product].activation)


def test_several_calls_are_said() -> None:
    with pytest.warns(tl.FidelityWarning, match="called 2 times"):
        log = log_of(Model(), "core")
    assert "first call" in log.warnings[0]


def test_metadata() -> None:
    model = Model()
    assert tl.get_model_metadata(model, torch.ones(1, 2), module="stem").num_tensors_saved == 0
    assert log_of(model, "stem").layer_labels == ["input_1_0", "linear_1_1", "output_1_2"]


def test_a_recursive_module_is_one_call() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Recursive()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x, 2)

    log = tl.log_forward_pass(Outer(), torch.rand(2, 3), module="inner")
    assert not log.warnings and log.modules["self"].num_passes == 3


def test_addresses_that_are_wrong() -> None:
    model = Model()
    with pytest.raises(tl.LayerNotFoundError, match="did you mean 'core'"):
        log_of(model, "kore")
    with pytest.raises(tl.ArgumentError, match="core:2"):
        log_of(model, "core:x")
    assert model.runs == 0
    with pytest.raises(tl.LayerNotFoundError, match="never"):
        log_of(model, "unused")
    with pytest.raises(tl.LayerNotFoundError, match="only 2 times"):
        log_of(model, "core:3")


def test_errors_are_the_models_own() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(Breaks(), torch.ones(1, 2), module="second")
    assert caught.value.partial_log.model_name == "Linear"  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(Breaks(), torch.ones(1, 3), module="second")
    assert not hasattr(caught.value, "partial_log")

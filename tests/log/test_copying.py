"""Logs and what they are made of can be copied; they are not pickled, and say so."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for _ in range(2):
            x = self.norm(self.fc(x).relu_())
            x[0] = 0
        if x.sum() > 0:
            x = torch.cat([x, x])
        return {"x": x, "sum": x.sum()}


def everything(folder: Path) -> dict[str, Any]:
    """One of each kind of thing that users hold."""
    model, x = Net(), torch.rand(4, 3)
    log = tl.log_forward_pass(model, x)
    with_gradients = tl.log_forward_pass(model, x, save_gradients=True)
    with_gradients.log_backward(with_gradients[-1].activation.sum())
    tl.save(log, folder / "log")
    recording = tl.fastlog.record(model, x, keep_op=lambda op: True)
    connected = tl.fastlog.record(model, x, keep_op="relu", train_mode=True)
    return {
        "log": log,
        "a log with gradients": with_gradients,
        "a log in train mode": tl.log_forward_pass(model, x, train_mode=True),
        "a log of some layers": tl.log_forward_pass(model, x, layers_to_save=["relu"]),
        "a loaded log": tl.load(folder / "log"),
        "a lazily loaded log": tl.load(folder / "log", lazy=True),
        "a log with everything": tl.log_forward_pass(
            model, x, check_completeness=True, activation_postfunc=lambda t: t.sum(), random_seed=1
        ),
        "a layer": log["relu_1"],
        "a pass of a layer": log[3],
        "a module": log.modules["fc"],
        "a parameter": next(iter(log.params)),
        "a buffer": next(iter(log.buffers)),
        "modules": log.modules,
        "conditions": log.conditionals,
        "a report": log.validate(),
        "completeness": tl.log_forward_pass(model, x, check_completeness=True).completeness,
        "a recording": recording,
        "a connected recording": connected,
        "a record": recording[0],
        "a context": recording[1].context,
        "a dry run": tl.fastlog.dry_run(model, x, keep_op="relu"),
    }


NAMES = ["log", "a log with gradients", "a log in train mode", "a log of some layers", "a loaded log"]
NAMES += ["a lazily loaded log", "a log with everything", "a layer", "a pass of a layer", "a module", "a parameter"]
NAMES += ["a buffer", "modules", "conditions", "a report", "completeness", "a recording", "a connected recording"]
NAMES += ["a record", "a context", "a dry run"]


def test_names(tmp_path: Path) -> None:
    assert list(everything(tmp_path)) == NAMES


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_says_the_same(name: str, how: Callable[[Any], Any], tmp_path: Path) -> None:
    thing = everything(tmp_path)[name]
    assert repr(how(thing)) == repr(thing)


def test_a_deep_copy_is_independent() -> None:
    model, x = Net(), torch.rand(4, 3)
    log = tl.log_forward_pass(model, x, check_completeness=True)
    twin = copy.deepcopy(log)
    assert twin.validate() and twin.completeness
    assert [op.label for op in twin] == [op.label for op in log]
    for one, other in zip(log, twin, strict=True):
        assert one.activation is not other.activation and torch.equal(one.activation, other.activation)
    before = log[1].activation.clone()
    twin[1].activation.zero_()
    twin.save_new_activations(model, torch.rand(4, 3) + 1)
    assert torch.equal(log[1].activation, before) and log.validate()
    assert set(twin.replay()) == {"x", "sum"}
    del log
    assert twin.validate() and "relu_1_2" in str(twin)


def test_a_deep_copy_of_a_log_with_gradients_has_those_that_came() -> None:
    log = tl.log_forward_pass(Net(), torch.rand(4, 3), save_gradients=True)
    log[-1].activation.sum().backward(retain_graph=True)
    twin = copy.deepcopy(log)
    assert torch.equal(twin["relu_1:1"].gradient, log["relu_1:1"].gradient)
    log[-1].activation.sum().backward()
    assert len(log["relu_1:1"].gradients) == 2 and len(twin["relu_1:1"].gradients) == 1


def test_a_deep_copy_of_a_log_in_train_mode_is_connected_to_the_same_graph() -> None:
    model = Net()
    log = copy.deepcopy(tl.log_forward_pass(model, torch.rand(4, 3), train_mode=True))
    log["relu_1:2"].activation.sum().backward()
    assert model.fc.weight.grad is not None


@pytest.mark.parametrize("name", ["log", "a log with gradients", "a lazily loaded log", "a layer", "a module"])
def test_a_log_is_not_pickled_and_says_what_to_do(name: str, tmp_path: Path) -> None:
    with pytest.raises(tl.BundleError, match=r"tl\.save\(log, path\)"):
        pickle.dumps(everything(tmp_path)[name])


def test_a_recording_is_not_pickled_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(tl.BundleError, match="save_to=folder"):
        pickle.dumps(everything(tmp_path)["a recording"])


def test_a_seed_can_be_copied_and_pickled() -> None:
    seed = tl.log_forward_pass(Net(), torch.rand(4, 3)).random_seed_used
    for again in (copy.deepcopy(seed), pickle.loads(pickle.dumps(seed))):
        assert again == seed and again.states.keys() == seed.states.keys()

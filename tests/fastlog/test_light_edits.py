"""Interventions on the light path and where single values are taken."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl

E = tl.edits
X = torch.rand(4, 5)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2))


def hooked(model: Any, module: nn.Module, change: Any) -> Tensor:
    handle = module.register_forward_hook(lambda m, a, result: change(result))
    try:
        return model(X)  # type: ignore[no-any-return]
    finally:
        handle.remove()


@torch.no_grad()
def test_a_recorder_edits_every_pass_as_a_hook_would(model: Any) -> None:
    with tl.fastlog.Recorder(model, keep_module="1", interventions={"0": E.scale(2), nn.ReLU: E.add(1.0)}) as recorder:
        outputs = [recorder.log(X), model(X)]
    expected = model[2](torch.relu(model[0](X) * 2) + 1)
    assert all(output.equal(expected) for output in outputs)
    assert recorder.recording.by_pass[1]["1"].activation.equal(torch.relu(model[0](X) * 2) + 1)
    assert model(X).equal(model[2](model[1](model[0](X))))


@torch.no_grad()
def test_one_pass_of_several(model: Any) -> None:
    edit = {"0": lambda tensor, ctx: tensor * (ctx.pass_index == 1)}
    with tl.fastlog.Recorder(model, keep_op="relu", interventions=edit) as recorder:
        outputs = [recorder.log(X) for _ in range(3)]
    assert outputs[0].equal(outputs[2]) and not outputs[0].equal(outputs[1])
    assert outputs[1].equal(model(X)) and outputs[0].equal(hooked(model, model[0], torch.zeros_like))


def test_what_never_happens_is_an_error(model: Any) -> None:
    recorder = tl.fastlog.Recorder(model, keep_op="relu", interventions={"0:2": E.zero()})
    with pytest.raises(tl.LayerNotFoundError, match="never reached"), recorder:
        recorder.log(X)
    for site, edit, said in (
        (("0", "1"), E.zero(), "not edges"),
        ("0.weight", E.zero(), "parameters"),
        ("input_1_0", E.zero(), "inputs"),
        ("relu_1_2:3", E.zero(), "whole graph"),
        (-1, E.zero(), "whole graph"),
        ("relu", E.swap(torch.tanh), "arguments"),
        ("relu", E.patch(tl.log_forward_pass(model, X)), "numbers operations"),
    ):
        with pytest.raises(tl.ArgumentError, match=f"{said}.*fastlog.record"):
            tl.fastlog.Recorder(model, keep_op="relu", interventions={site: edit})
    with pytest.raises(tl.LayerNotFoundError, match="no such module"):
        tl.fastlog.Recorder(model, keep_op="relu", interventions={nn.Conv2d: E.zero()})


@pytest.mark.filterwarnings("ignore")
def test_an_edit_that_raises_leaves_the_recorder_whole(model: Any) -> None:
    recorder = tl.fastlog.Recorder(model, keep_op="relu", interventions={"0": lambda t: t[:1]})
    with recorder, pytest.raises(tl.ArgumentError, match="allow_change"):
        recorder.log(X)
    assert "forward" not in vars(model[0])


@torch.no_grad()
def test_record_and_pluck(model: Any) -> None:
    sites = {"relu_1_2": E.scale(2), "0.bias": E.zero()}
    whole = tl.log_forward_pass(model, X, interventions=sites)
    recording = tl.fastlog.record(model, X, keep_op=["linear", "relu"], interventions=sites)
    assert recording["linear_2_3"].activation.equal(whole["2"].activation)
    assert recording["relu_1_2"].activation.equal(whole["relu_1_2"].activation)
    assert tl.pluck(model, X, "2", interventions=sites).equal(whole["2"].activation)
    with pytest.raises(tl.LayerNotFoundError):
        tl.pluck(model, X, "2", interventions={"conv": E.zero()})


# ---- operations -----------------------------------------------------------------------------------------------


class Operations(nn.Module):
    """In place, discarded, a view, returned unchanged, several results."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x) * 2
        y.add_(1)
        first, second = y.split(2)
        z = torch.dropout(first, 0.5, False) - second.t().t()
        return torch.tanh(z) + y[0].sum() + y.topk(2).values.sum()


@pytest.mark.parametrize(
    "site",
    ["relu", "mul", "add_1_3", "split", "dropout", "sub", "tanh", "getitem", "topk", 5, lambda op: op.func_name == "t"],
    ids=lambda site: "function" if callable(site) else str(site),
)
@torch.no_grad()
def test_a_recorder_edits_operations_as_a_log_does(site: Any) -> None:
    model, edit = Operations(), lambda tensor: tensor * 2 + 3 if tensor.is_floating_point() else tensor
    logged = tl.log_forward_pass(model, X, interventions={site: edit})
    with tl.fastlog.Recorder(model, interventions={site: edit}) as recorder:
        outputs = [recorder.log(X), recorder.log(X)]
    assert all(output.equal(logged.output) for output in outputs) and not logged.output.equal(model(X))


@torch.no_grad()
def test_what_is_kept_of_an_edited_operation_is_edited(model: Any) -> None:
    with tl.fastlog.Recorder(model, keep_op=["relu", "linear"], interventions={"relu": E.replace(3.0)}) as recorder:
        recorder.log(X)
    assert recorder.recording["relu_1_2"].activation.eq(3).all()
    assert recorder.recording["linear_2_3"].activation.equal(model[2](torch.full((4, 5), 3.0)))


def test_gradients_flow_through_the_edits_of_a_recorder(model: Any) -> None:
    with tl.fastlog.Recorder(model, interventions={"relu": E.scale(2), "0": E.add(1.0)}) as recorder:
        recorder.log(X).sum().backward()
    got, model[0].weight.grad = model[0].weight.grad, None
    model[2](torch.relu(model[0](X) + 1) * 2).sum().backward()
    assert got.equal(model[0].weight.grad)


@torch.no_grad()
def test_an_edit_of_a_recorder_that_changes_nothing_is_told(model: Any) -> None:
    for site in ("0", "relu"):
        recorder = tl.fastlog.Recorder(model, interventions={site: E.scale(1)})
        with pytest.warns(tl.FidelityWarning, match=f"{site}: scale.1. changed no element"), recorder:
            recorder.log(X)


def test_what_an_edit_raises_is_raised_although_the_model_catches_it() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                return torch.relu(x)
            except Exception:
                return x

    recorder = tl.fastlog.Recorder(Model(), interventions={"relu": lambda t: t / (1 // 0)})
    with recorder, pytest.raises(ZeroDivisionError):
        recorder.log(X)


# ---- modules alone --------------------------------------------------------------------------------------------


class Caller(nn.Module):
    """Calls modules in a thread, several times, through a hook, and writes into what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
        self.head = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda: found.append(self.inner(x)))
        thread.start()
        thread.join()
        y = self.inner(found[0])
        z = self.head(y)
        z.mul_(2)
        return z


@torch.no_grad()
def test_modules_are_watched_without_watching_operations() -> None:
    model = Caller()
    with tl.fastlog.Recorder(model, keep_module=["head", "inner.1"], interventions={"inner": E.add(1.0)}) as recorder:
        output = recorder.log(X)
        assert not recorder._tracer._sees_calls
    inner = lambda x: torch.relu(model.inner[0](x)) + 1  # noqa: E731
    assert output.equal(model.head(inner(inner(X))) * 2)
    kept = recorder.recording
    assert kept["head"].activation.equal(model.head(inner(inner(X))))
    assert [record.label for record in kept] == ["inner.1:1", "inner.1:2", "head:1"]
    assert kept["inner.1:2"].context.module_stack == ("self:1", "inner:2", "inner.1:2")


@torch.no_grad()
def test_a_module_that_a_hook_calls_is_inside_the_hooked_one() -> None:
    model = Caller()
    model.head.register_forward_hook(lambda module, args, result: model.inner[1](result))
    with tl.fastlog.Recorder(model, keep_module="inner.1") as recorder:
        recorder.log(X)
    assert recorder.recording[-1].context.module_stack == ("self:1", "head:1", "inner.1:3")

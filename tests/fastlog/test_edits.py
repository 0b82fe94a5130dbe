"""Interventions on the light path and where single values are taken."""

from __future__ import annotations

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
    for site in ("relu_1_2", ("0", "1"), "0.weight"):
        with pytest.raises(tl.ArgumentError, match="what modules return"):
            tl.fastlog.Recorder(model, keep_op="relu", interventions={site: E.zero()})
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

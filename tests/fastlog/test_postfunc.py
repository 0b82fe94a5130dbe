"""What is kept goes through a function first; and a recording can be saved when it is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchlens as tl
from torchlens.fastlog import CaptureSpec, Recorder, load, record

MODEL, X = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval(), torch.rand(2, 3, 8, 8)


@pytest.mark.parametrize(
    "chosen", [{"keep_op": "relu"}, {"keep_op": lambda ctx: ctx.layer_type == "relu"}, {"keep_module": "1"}]
)
def test_what_is_kept_is_what_it_returned(chosen: dict[str, Any]) -> None:
    whole = record(MODEL, X, keep_op="relu")[0].activation
    assert whole is not None
    one = record(MODEL, X, postfunc=tl.reduce.mean(), **chosen)
    with Recorder(MODEL, postfunc=tl.reduce.mean(), **chosen) as recorder:
        recorder.log(X)
    for recording in (one, recorder.recording):
        (kept,) = recording
        assert torch.equal(kept.activation, whole.mean((2, 3)))
        assert kept.shape == (2, 4, 6, 6)  # as the model has it


def test_in_a_spec_with_another_type() -> None:
    spec = CaptureSpec(postfunc=tl.reduce.flatten(), dtype=torch.float16)
    (kept,) = record(MODEL, X, keep_op=lambda ctx: spec if ctx.layer_type == "relu" else False)
    assert kept.activation is not None and kept.activation.shape == (2, 144) and kept.activation.dtype == torch.float16


def test_gradients_flow_through_it() -> None:
    model = nn.Linear(3, 3)
    (kept,) = record(model, torch.rand(2, 3), keep_op="linear", postfunc=lambda value: value.sum(1), train_mode=True)
    kept.activation.sum().backward()  # type: ignore[union-attr]
    assert model.bias.grad is not None and model.bias.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_log_holds_no_values_of_another_shape() -> None:
    recording = record(MODEL, X, keep_op=["relu", "conv2d_1"], postfunc=tl.reduce.mean())
    assert all(not op.has_saved_activation for op in recording.to_log().all_ops)


def test_its_own_calls_are_none_of_the_models() -> None:
    recording = record(MODEL, X, keep_op=True, postfunc=lambda value: torch.relu(value).exp())
    assert [kept.label for kept in recording] == [kept.label for kept in record(MODEL, X, keep_op=True)]


def test_what_is_no_postfunc() -> None:
    with pytest.raises(tl.ArgumentError, match="postfunc must be a function of a tensor"):
        record(MODEL, X, keep_op="relu", postfunc=3)  # type: ignore[arg-type]
    with pytest.raises(tl.ArgumentError, match="postfunc must return a tensor, not int"):
        record(MODEL, X, keep_op="relu", postfunc=len)  # type: ignore[arg-type]


def test_a_recording_is_saved_when_it_is_over(tmp_path: Path) -> None:
    with Recorder(MODEL, keep_op=["relu", "conv"], postfunc=tl.reduce.max()) as recorder:
        for number in range(3):
            recorder.log(X + number, sample_id=f"s{number}")
    recorder.recording.save(tmp_path / "saved")
    read = load(tmp_path / "saved")
    assert repr(read) == repr(recorder.recording) and read.num_passes == 3
    for one, other in zip(read, recorder.recording, strict=True):
        assert one.label == other.label and one.sample_id == other.sample_id
        assert torch.equal(one.activation, other.activation)
    read.save(tmp_path / "again")  # what was read can be written, too
    assert torch.equal(load(tmp_path / "again")[4].activation, recorder.recording[4].activation)


def test_what_can_not_be_saved_leaves_nothing(tmp_path: Path) -> None:
    recording = record(MODEL, X, keep_op="relu", train_mode=True)
    with pytest.raises(tl.ArgumentError, match="is to stay connected to autograd"):
        recording.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()

"""What is kept is what a full log saves, on every tiny model, whatever happens to the tensors later."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models import Case
from tests.test_oracle import Run, content, every_run, plain_run, prepared, surroundings, tensors_in

import torchlens as tl
from torchlens.capture.naming import layer_type_of
from torchlens.fastlog import Recorder, Recording, record

#: What a full log adds so that its graph is right: changes through other tensors, tensors that nobody
#: is seen to make, tensors that hold others.
SYNTHETIC = ("alias_update", "implicit_view", "wrap")


#: What they hold is whatever was in the memory before.
UNINITIALIZED = ("empty", "emptylike", "resize")


def seen(layer_type: str, tensor: Any) -> tuple[str, Any]:
    return layer_type, tensor.shape if layer_type in UNINITIALIZED else content(tensor)


def full(case: Case, mode: str, without: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    plain_run(case, mode)  # torch prepares a few things when they are first needed
    run = prepared(case, mode)
    with surroundings(case, mode):
        recording = tl.log_forward_pass(run.model, run.args, run.kwargs)._trace
    values = [value for value in recording.values if value.role not in ("output", "source")]
    values = [v for v in values if v.call < 0 or recording.calls[v.call].function.name not in without]
    return [seen(layer_type_of(value, recording.calls), value.saved) for value in values]


def kept(recording: Recording) -> list[tuple[str, Any]]:
    return [seen(record.context.layer_type, record.activation) for record in recording]


def overwrite(run: Run) -> None:
    """What a user may do afterwards."""
    for tensor in tensors_in([run.output, run.inputs]):
        if tensor.is_floating_point() and tensor.layout.__str__() == "torch.strided" and not tensor.is_nested:
            tensor.detach().zero_()


#: Inside torch.vmap values exist only for a while; lazy modules begin with memory that holds whatever was there.
INCOMPARABLE = ("vmap_inside", "LazyModules")
RUNS = [run for run in every_run.args[1] if run.values[0].name not in INCOMPARABLE]
comparable_runs = pytest.mark.parametrize(("case", "mode"), RUNS)


@comparable_runs
def test_record_keeps_what_a_log_saves(case: Case, mode: str) -> None:
    expected = full(case, mode)
    run = prepared(case, mode)
    with surroundings(case, mode):
        recording = record(run.model, run.args, run.kwargs, keep_op=True)
    assert kept(recording) == expected


@comparable_runs
def test_recorder_keeps_what_a_log_saves(case: Case, mode: str) -> None:
    expected = full(case, mode, without=SYNTHETIC)
    run = prepared(case, mode)
    with surroundings(case, mode), Recorder(run.model, keep_op=True) as recorder:
        run.output = recorder.log(run.args, run.kwargs)
    assert kept(recorder.recording) == expected
    assert [*map(content, tensors_in(run.output))] == [*map(content, tensors_in(plain_run(case, mode).output))]
    with surroundings(case, mode):
        overwrite(run)
    assert kept(recorder.recording) == expected

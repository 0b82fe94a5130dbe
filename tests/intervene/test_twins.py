"""Edits against references that know nothing of the library: hooks, and models edited by hand, for every tiny model."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.capture.test_tracer import told
from tests.models import Case, probed
from tests.test_oracle import RUNS, Run, assert_same, prepared, surroundings
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import torchlens as tl
from torchlens.capture.functions import ALIAS_UPDATE, EDIT, IMPLICIT_VIEW, UNEDITED, UNWRAP, WRAP

SYNTHETIC = {ALIAS_UPDATE, IMPLICIT_VIEW, WRAP, UNWRAP, EDIT, UNEDITED}


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def edited_run(case: Case, mode: str, interventions: Any, base: tl.ModelLog | None = None) -> Run:
    """A run with interventions; a hook catches what the model returned."""
    run = prepared(case, mode)
    handle = run.model.register_forward_hook(lambda module, args, result: setattr(run, "output", result))
    try:
        with surroundings(case, mode), quiet():
            run.log = tl.log_forward_pass(run.model, run.args, run.kwargs, interventions=interventions, base=base)
    finally:
        handle.remove()
    return run


def made_by_calls(log: tl.ModelLog) -> list[tl.OpLog]:
    """The operations of a log that calls of the model made, where Python sees them."""
    return [op for op in log if op._value.role == "op" and op._call is not None and op._call.function not in SYNTHETIC]


def what_happened(log: tl.ModelLog) -> dict[str, Any]:
    """Everything in a trace but from where the model was called."""
    found = told(log._trace)
    return found | {"modules": [module | {"site": None} for module in found["modules"]]}


WITH_MODULES = [run for run in RUNS if run.values[0].hooks and isinstance(run.values[0].build, type)]
REPEATABLE = [run for run in RUNS if run.values[0].repeatable]


#: Where an edit would not reach the gradients, and what says so while gradients are on.
REFUSED = {
    "vmap_inside": "torch.vmap, where gradients",
    "scripted_function_inside": "TorchScript, where gradients",
    "Checkpointed": "torch.utils.checkpoint",
}


@pytest.mark.parametrize(("case", "mode"), [run for run in REPEATABLE if run.values[1] in ("train", "eval-nograd")])
def test_an_identity_at_every_operation_changes_nothing(case: Case, mode: str) -> None:
    base = edited_run(case, mode, None)
    sites: dict[Any, Any] = {op.label: lambda tensor: tensor for op in made_by_calls(base.log)}
    if case.name == "output_is_the_input":
        assert not sites  # and so there is nothing to edit
        return
    if case.name in REFUSED and mode == "train":
        with pytest.raises(tl.ArgumentError, match=REFUSED[case.name]):
            edited_run(case, mode, sites, base.log)
        return
    run = edited_run(case, mode, sites, base.log)
    assert what_happened(run.log) == what_happened(base.log)
    assert_same(run.output, base.output)


#: Models that go on for ever when what they wait for is zero.
ENDLESS = {"while_loop"}

#: What can't go on with zeros: they have no history to take a gradient of.
STOPS = {("gradient_inside", "sum_1_4")}

#: Places where the model shows a tensor and does not use what it is given for it, or where zeros make no difference:
#: zeroing by hand says nothing about them.
UNHEEDED = {
    "comparisons_and_logic": ["eq_1_5"],
    "overlapping_views": ["zero_1_4"],
    "disjoint_views": ["getitem_1_2", "getitem_2_3"],
    "index_writes": ["mul_1_1", "indexput_1_5", "maskedfill_1_7", "scatter_1_9"],
    "writes_to_a_part_of_its_input": ["zero_1_2"],
    "data_replaced": ["mul_1_2"],
    "data_replaced_then_written": ["mul_1_2"],
    "conditional_operator": ["sum_1_1", "gt_1_2"],
    "indexing": [*[f"getitem_{number}" for number in range(1, 8)], "gather_1", "indexselect_1", "take_1"],
    "selection_and_joining": ["zeros_1_2"],
    "scalars_and_empty_tensors": ["sum_1_3", "cat_1_5"],
    "output_is_none": ["mul_1_1"],
    "condition": ["sum_1_1"],
    "storage_taken": ["add_1_3"],
    "several_outputs": [
        *("chunk_1_1", "chunk_2_2", "splitwithsizes_1_3", "splitwithsizes_2_4", "unbind_1_5", "unbind_2_6"),
        *("topk_1_7", "topk_2_8", "max_1_9", "max_2_10", "sort_2_12"),
    ],
    "Lstm": ["lstm_1_3", "lstm_2_4", "lstm_3_5"],
    "LstmCellLoop": ["lstmcell_1_4:1", "lstmcell_2_5:1", "lstmcell_1_4:2", "lstmcell_2_5:2"],
    "AttentionWithWeights": ["nativemultiheadattention_1_1"],
    "AttentionWithoutWeights": ["nativemultiheadattention_1_1"],
    "AttentionWithMask": ["nativemultiheadattention_1_4"],
    "iteration": ["unbind_1_1", "unbind_2_2", "unbind_3_3"],
    "linear_algebra": ["linalgqr_1_3", "linalgqr_2_4"],
}


@pytest.mark.parametrize(
    ("case", "mode"),
    [run for run in REPEATABLE if run.values[1] == "eval-nograd" and run.values[0].name not in ENDLESS],
)
def test_zeroing_an_operation_is_zeroing_it_by_hand(case: Case, mode: str) -> None:
    """At every place that the models mark; in place where the operation wrote in place."""
    base = edited_run(case, mode, None)
    unheeded = []
    for number, label in enumerate(case.tap_labels(mode)):
        value = base.log[label]._value
        call = base.log._trace.calls[value.call]
        if call.function in SYNTHETIC:
            with pytest.raises(tl.ArgumentError, match="not a call that the model made"):
                edited_run(case, mode, {label: tl.edits.zero()}, base.log)
            continue
        if type(value.saved) is not Tensor:
            with pytest.raises(tl.ArgumentError, match="has class Tensor"):
                edited_run(case, mode, {label: tl.edits.zero()}, base.log)
            continue
        if (case.name, label) in STOPS:
            with pytest.raises(RuntimeError, match="does not require grad"):
                zeroed_by_hand(case, mode, number, in_place=False)
            continue
        with at_most(10):
            twin = zeroed_by_hand(case, mode, number, in_place=bool(call.written))
        if is_same(twin.output, base.output):
            unheeded.append(label)
            continue
        run = edited_run(case, mode, {label: tl.edits.zero()}, base.log)
        assert_same(run.output, twin.output, label)
    assert unheeded == UNHEEDED.get(case.name, [])


def is_same(one: Any, other: Any) -> bool:
    try:
        assert_same(one, other)
    except AssertionError:
        return False
    return True


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """A model may never come to an end with other values."""

    def end(*args: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def zeroed_by_hand(case: Case, mode: str, number: int, in_place: bool) -> Run:
    seen: list[None] = []

    def zero(tensor: Tensor) -> Tensor | None:
        seen.append(None)
        if len(seen) - 1 != number:
            return None
        return tensor.zero_() if in_place else torch.zeros_like(tensor)

    run = prepared(case, mode)
    with surroundings(case, mode), probed(zero):
        run.output = run.model(*run.args, **run.kwargs)
    return run


@pytest.mark.parametrize(("case", "mode"), [run for run in WITH_MODULES if run.values[1] in ("eval", "eval-nograd")])
def test_editing_what_a_module_returns_is_a_hook_that_returns_it(case: Case, mode: str) -> None:
    trace = edited_run(case, mode, None).log._trace
    for number, info in enumerate(trace.modules[1:], start=1):  # a hook on the model itself catches what it returns
        returned = {len(call.exited) for call in trace.module_calls if call.module == number}
        site = f"self.{info.address}"
        if not returned or returned == {0}:
            with pytest.raises(tl.LayerNotFoundError, match="never|returned no tensor"):
                edited_run(case, mode, {site: halved})
        elif case.name in REFUSED and mode == "eval":
            with pytest.raises(tl.ArgumentError, match=REFUSED[case.name]):
                edited_run(case, mode, {site: halved})
        else:
            for position in range(max(returned)):
                with at_most(10):
                    twin = hooked(case, mode, info.address, position)
                one = site if max(returned) == 1 else f"{site}[{position}]"
                assert_same(edited_run(case, mode, {one: halved}).output, twin.output, one)


def hooked(case: Case, mode: str, address: str, position: int) -> Run:
    """A run with a hook that halves one of the tensors that a module returns."""

    def hook(module: Any, args: Any, result: Any) -> Any:
        seen: list[Tensor] = []

        def one_halved(part: Any) -> Any:
            if isinstance(part, nn.utils.rnn.PackedSequence):  # with torch 2.4 not taken apart by `tree_map`
                return type(part)(*map(one_halved, part))
            if not isinstance(part, Tensor):
                return part
            seen.append(part)
            return halved(part) if len(seen) - 1 == position else part

        return tree_map(one_halved, result)

    run = prepared(case, mode)
    handle = run.model.get_submodule(address).register_forward_hook(hook)
    try:
        with surroundings(case, mode):
            run.output = run.model(*run.args, **run.kwargs)
    finally:
        handle.remove()
    return run


def halved(tensor: Tensor) -> Tensor:
    return tensor * 0.5 if tensor.is_floating_point() else tensor  # such as the lengths of sequences

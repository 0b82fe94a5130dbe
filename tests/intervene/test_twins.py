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
from torch import Tensor

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


@pytest.mark.parametrize(("case", "mode"), [run for run in REPEATABLE if run.values[1] in ("train", "eval-nograd")])
def test_an_identity_at_every_operation_changes_nothing(case: Case, mode: str) -> None:
    base = edited_run(case, mode, None)
    sites: dict[Any, Any] = {op.label: lambda tensor: tensor for op in made_by_calls(base.log)}
    if not sites:
        return
    run = edited_run(case, mode, sites, base.log)
    assert what_happened(run.log) == what_happened(base.log)
    assert_same(run.output, base.output)


#: Models that go on for ever when what they wait for is zero.
ENDLESS = {"while_loop"}


@pytest.mark.parametrize(
    ("case", "mode"),
    [run for run in REPEATABLE if run.values[1] == "eval-nograd" and run.values[0].name not in ENDLESS],
)
def test_zeroing_an_operation_is_zeroing_it_by_hand(case: Case, mode: str) -> None:
    """At every place that the models mark; in place where the operation wrote in place."""
    base = edited_run(case, mode, None)
    for number, label in enumerate(case.tap_labels(mode)):
        value = base.log[label]._value
        call = base.log._trace.calls[value.call] if value.call >= 0 else None
        if value.role != "op" or call is None or call.function in SYNTHETIC or value.position is not None:
            continue
        try:
            with at_most(10):
                twin = zeroed_by_hand(case, mode, number, in_place=bool(call.written))
        except Exception:
            continue  # the model can't go on with zeros there
        if type(value.saved) is not Tensor or is_same(twin.output, base.output):
            continue  # of a class of its own, or the model takes no notice of what is put there
        run = edited_run(case, mode, {label: tl.edits.zero()}, base.log)
        assert_same(run.output, twin.output, label)


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
    base = edited_run(case, mode, None)
    for address, _ in prepared(case, mode).model.named_modules():
        calls = [
            call for call in base.log._trace.module_calls if base.log._trace.modules[call.module].address == address
        ]
        if not address or not calls or any(len(call.exited) != 1 for call in calls):
            continue
        try:
            with at_most(10):
                twin = hooked(case, mode, address)
        except Exception:
            continue  # the model can't go on with that
        run = edited_run(case, mode, {f"self.{address}": lambda tensor: tensor * 0.5})
        assert_same(run.output, twin.output, address)


def hooked(case: Case, mode: str, address: str) -> Run:
    run = prepared(case, mode)
    handle = run.model.get_submodule(address).register_forward_hook(lambda m, a, result: halved(result))
    try:
        with surroundings(case, mode):
            run.output = run.model(*run.args, **run.kwargs)
    finally:
        handle.remove()
    return run


def halved(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result * 0.5
    return type(result)(map(halved, result)) if isinstance(result, (tuple, list)) else result

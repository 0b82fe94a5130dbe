"""Ctrl-C at any moment, a crash, a fork: nothing stays changed. `make interrupts` is the long form."""

from __future__ import annotations

import ast
import gc
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.interrupts import Model
from tests.moments import interrupted_everywhere
from tests.state import model_state, process_state
from torch import Tensor, nn

import torchlens as tl
from torchlens._torch import dispatch_stack, mode_stack, push_dispatch_mode, push_mode, put_modes
from torchlens.capture import changes
from torchlens.capture.buffers import BuffersKept
from torchlens.capture.changes import Changes, Replaced, between
from torchlens.capture.modules import copied_model
from torchlens.capture.origins import Origins
from torchlens.extraction.run import quietly
from torchlens.replay.call import recompute

SOURCE = Path(tl.__file__).parent


def test_interrupts_at_random_moments() -> None:
    command = [sys.executable, "-m", "tests.interrupts", "--interrupts", "60", "--seed", str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 interrupts, 0 of which" in done.stdout


class Owner:
    def method(self) -> str:
        return "original"


class Heir(Owner):
    pass


def stand_in(original: Any, switch: Any) -> Any:
    return lambda self: f"instead of {original(self)}" if switch.on else original(self)


@pytest.mark.parametrize("owner", [Owner, Heir])
def test_an_attribute_is_put_back_or_taken_away(owner: type) -> None:
    before, run = dict(vars(owner)), Changes([Replaced(owner, "method", stand_in)])
    assert between(run.begin, lambda: owner().method(), run.end) == "instead of original"
    assert dict(vars(owner)) == before


def test_overlapping_runs_share_a_change() -> None:
    one, other = Changes([Replaced(Owner, "method", stand_in)]), Changes([Replaced(Owner, "method", stand_in)])
    one.begin()
    other.begin()
    assert Owner().method() == "instead of original"
    one.end()
    assert Owner().method() == "instead of original"
    other.end()
    assert Owner().method() == "original"


@pytest.mark.parametrize("when", ["begin", "body", "end"])
def test_an_interrupt_at_any_call(when: str) -> None:
    """Wherever the interrupt falls, the second time undoes what the first has not."""
    run, interrupted = Changes([Replaced(Owner, "method", stand_in)]), []

    def at(place: str) -> None:
        if place == when and not interrupted:
            interrupted.append(place)
            raise KeyboardInterrupt

    def begin(frame: Any) -> None:
        run.begin(frame)
        at("begin")

    def end() -> None:
        at("end")
        run.end()

    with pytest.raises(KeyboardInterrupt):
        between(begin, lambda: at("body"), end)
    assert Owner().method() == "original"


def test_the_next_run_undoes_what_a_crash_has_left() -> None:
    def crash() -> None:
        Changes([Replaced(Owner, "method", stand_in)]).begin(sys._getframe())

    crash()
    assert Owner().method() == "instead of original"
    tl.log_forward_pass(nn.ReLU(), torch.rand(2))
    assert Owner().method() == "original"
    assert not changes._made


def test_a_run_that_goes_on_is_not_taken_for_a_crash() -> None:
    def inside() -> str:
        tl.log_forward_pass(nn.ReLU(), torch.rand(2))
        return Owner().method()

    run = Changes([Replaced(Owner, "method", stand_in)])
    assert between(run.begin, inside, run.end) == "instead of original"


class Forks(nn.Module):
    """Forks in forward; the child says what it finds."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        child = context.Process(target=in_the_child, args=(there, self))
        child.start()
        self.found = here.recv()
        child.join()
        return x * 2


def in_the_child(pipe: Any, model: Forks) -> None:
    state = process_state()
    stand_ins = [name for module in model.modules() for name in vars(module) if name in ("forward", "_call_impl")]
    log = tl.log_forward_pass(model.inner, torch.rand(3, 6))
    pipe.send((state["recursion limit"], state["function modes"], state["changes"], stand_ins, len(log)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_is_clean() -> None:
    model, x = Forks(Model().eval()), torch.rand(3, 6)
    before = process_state(), model_state(model)
    log = tl.log_forward_pass(model, x)
    expected = len(tl.log_forward_pass(model.inner, x))
    assert model.found == (sys.getrecursionlimit(), 0, [], [], expected)
    assert log.layer_labels[-2].startswith("mul")  # the parent goes on
    del model.found
    assert (process_state(), model_state(model)) == before


def calls_of_a_log() -> list[Any]:
    """Recorded calls in every kind of circumstances."""

    class Circumstances(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y = x @ x
            with torch.inference_mode():
                y = y + nn.functional.dropout(x, 0.5)
            return y.float() * 2

    log = tl.log_forward_pass(Circumstances(), torch.rand(3, 3))
    return [call for call in log._trace.calls if call.function.func is not None]


def test_recomputing_a_call_is_interrupted_everywhere() -> None:
    moments = 0
    for call in calls_of_a_log():
        before, generator = process_state(), torch.get_rng_state()
        for where in interrupted_everywhere(lambda call=call: recompute(call)):
            after = process_state()
            assert {key: after[key] for key in before if after[key] != before[key]} == {}, where
            assert torch.get_rng_state().equal(generator), where
            moments += 1
    assert moments > 100


def test_a_default_type_is_put_back_everywhere() -> None:
    class Doubles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.set_default_dtype(torch.float64)
            y = torch.ones(3)
            torch.set_default_dtype(torch.float32)
            return x + y

    call = tl.log_forward_pass(Doubles(), torch.rand(3))._trace.calls[0]
    for where in interrupted_everywhere(lambda: recompute(call)):
        assert torch.get_default_dtype() is torch.float32, where


def test_a_quiet_forward_is_interrupted_everywhere() -> None:
    before, generator = process_state(), torch.get_rng_state()
    for where in interrupted_everywhere(lambda: quietly(lambda: torch.rand(2))):
        after = process_state()
        assert {key: after[key] for key in before if after[key] != before[key]} == {}, where
        assert torch.get_rng_state().equal(generator), where


class Maps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(torch.sin)(x)


def left_open(work: Callable[[], Any], stride: int = 1) -> set[str]:
    """The moments at which an interrupt leaves a level of a transform open."""
    level, moments = torch._C._functorch.get_dynamic_layer_stack_depth, set()

    def plainly() -> None:
        try:
            work()
        except RuntimeError as error:  # closing a level that was not open yet
            raise error.__context__ or error from None

    for where in interrupted_everywhere(plainly, stride):
        if level():
            gc.collect()  # generators that were left suspended close theirs
        if level():
            moments.add(where)
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(0)
    return moments


def test_a_transform_is_left_open_only_where_a_plain_run_leaves_it_open() -> None:
    model, x = Maps(), torch.rand(2, 2)
    model(x)
    tl.log_forward_pass(model, x)
    plain, logged = left_open(lambda: model(x)), left_open(lambda: tl.log_forward_pass(model, x), stride=3)
    assert plain
    assert logged <= plain


class Derives(nn.Module):
    """Calls a function of torch that is written in Python, and asks a mode what to do while that is off the stack."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.autograd.grad((x * x).sum(), x)[0]


def test_a_mode_that_torch_holds_is_not_put_back_when_the_log_is_over() -> None:
    """Torch takes it off the stack in a generator; one that an interrupt leaves suspended ends when it is freed."""
    model, x = Derives(), torch.rand(2, requires_grad=True)
    tl.log_forward_pass(model, x)
    before, held = process_state(), 0
    gc.collect()
    gc.freeze()  # what is here already need not be searched again and again
    try:
        for where in interrupted_everywhere(lambda: tl.log_forward_pass(model, x)):
            if "contextlib.py" in where:
                gc.collect()
                held += 1
            assert (len(mode_stack()), len(dispatch_stack())) == (0, 0), where
    finally:
        gc.unfreeze()
    assert held > 2
    after = process_state()
    assert {key: after[key] for key in before if after[key] != before[key]} == {}


def test_a_mode_that_was_put_back_after_all_does_nothing_and_is_taken_away() -> None:
    kept: list[Any] = []

    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept.extend([*mode_stack(), *tl.log_forward_pass(nn.ReLU(), x).warnings])
            return torch.func.grad(lambda y: keep_dispatched(y).sin().sum())(x)

    def keep_dispatched(y: Tensor) -> Tensor:
        kept.extend(dispatch_stack())
        return y

    tl.log_forward_pass(Keeps(), torch.rand(2))
    tracer, fallback = kept
    push_mode(tracer)
    push_dispatch_mode(fallback)
    try:
        assert (torch.ones(2) + 1).tolist() == [2, 2]
        log = tl.log_forward_pass(Keeps(), torch.rand(2))
        assert (mode_stack(), dispatch_stack()) == ([], [])
    finally:
        put_modes([], [])
    assert log.validate()


SMALL = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2))
WITHOUT_GRAD: dict[str, Callable[[tl.ModelLog], Any]] = {
    "a copy of the model": lambda log: copied_model(SMALL),
    "first_nan": lambda log: log.first_nan(),
    "find": lambda log: log.find(torch.zeros(2, 2)),
    "the print of an operation": lambda log: str(log["relu"]),
    "buffers put back": lambda log: buffers_put_back(SMALL),
}


def buffers_put_back(model: nn.Module) -> None:
    kept = BuffersKept(model)
    between(lambda frame: kept.make(), lambda: None, kept.undo)


@pytest.mark.parametrize("what", WITHOUT_GRAD)
def test_grad_mode_is_put_back_everywhere(what: str) -> None:
    log = tl.log_forward_pass(SMALL, torch.rand(2, 2))
    WITHOUT_GRAD[what](log)
    for where in interrupted_everywhere(lambda: WITHOUT_GRAD[what](log), stride=3):
        assert torch.is_grad_enabled() and torch._C._is_torch_function_enabled(), where


def test_no_context_that_torch_writes_in_python_sets_grad_mode() -> None:
    """An interrupt in its beginning or end would leave it changed: `grad_scope` and `call_with_grad` do without."""
    forbidden = {"no_grad", "enable_grad", "inference_mode", "fork_rng"}
    called = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.func.attr}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in forbidden
    ]
    assert called == []


def test_collections_are_noticed_only_while_a_capture_runs() -> None:
    noticed: list[int] = []

    class Counts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            noticed.append(len(gc.callbacks))
            return x * 2

    before, others = list(gc.callbacks), len(gc.callbacks)
    tl.log_forward_pass(Counts(), torch.rand(2))
    assert (noticed, gc.callbacks) == ([others + 1], before)
    assert any(isinstance(change, Origins) for change in made_meanwhile())


def made_meanwhile() -> list[Any]:
    found: list[Any] = []

    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found.extend(changes.made())
            return x * 2

    tl.log_forward_pass(Looks(), torch.rand(2))
    return found

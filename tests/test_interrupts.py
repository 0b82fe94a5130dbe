"""Ctrl-C at any moment, a crash, a fork: nothing stays changed. `make interrupts` is the long form."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from tests.interrupts import Model
from tests.state import model_state, process_state
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture import changes
from torchlens.capture.changes import Changes, Replaced, between


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

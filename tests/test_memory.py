"""Keeping only metadata takes no more memory than the forward pass itself; logs are freed when they are dropped."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn

import torchlens as tl

SCRIPT = """
import re, torch, torchlens as tl
from torch import nn

def high_water():
    return int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

model = nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(1000, 1000), nn.ReLU(inplace=True), nn.Tanh())])
x = torch.rand(4000, 1000)
model(x[:2]), tl.get_model_metadata(model, x[:2])
before = high_water()
with torch.no_grad():
    {run}
print(high_water() - before)
"""


def peak(run: str) -> int:
    """Kilobytes by which the resident memory of a new process grows over a run.

    Memory is given back as soon as it is freed: the allocator's own thoughts about that are not measured.
    """
    command = [sys.executable, "-c", SCRIPT.format(run=run)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_metadata_takes_the_memory_of_a_plain_forward() -> None:
    one_tensor = 4000 * 1000 * 4 // 1024
    plain = peak("model(x)")
    assert plain < 3 * one_tensor
    assert peak("log = tl.get_model_metadata(model, x)") < 1.05 * plain
    assert peak("log = tl.log_forward_pass(model, x)") > 50 * one_tensor


def test_a_log_is_freed_when_it_is_dropped() -> None:
    """Without the garbage collector: there are no reference cycles."""
    model, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True)), torch.rand(4, 3)
    gc.collect()
    gc.disable()
    try:
        log = tl.log_forward_pass(model, x)
        str(log), tl.lint(log), log.summary(), log.conditionals
        kept = [weakref.ref(op.activation) for op in log]
        del log
        assert [reference for reference in kept if reference() is not None] == []
    finally:
        gc.enable()


# ---- training ---------------------------------------------------------------------------------------------------

LOOP = """
import gc, re, torch, torchlens as tl
from torch import nn

def resident():
    return int(re.search("VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])

torch.manual_seed(0)
model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(200, 200), nn.ReLU(inplace=True), nn.Tanh())])
x = torch.rand(500, 200, requires_grad=True)
kept = []

def step():
    log = tl.log_forward_pass(model, x, save_gradients=True)
    log.log_backward(log[-1].activation.square().mean())
    assert log["input_1"].gradient is not None
    model.zero_grad()
    x.grad = None
    {keep}

gc.disable()
for _ in range(20):
    step()
gc.collect()
objects, memory = len(gc.get_objects()), resident()
for _ in range(200):
    step()
garbage = gc.collect()
print(len(gc.get_objects()) - objects, resident() - memory, garbage, len(x._backward_hooks or ()))
"""


def growth(keep: str) -> list[int]:
    """Growth of Python objects, of kilobytes, of garbage and of hooks over 200 steps, without the garbage collector."""
    command = [sys.executable, "-c", LOOP.format(keep=keep)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_logging_and_differentiating_over_and_over_takes_no_more_memory() -> None:
    few_logs = 6 * 3 * 8 * 500 * 200 * 4 // 1024  # three, each with activations and gradients, in kilobytes
    objects, memory, garbage, hooks = growth("")
    assert objects < 100 and garbage < 100 and hooks == 0
    assert memory < few_logs
    # With the last three logs kept, each step lets the oldest go, its hooks too.
    objects, memory, garbage, hooks = growth("kept.append(log); del kept[:-3]")
    assert objects < 100 and garbage < 100 and hooks == 3
    assert memory < few_logs


def test_a_log_with_gradients_is_freed_when_it_is_dropped() -> None:
    """Without the garbage collector: the graph does not keep the log, nor the log the graph."""
    model, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True)), torch.rand(4, 3)
    gc.collect()
    gc.disable()
    try:
        log = tl.log_forward_pass(model, x, save_gradients=True)
        loss = log[-1].activation.sum()
        log.log_backward(loss, retain_graph=True)
        str(log), tl.lint(log), log.grad_fns, log.backward_passes[0].layers
        kept = [weakref.ref(op.gradient) for op in log if op.gradient is not None]
        kept += [weakref.ref(op._value.saved) for op in log]
        kept.append(weakref.ref(log._trace.gradients))
        del log
        assert [reference for reference in kept if reference() is not None] == []
        assert loss.requires_grad  # the graph is the user's
    finally:
        gc.enable()


def test_hooks_do_not_keep_the_graph_alive() -> None:
    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.mark = Mark()
            marks.append(weakref.ref(ctx.mark))
            return x * 1

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            return gradient

    class Mark:
        pass

    class Model(nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return Marked.apply(x).exp()

    marks: list[weakref.ref[Mark]] = []
    log = tl.log_forward_pass(Model(), torch.rand(3, requires_grad=True), layers_to_save=["input"], save_gradients=True)
    assert marks[0]() is not None  # the output is kept, to begin a backward pass from
    log._trace.connections.by_index.clear()  # type: ignore[union-attr]
    assert marks[0]() is None and len(log.grad_fns) == 3


CYCLES = """
import torch, torchlens as tl, resource, gc
class Node:
    pass
class Cycles(torch.nn.Module):
    def forward(self, x):
        for _ in range(1500):
            node = Node()
            node.itself, node.memory = node, torch.empty(250_000).fill_(1)
            x = x + 1
        return x
x = torch.rand(2)
gc.collect()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{run}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss")
def test_cycles_that_the_model_makes_are_collected() -> None:
    """Of 1,500 cycles with one megabyte each, no more live at once than in a plain run."""
    recorded = "tl.fastlog.record(Cycles(), x, keep_op=lambda ctx: False)"
    runs = ["Cycles()(x)", "tl.get_model_metadata(Cycles(), x)", recorded]
    plain, *logged = [peak_of(CYCLES.format(run=run)) for run in runs]
    assert all(growth < 1.3 * plain + 50_000 for growth in logged), (plain, logged)


def peak_of(script: str) -> int:
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

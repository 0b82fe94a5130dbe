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

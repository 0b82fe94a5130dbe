"""What the light path costs, as ratios to the plain forward.

    python benchmarks/fastlog.py [--rounds N] [--quick]

Runs are interleaved (plain, mode, plain, mode, ...), since the machine is shared; each figure is the median of the
ratios of neighbouring runs, with the middle half. "Recorder" is a rollout in a Recorder for a few of them, "record" a
whole call of `fastlog.record`, which also keeps the structure. The targets are for the Recorder.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.overhead import Chain, gpt2
from tests.torchvision_models import torchvision_models

Run = Callable[[], Any]
ROLLOUTS = 3


def resnet50() -> tuple[nn.Module, Tensor]:
    return torchvision_models().resnet50().eval(), torch.rand(1, 3, 224, 224)


#: What is asked of which model, and the ratio it may cost.
TASKS: dict[str, tuple[Callable[[], tuple[nn.Module, Tensor]], dict[str, Any], float]] = {
    "ResNet-50, keep nothing": (resnet50, {"keep_op": lambda ctx: False}, 1.05),
    "ResNet-50, keep ReLUs": (resnet50, {"keep_op": "relu"}, 1.08),
    "ResNet-50, stop at 1/4": (resnet50, {"keep_op": "relu", "stop_after": "layer2.1"}, 0.45),
    "GPT-2, keep nothing": (gpt2, {"keep_op": lambda ctx: False}, 1.05),
    "GPT-2, keep LayerNorms": (gpt2, {"keep_op": "layernorm"}, 1.08),
}


def seconds(run: Run) -> float:
    gc.collect()
    start = time.perf_counter()
    result = run()
    taken = time.perf_counter() - start
    del result
    return taken


def ratios(plain: Run, modes: dict[str, tuple[Run, int]], rounds: int) -> dict[str, list[float]]:
    """The time of each mode, by the number of forward passes in it, in relation to the plain runs around it."""
    found: dict[str, list[float]] = {name: [] for name in modes}
    for run in (plain, *(run for run, _ in modes.values())):
        run()
    before = seconds(plain)
    for _ in range(rounds):
        for name, (run, passes) in modes.items():
            taken = seconds(run) / passes
            after = seconds(plain)
            found[name].append(taken / ((before + after) / 2))
            before = after
    return found


def rollouts(model: nn.Module, x: Tensor, chosen: dict[str, Any]) -> Run:
    """A few rollouts in one Recorder, set-up and all."""

    def run() -> Any:
        with tl.fastlog.Recorder(model, **chosen) as recorder:
            for _ in range(ROLLOUTS):
                recorder.log(x)
        return recorder

    return run


def show_models(rounds: int) -> None:
    print(f"{'':<26}{'Recorder':>20}{'record':>20}   target")
    for task, (build, chosen, target) in TASKS.items():
        model, x = build()
        modes = {"Recorder": (rollouts(model, x, chosen), ROLLOUTS), "record": (_once(model, x, chosen), 1)}
        with torch.no_grad():
            found = ratios(lambda model=model, x=x: model(x), modes, rounds)
        median = statistics.median(found["Recorder"])
        cells = "".join(f"{_summary(found[mode]):>20}" for mode in found)
        print(f"{task:<26}{cells}   {target:.2f}: {'met' if median <= target else 'MISSED'}", flush=True)


def _once(model: nn.Module, x: Tensor, chosen: dict[str, Any]) -> Run:
    return lambda: tl.fastlog.record(model, x, **chosen)


def _summary(values: list[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:.3f} ({low:.2f}-{high:.2f})"


def show_chain(length: int, rounds: int) -> None:
    model, x = Chain(length), torch.rand(4, 4)
    print(f"\n{f'{length:,} tiny operations':<26}{'plain':>10}{'Recorder':>10}{'record':>10}   us each, all kept")
    rows = []
    for _ in range(rounds):
        with torch.no_grad():
            base = seconds(lambda: model(x))
            with tl.fastlog.Recorder(model, keep_op=True) as recorder:
                many = seconds(lambda: recorder.log(x))
            once = seconds(lambda: tl.fastlog.record(model, x, keep_op=True))
            base = (base + seconds(lambda: model(x))) / 2
        rows.append([1e6 * span / length for span in (base, many - base, once - base)])
    base, many, once = (statistics.median(column) for column in zip(*rows, strict=True))
    met = "met" if many <= 12 else "MISSED"
    print(f"{'':<26}{base:>10.1f}{many:>10.1f}{once:>10.1f}   12 for the Recorder: {met}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="the chain only")
    options = parser.parse_args()
    if not options.quick:
        show_models(options.rounds)
    show_chain(20_000, 3)

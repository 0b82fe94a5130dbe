"""What edits cost, as ratios of interleaved runs: python -m benchmarks.interventions [rounds]

one module edit in a Recorder    against the plain forward (and a forward hook that does the same)
a log with ten edits             against the log without
tl.sweep of layers x positions   against one full run with a hook for each cell

Everything runs once before it is measured, then in turns, on one thread; times are those of the processor, so that
they do not count waiting. Each figure is the median over the rounds of the ratio in that round, with the range of the
middle half; the load of the machine stands beside them, since other processes take caches and memory away.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl

E = tl.edits
LAYERS, POSITIONS = 12, 16


class Block(nn.Module):
    """A layer of a language model: causal attention and a perceptron, each beside a residual stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (part.view(*x.shape[:2], 4, -1).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def model_of(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(width) for _ in range(LAYERS)]).eval()


def ratios(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Each work's time against that of the first in the same round, sorted."""
    for work in works.values():
        work()
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        times = {}
        for name, work in works.items():
            gc.collect()
            start = time.process_time()
            work()
            times[name] = time.process_time() - start
        reference = next(iter(times.values()))
        for name in works:
            found[name].append(times[name] / reference)
    return {name: sorted(values) for name, values in found.items()}


def hooked(model: nn.Module, module: nn.Module, change: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    handle = module.register_forward_hook(lambda m, a, result: change(result))
    try:
        return model(x)
    finally:
        handle.remove()


def edits(width: int, rounds: int) -> None:
    model, x = model_of(width), torch.rand(1, POSITIONS, width)
    with tl.fastlog.Recorder(model, keep_module="11", interventions={"5": E.scale(0.5)}) as recorder:
        works = {
            "plain": lambda: [model_outside(x) for _ in range(10)],
            "hook": lambda: [hooked(model_outside, model_outside[5], lambda t: t * 0.5, x) for _ in range(10)],
            "Recorder, one edit": lambda: [recorder.log(x) for _ in range(10)],
        }
        model_outside = model_of(width)
        show(ratios(works, rounds))
    sites = {str(n): E.scale(0.5) for n in range(10)}
    logs = {
        "log": lambda: tl.log_forward_pass(model, x),
        "log with ten edits": lambda: tl.log_forward_pass(model, x, interventions=sites),
    }
    show(ratios(logs, rounds))


def sweeps(width: int, rounds: int) -> None:
    model, x, other = model_of(width), torch.rand(1, POSITIONS, width), torch.rand(1, POSITIONS, width)
    base, donor = tl.log_forward_pass(model, x), tl.log_forward_pass(model, other)
    sites = [str(n) for n in range(LAYERS)]

    def metric(output: Tensor) -> Tensor:
        return output[0, -1, 0]

    def runs() -> None:
        for site in sites:
            given = donor[site].activation
            for position in range(POSITIONS):

                def put(result: Tensor, given: Tensor = given, position: int = position) -> Tensor:
                    result = result.clone()
                    result[:, position] = given[:, position]
                    return result

                metric(hooked(model, model[int(site)], put, x))

    works = {
        "a full run for each cell": runs,
        "tl.sweep": lambda: tl.sweep(base, sites=sites, donor=donor, over=1, metric=metric),
        'tl.sweep, method="gradient"': lambda: tl.sweep(
            base, sites=sites, donor=donor, over=1, metric=metric, method="gradient"
        ),
    }
    show(ratios(works, rounds))


def show(found: dict[str, list[float]]) -> None:
    for name, sorted_ratios in list(found.items())[1:]:
        ratio, count = statistics.median(sorted_ratios), len(sorted_ratios)
        low, high = sorted_ratios[count // 4], sorted_ratios[-1 - count // 4]
        faster = f"   {1 / ratio:.1f}x faster ({1 / high:.1f} to {1 / low:.1f})" if ratio < 0.7 else ""
        print(f"  {name:32} {ratio:.3f} ({low:.3f} to {high:.3f}){faster}", flush=True)


def load() -> str:
    return "load " + " ".join(f"{each:.1f}" for each in os.getloadavg())


@torch.no_grad()
def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {os.cpu_count()} processors, {rounds} rounds; {load()}")
    for width in (64, 256, 768):  # the last is that of GPT-2
        print(f"{LAYERS} layers of width {width}, {POSITIONS} positions", flush=True)
        edits(width, rounds)
        if width < 768:
            sweeps(width, max(3, rounds // 3))
    print(load())


if __name__ == "__main__":
    main()

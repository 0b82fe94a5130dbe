"""What the graph passes cost: microseconds an operation at growing sizes.

    python -m benchmarks.graph [--largest N]

Capture is not part of it: the records are taken once, then the graph is built from them. It should stay close to
linear: at most 2x from 10,000 to 1,000,000 operations, at most 25 microseconds an operation at 100,000.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

import torch
from benchmarks.models import Built, chain, rnn
from torch import Tensor, nn

from torchlens.capture.session import run_traced
from torchlens.graph.graph import PASSES, Graph
from torchlens.options import Options


def measure(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Seconds by pass."""
    with torch.no_grad():
        trace, error, _ = run_traced(model, [x], {}, Options(layers_to_save=None))
    if error is not None:
        raise error
    best: dict[str, float] = {}
    for _ in range(3):
        graph = Graph(trace)
        gc.collect()
        gc.disable()
        for apply in PASSES:
            start = time.perf_counter()
            apply(graph)
            best[apply.__name__] = min(best.get(apply.__name__, 1e9), time.perf_counter() - start)
        gc.enable()
    return {name: 1e6 * seconds / len(trace.values) for name, seconds in best.items()}


def show(largest: int) -> None:
    names = [apply.__name__ for apply in PASSES]
    print(f"{'microseconds an operation':<30}" + "".join(f"{name:>14}" for name in names) + f"{'total':>10}")
    kinds: dict[str, Callable[[int], Built]] = {"chain": chain, "RNN": rnn}
    for kind, build in kinds.items():
        totals = {}
        for size in (n for n in (1_000, 10_000, 100_000, 1_000_000) if n <= largest):
            found = measure(*build(size))
            totals[size] = sum(found.values())
            cells = "".join(f"{found[name]:>14.2f}" for name in names)
            print(f"{f'{kind} {size:,}':<30}{cells}{totals[size]:>10.2f}", flush=True)
        if largest >= 1_000_000:
            growth = totals[1_000_000] / totals[10_000]
            print(f"    at 100,000: {totals[100_000]:.1f} of 25; from 10,000 to 1,000,000: {growth:.2f}x of 2x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1_000_000)
    show(parser.parse_args().largest)

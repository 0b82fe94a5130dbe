"""What it costs to prove a log of ResNet-50 right, as ratios to the plain forward.

    python -m benchmarks.validate [--rounds N] [--cpu]

"replay" computes every operation of a finished log again and compares (`log.validate(perturb=False)`); "perturb" also
changes every parent in turn (`log.validate()`); "in all" is `validate_model_activations`, which besides runs the model
plainly and logged, each on a copy of it, and counts what reaches the dispatcher. Runs are interleaved with plain
forwards, and each figure is the median of the ratios to the two plain forwards around it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import torch
from benchmarks.models import vision

import torchlens as tl

#: The ratios it may cost.
TARGETS = {"replay": 1.7, "perturb": None, "in all": 9.0}


def runs() -> dict[str, Callable[[], object]]:
    """A plain forward, and what is compared with it."""
    model, x = vision("resnet50", batch=1)
    log = tl.log_forward_pass(model, x)
    return {
        "plain": lambda: model(x),
        "replay": lambda: checked(log.validate(perturb=False)),
        "perturb": lambda: checked(log.validate()),
        "in all": lambda: checked(tl.validate_model_activations(model, x)),
    }


def checked(report: tl.ValidationReport) -> None:
    if not report:
        raise SystemExit(str(report))


def seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    gc.collect()
    start = clock()
    run()
    return clock() - start


def ratios(rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    plain, *others = runs().items()
    found: dict[str, list[float]] = {name: [] for name, _ in others}
    for _, run in (plain, *others):
        run()
    before = seconds(plain[1], clock)
    for _ in range(rounds):
        for name, run in others:
            taken = seconds(run, clock)
            after = seconds(plain[1], clock)
            found[name].append(2 * taken / (before + after))
            before = after
    return found


def show(found: dict[str, list[float]]) -> None:
    print(f"{'ResNet-50 b1':<16}{'median (middle half)':>24}   target")
    for name, values in found.items():
        low, median, high = statistics.quantiles(values, n=4)
        target = TARGETS[name]
        met = "" if target is None else f"{target:.1f}: {'met' if median <= target else 'MISSED'}"
        print(f"{name:<16}{f'{median:.2f} ({low:.2f}-{high:.2f})':>24}   {met}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu", action="store_true", help="count processor time, for a machine with other work to do")
    options = parser.parse_args()
    with torch.no_grad():
        show(ratios(options.rounds, time.process_time if options.cpu else time.perf_counter))

"""What a full log costs, as ratios to the plain forward.

    python benchmarks/overhead.py [--rounds N] [--quick]

Runs are interleaved (plain, floor, log, metadata, plain, ...), since the machine is shared; each figure is the median
of the ratios of neighbouring runs. "floor" is a bare interception that does nothing but keep a reference to every
output; "copies" is the same with a copy of whatever an in-place operation is about to overwrite, without which the
kept values would be wrong. "log" saves everything and builds and prints the whole log.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import torchlens as tl

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.torchvision_models import torchvision_models


class KeepOutputs(TorchFunctionMode):
    """The floor: see every call, keep what it returns."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.kept.append(result.detach())
        return result


class KeepAndCopy(KeepOutputs):
    """The floor, with right values: what is overwritten is copied before."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        in_place = (name.endswith("_") and not name.endswith("__")) or bool(kwargs and kwargs.get("inplace"))
        if in_place and args and isinstance(args[0], Tensor):
            self.kept.append(args[0].detach().clone())
        return super().__torch_function__(func, types, args, kwargs)


class Chain(nn.Module):
    """A chain of tiny operations."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.length // 4):
            x = ((x + 1) * 0.5).relu().t()
        return x


def gpt2() -> tuple[nn.Module, Tensor]:
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config()).eval(), torch.randint(0, 50257, (1, 128))


def models() -> dict[str, tuple[nn.Module, Tensor, float]]:
    """Each model with an input and the ratio it may cost."""
    vision = torchvision_models()
    image = torch.rand(1, 3, 224, 224)
    return {
        "AlexNet b1": (vision.alexnet().eval(), image, 1.15),
        "ResNet-50 b1": (vision.resnet50().eval(), image, 1.35),
        "GPT-2 128 tokens": (*gpt2(), 1.20),
    }


def plain(model: nn.Module, x: Tensor) -> None:
    model(x)


def floor(model: nn.Module, x: Tensor) -> None:
    mode = KeepOutputs()
    with mode:
        model(x)


def copies(model: nn.Module, x: Tensor) -> None:
    mode = KeepAndCopy()
    with mode:
        model(x)


def full_log(model: nn.Module, x: Tensor) -> None:
    str(tl.log_forward_pass(model, x))


def metadata(model: nn.Module, x: Tensor) -> None:
    str(tl.get_model_metadata(model, x))


MODES: dict[str, Callable[[nn.Module, Tensor], None]] = {
    "floor": floor,
    "copies": copies,
    "log": full_log,
    "metadata": metadata,
}


def seconds(run: Callable[[nn.Module, Tensor], None], model: nn.Module, x: Tensor) -> float:
    gc.collect()
    start = time.perf_counter()
    run(model, x)
    return time.perf_counter() - start


def ratios(model: nn.Module, x: Tensor, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in MODES}
    for run in (plain, *MODES.values()):
        run(model, x)
    before = seconds(plain, model, x)
    for _ in range(rounds):
        for name, run in MODES.items():
            taken = seconds(run, model, x)
            after = seconds(plain, model, x)
            found[name].append(taken / ((before + after) / 2))
            before = after
    return found


def show_models(rounds: int) -> None:
    print(f"{'model':<18}" + "".join(f"{mode:>18}" for mode in MODES) + "   target for log")
    for name, (model, x, target) in models().items():
        with torch.no_grad():
            found = ratios(model, x, rounds)
        cells = "".join(f"{_summary(found[mode]):>18}" for mode in MODES)
        limit = max(target, 1.2 * statistics.median(found["floor"]))
        met = "met" if statistics.median(found["log"]) <= limit else "MISSED"
        print(f"{name:<18}{cells}   {target:.2f} or 1.2 x floor = {limit:.2f}: {met}", flush=True)


def _summary(values: list[float]) -> str:
    """Median and the middle half."""
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def show_chain(lengths: list[int], rounds: int) -> None:
    print(f"\n{'tiny operations':<18}{'plain':>10}{'capture':>10}{'graph':>10}{'print':>10}   us each")
    for length in lengths:
        rows = [_chain_round(length) for _ in range(rounds)]
        base, capture, graph, text = (statistics.median(column) for column in zip(*rows, strict=True))
        total = capture + graph + text
        met = "met" if total <= 40 else "MISSED"
        print(
            f"{length:<18,}{base:>10.1f}{capture:>10.1f}{graph:>10.1f}{text:>10.1f}   {total:.1f} of 40: {met}",
            flush=True,
        )


def _chain_round(length: int) -> tuple[float, float, float, float]:
    model, x = Chain(length), torch.rand(4, 4)
    with torch.no_grad():
        base = seconds(plain, model, x)
        gc.collect()
        times = [time.perf_counter()]
        log = tl.log_forward_pass(model, x)
        times.append(time.perf_counter())
        assert log.graph
        times.append(time.perf_counter())
        str(log)
        times.append(time.perf_counter())
        base = (base + seconds(plain, model, x)) / 2
    spans = [after - before for before, after in pairwise(times)]
    spans[0] -= base
    return tuple(1e6 * span / length for span in (base, *spans))  # type: ignore[return-value]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="the chains only, at 10,000")
    options = parser.parse_args()
    if not options.quick:
        show_models(options.rounds)
    show_chain([10_000] if options.quick else [10_000, 100_000], 3)

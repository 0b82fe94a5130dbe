"""What `tl.extract` costs: its throughput as a share of the plain forward loop's, in interleaved rounds.

python -m benchmarks.extract [--rounds N] [--batches N] [--peers] [--ray]

Every round runs the same batches through the plain loop, through `tl.extract`, and through forward hooks with `np.save`
for each layer and shard (which neither resumes nor survives a crash). What is compared is the time from the first batch
to the last file; setting up is given apart, in batches. With --peers: ThingsVision and the existing TorchLens besides,
each in its own environment, against the plain loop there. With --ray: two workers against one, which have
one CPU each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.extract_peer import MODELS, PEERS, plain, resnet
from benchmarks.measure import environment_of
from torch import Tensor, nn

from benchmarks import peers
from torchlens.extraction.begin import begin
from torchlens.extraction.input_source import Given
from torchlens.extraction.on_ray import extract_on_ray
from torchlens.extraction.progress import Progress
from torchlens.extraction.run import ExtractRequest
from torchlens.extraction.storage import Folder

TARGET, RAY_TARGET = 0.90, 1.6


def hooks(model: nn.Module, x: Tensor, size: int, layers: list[str], dtype: str | None, shard: int) -> float:
    """What one writes by hand: outputs of modules, a file for each layer and shard."""
    kept: dict[str, list[Any]] = {name: [] for name in layers}
    folder = Path(tempfile.mkdtemp())

    def keeper(name: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            value = output if isinstance(output, Tensor) else output[0]
            kept[name].append((value.half() if dtype else value).numpy())

        return keep

    handles = [model.get_submodule(name).register_forward_hook(keeper(name)) for name in layers]
    began = time.perf_counter()
    with torch.no_grad():
        for start in range(0, len(x), size):
            model(x[start : start + size])
            if (start + size) % shard == 0 or start + size >= len(x):
                for name in layers:
                    np.save(folder / f"{name}-{start}.npy", np.concatenate(kept[name]))
                    kept[name].clear()
    took = time.perf_counter() - began
    for handle in handles:
        handle.remove()
    shutil.rmtree(folder)
    return took


def ours(
    model: nn.Module, x: Tensor, size: int, layers: list[str], dtype: torch.dtype | None
) -> tuple[float, float, int]:
    """Seconds of setting up and of running, and the rows in a shard."""
    folder = Path(tempfile.mkdtemp())
    began = time.perf_counter()
    job = ExtractRequest(model, Given(x, size), layers, dtype=dtype).job()
    storage = Folder(folder / "acts")
    begin(job, storage)
    ready = time.perf_counter()
    job.run(storage, lambda shard: True, lambda rows: None)
    ended = time.perf_counter()
    shutil.rmtree(folder)
    return ready - began, ended - ready, job.plan.shard_rows


def measure(name: str, count: int, dtype: str | None, rounds: int, batches: int) -> None:
    model, x, size, layers = MODELS[name](batches)
    layers = layers[:count]
    setting_up, _, shard = ours(model, x, size, layers, getattr(torch, dtype) if dtype else None)
    shares, by_hooks = [], []
    before = plain(model, x, size)
    for _ in range(rounds):
        _, run, _ = ours(model, x, size, layers, getattr(torch, dtype) if dtype else None)
        between = plain(model, x, size)
        hooked = hooks(model, x, size, layers, dtype, shard)
        after = plain(model, x, size)
        shares.append((before + between) / 2 / run)
        by_hooks.append((between + after) / 2 / hooked)
        before = after
    share = statistics.median(shares)
    met = "met" if share >= TARGET else f"below {TARGET:.2f}"
    told = " ".join(f"{each:.2f}" for each in sorted(shares))
    print(
        f"{name:<15}{count} layer{'s' * (count > 1):<2} {dtype or 'float32':<9}{share:>6.2f} ({met}; {told})   "
        f"hooks and np.save {statistics.median(by_hooks):.2f}   set-up {setting_up / before * batches:.1f} batches   "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def measure_peer(peer: str, name: str, count: int, dtype: str | None, rounds: int, batches: int) -> None:
    """The same with another tool, in a process of its environment."""
    asked = [peer, name, str(count), dtype or "float32", str(rounds), str(batches)]
    command = [peers.python(peer), "-m", "benchmarks.extract_peer", *asked]
    environment = {**environment_of(peer), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=peers.ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["nothing said"])[-1][:200]
    else:
        shares = sorted(json.loads(done.stdout.splitlines()[-1]))
        told = f"{statistics.median(shares):.2f} ({' '.join(f'{each:.2f}' for each in shares)})"
    print(f"{name:<15}{count} layer{'s' * (count > 1):<2} {dtype or 'float32':<9} {peer}: {told}", flush=True)


class Clock(Progress):
    """Knows when the store was begun: everything before it is setting up."""

    def __init__(self) -> None:
        super().__init__(False)
        self.began = self.ready = time.perf_counter()

    def begin(self, total: int | None, done: int) -> None:
        self.ready = time.perf_counter()


def by_workers(workers: int, batches: int) -> tuple[float, float]:
    """Seconds of setting up and of running, with so many workers, which make model and data themselves."""
    _, _, size, layers = resnet(0)
    request = ExtractRequest(lambda: resnet(0)[0], Given(lambda: resnet(batches)[1], size), layers[:1], shard_rows=size)
    folder, clock = Path(tempfile.mkdtemp()), Clock()
    extract_on_ray(request, Folder(folder / "acts"), workers, 0, lambda shard: True, clock)
    ended = time.perf_counter()
    shutil.rmtree(folder)
    return clock.ready - clock.began, ended - clock.ready


def on_ray(rounds: int, batches: int) -> None:
    """The same data by one worker and by two, in turns; a worker has one CPU, and so one thread."""
    import ray

    ray.init(log_to_driver=False, num_cpus=2)
    by_workers(2, 2)
    ratios = []
    for _ in range(rounds):
        (set_up_1, run_1), (set_up_2, run_2) = by_workers(1, batches), by_workers(2, batches)
        ratios.append(run_1 / run_2)
        print(
            f"Ray, {batches} batches: one worker {run_1:.1f} s, two {run_2:.1f} s; set-up {set_up_1:.1f} and "
            f"{set_up_2:.1f} s   load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    ratio = statistics.median(ratios)
    told = " ".join(f"{each:.2f}" for each in sorted(ratios))
    met = "met" if ratio >= RAY_TARGET else f"below {RAY_TARGET}"
    print(f"Ray: two workers {ratio:.2f} times as fast as one ({met}; {told})")
    ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, help="8, or 32 with --ray, unless given")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--ray", action="store_true")
    given = parser.parse_args()
    if given.ray:
        on_ray(given.rounds, given.batches or 32)
        return
    why = {peer: peers.prepare(peer) for peer in PEERS} if given.peers else {}
    for peer in [peer for peer in why if why[peer] is not None]:
        print(f"{peer} could not be set up: {why[peer]}")
    usable = [peer for peer in why if why[peer] is None]
    for name in MODELS:
        for count in (1, 5):
            for dtype in (None, "float16"):
                measure(name, count, dtype, given.rounds, given.batches or 8)
                for peer in usable:
                    measure_peer(peer, name, count, dtype, given.rounds, given.batches or 8)


if __name__ == "__main__":
    main()

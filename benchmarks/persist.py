"""Saving, loading and streaming, each next to what it is measured against.

    python -m benchmarks.persist

Times are the best of several interleaved runs, with everything in the page cache; memory is the peak of a process of
its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

import torchlens as tl

ROUNDS = 7


def main() -> None:
    if len(sys.argv) > 1:
        return print(peak_memory(sys.argv[1], Path(sys.argv[2])))
    folder = Path(tempfile.mkdtemp(prefix="torchlens-"))
    try:
        throughput(folder)
        lazy_open(folder)
        streaming(folder)
    finally:
        shutil.rmtree(folder)


# ---- throughput -----------------------------------------------------------------------------------------------


class Wide(nn.Module):
    """Thirty operations of 8 MB each, and one more that looks at a part of each."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            x = torch.sin(x)
        return x.flatten()


def throughput(folder: Path) -> None:
    log = tl.log_forward_pass(Wide(), torch.rand(2048, 1024))
    tl.save(log, folder / "log")
    tensors = {
        name: tensor
        for shard in (folder / "log").glob("*.safetensors")
        for name, tensor in safetensors.torch.load_file(shard).items()
    }
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    size = sum(tensor.nbytes for tensor in tensors.values())
    plain = folder / "plain.safetensors"
    tasks: dict[str, Callable[[], object]] = {
        "save_file": lambda: (plain.unlink(missing_ok=True), safetensors.torch.save_file(tensors, plain)),
        "tl.save": lambda: (shutil.rmtree(folder / "log"), tl.save(log, folder / "log")),
        "save_file, then fsync": lambda: (
            plain.unlink(missing_ok=True),
            safetensors.torch.save_file(tensors, plain),
            _sync(plain),
        ),
        "tl.save, replacing": lambda: tl.save(log, folder / "log", overwrite=True),
        "load_file, every byte read": lambda: [tensor.sum() for tensor in safetensors.torch.load_file(plain).values()],
        "load_file into own memory": lambda: [t.clone() for t in safetensors.torch.load_file(plain).values()],
        "tl.load": lambda: tl.load(folder / "log"),
    }
    best = interleaved(tasks)
    print(f"\n{len(tensors)} tensors, {size / 2**20:.0f} MB             seconds    MB/s")
    for name, seconds in best.items():
        print(f"  {name:28} {seconds:9.3f} {size / 2**20 / seconds:7.0f}")
    print(f"  tl.save against save_file:             {best['save_file'] / best['tl.save']:.2f}x")
    print(f"  replacing against save_file and fsync: {best['save_file, then fsync'] / best['tl.save, replacing']:.2f}x")
    print(f"  tl.load against load_file, read:       {best['load_file, every byte read'] / best['tl.load']:.2f}x")
    print(f"  tl.load against load_file, own memory: {best['load_file into own memory'] / best['tl.load']:.2f}x")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def interleaved(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The best time of each, in turns, so that a busy machine hits all alike."""
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


# ---- many operations ------------------------------------------------------------------------------------------


class Long(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in range(3333):
            x = torch.tanh(self.layers[step % 100](x)) * 0.5
        return x


def lazy_open(folder: Path) -> None:
    log = tl.log_forward_pass(Long(), torch.rand(2, 4))
    tl.save(log, folder / "long")
    best = interleaved({"lazy": lambda: tl.load(folder / "long", lazy=True), "eager": lambda: tl.load(folder / "long")})
    lazy = tl.load(folder / "long", lazy=True)
    start = time.perf_counter()
    label = lazy[-1].label
    graph = time.perf_counter() - start
    size = (folder / "long" / "metadata.json").stat().st_size / 2**20
    print(f"\n{len(log)} operations, {size:.1f} MB of metadata")
    print(f"  opened with lazy=True {best['lazy']:.3f} s, with all values {best['eager']:.3f} s")
    print(f"  the first question ({label}) builds the graph: {graph:.3f} s")


# ---- streaming ------------------------------------------------------------------------------------------------


def streaming(folder: Path) -> None:
    """Each in a process of its own, in turns; the best of each."""
    best: dict[str, list[float]] = {}
    disk, size, memory = float("inf"), 0, torch.rand(2 << 20)
    for _ in range(3):
        for kind in ("plain", "streamed to disk", "log in memory"):
            peak, seconds = _child(kind, folder / "streamed")
            known = best.setdefault(kind, [peak, seconds])
            best[kind] = [min(known[0], peak), min(known[1], seconds)]
            if (folder / "streamed").exists():
                size = sum(file.stat().st_size for file in (folder / "streamed").iterdir())
                shutil.rmtree(folder / "streamed")
        disk = min(disk, raw_disk(folder / "raw", [memory] * (size // memory.nbytes)))
    print("\nResNet-50, batch 16, evaluation: peak memory of the process, forward pass in seconds")
    for name, (peak, seconds) in best.items():
        print(f"  {name:18} {peak:7.0f} MB {seconds:7.2f} s")
    print(f"  {f'{size / 2**20:.0f} MB to disk only':18} {'':10} {disk:7.2f} s")
    (plain, alone), (streamed, seconds) = best["plain"], best["streamed to disk"]
    print(f"  streamed against plain:                     {streamed / plain:.2f}x memory")
    print(f"  streamed against the slower of disk, plain: {seconds / max(disk, alone):.2f}x time")
    print(f"  streamed against disk and then plain:       {seconds / (disk + alone):.2f}x time")


def raw_disk(path: Path, tensors: Iterable[torch.Tensor]) -> float:
    """Seconds to write the bytes of some tensors into a new file and nothing else, until they are on the disk."""
    start = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for tensor in tensors:
            data = memoryview(tensor.flatten().view(torch.uint8).numpy())
            for begin in range(0, data.nbytes, 1 << 18):  # Linux is several times slower with pieces of megabytes
                file.write(data[begin : begin + (1 << 18)])
        os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    path.unlink()
    return seconds


def _child(kind: str, path: Path) -> tuple[float, float]:
    ran = subprocess.run([sys.executable, "-m", "benchmarks.persist", kind, str(path)], capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    memory, seconds = ran.stdout.split()[-2:]
    return float(memory), float(seconds)


def peak_memory(kind: str, path: Path) -> str:
    from benchmarks.models import MODELS

    model, x = MODELS["ResNet-50 b16"]()
    with torch.no_grad():
        model(x[:1])  # what torch sets up at first use
        start = time.perf_counter()
        if kind == "plain":
            model(x)
        elif kind == "streamed to disk":
            tl.log_forward_pass(model, x, save_activations_to=path, keep_activations_in_memory=False)
        else:
            tl.log_forward_pass(model, x)
        seconds = time.perf_counter() - start
    # Not getrusage: what it says of a child begins with the peak of its parent.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return f"{int(status['VmHWM'].split()[0]) / 1024} {seconds}"


if __name__ == "__main__":
    main()

"""What `tl.compare` costs, in seconds by the number of operations, and in memory: `python -m benchmarks.compare`.

A stack of blocks is compared with itself in bfloat16 (nothing but rounding), with a copy of the same graph in which
every block has another eps, and with one that lacks an operation in every block. The second table has larger tensors,
and says how much memory a comparison and its print take at most, against the values of the larger log.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlens as tl

SIZES = (500, 2_000, 10_000)
MEGABYTE = 1 << 20


class Block(nn.Module):
    def __init__(self, width: int, scaled: bool, eps: float) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm, self.scaled = nn.LayerNorm(width, eps=eps), scaled

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(torch.relu(self.up(self.norm(x))))
        return x + (y * 0.7 if self.scaled else y).tanh()


def stack(operations: int, width: int, scaled: bool = True, eps: float = 1e-5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width, scaled, eps) for _ in range(operations // 7))).eval()


Logs = tuple[tl.ModelLog, tl.ModelLog]


def with_itself_in_bfloat16(operations: int, x: Tensor) -> Logs:
    model = stack(operations, x.shape[1])
    return tl.log_forward_pass(model, x), tl.log_forward_pass(copy.deepcopy(model).bfloat16(), x.bfloat16())


def with_another(operations: int, x: Tensor, **changed: float) -> Logs:
    models = stack(operations, x.shape[1]), stack(operations, x.shape[1], **changed)  # type: ignore[arg-type]
    return tl.log_forward_pass(models[0], x), tl.log_forward_pass(models[1], x)


CASES: dict[str, Callable[[int, Tensor], Logs]] = {
    "bfloat16": with_itself_in_bfloat16,
    "other eps in every block": lambda n, x: with_another(n, x, eps=1e-3),
    "a step missing in every block": lambda n, x: with_another(n, x, scaled=False),
}


def times(sizes: tuple[int, ...]) -> None:
    print(f"{'':32}" + "".join(f"{size:>10,}" for size in sizes) + "   operations")
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    for name, build in CASES.items():
        found = []
        for size in sizes:
            logs = build(size, x)
            begin = time.process_time()
            tl.compare(*logs)
            found.append(time.process_time() - begin)
        print(f"{name:32}" + "".join(f"{seconds:9.2f}s" for seconds in found), flush=True)


# ---- memory -----------------------------------------------------------------------------------------------------


def memory() -> None:
    """Linux alone tells how much a process needed at most since it was asked to forget."""
    print(f"\n{'':32}{'larger log':>12}{'comparing':>12}{'times':>8}")
    x = torch.randn(2048, 256, generator=torch.Generator().manual_seed(0))
    for name, build in CASES.items():
        logs = build(105, x)
        held = max(log.total_activation_memory for log in logs) / MEGABYTE
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        str(tl.compare(*logs))
        needed = _status("VmHWM") - before
        print(f"{name:32}{held:9.0f} MB{needed:9.0f} MB{needed / held:8.2f}", flush=True)


def _status(name: str) -> float:
    """In megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


if __name__ == "__main__":
    times(tuple(int(size) for size in sys.argv[1:]) or SIZES)
    if Path("/proc/self/clear_refs").exists():
        memory()

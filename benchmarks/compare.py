"""What `tl.compare` costs, in seconds, by the number of operations: `python -m benchmarks.compare`.

A stack of blocks is compared with itself in bfloat16 (nothing but rounding), with a copy of the same graph in which
every block has another eps, and with one that lacks an operation in every block.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import torchlens as tl

SIZES = (500, 2_000, 10_000)


class Block(nn.Module):
    def __init__(self, scaled: bool, eps: float) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.LayerNorm(16, eps=eps)
        self.scaled = scaled

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(torch.relu(self.up(self.norm(x))))
        return x + (y * 0.7 if self.scaled else y).tanh()


def stack(operations: int, scaled: bool = True, eps: float = 1e-5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(scaled, eps) for _ in range(operations // 7))).eval()


X = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))

CASES: dict[str, Callable[[int], tuple[tl.ModelLog, tl.ModelLog]]] = {
    "bfloat16": lambda n: (
        tl.log_forward_pass(stack(n), X),
        tl.log_forward_pass(copy.deepcopy(stack(n)).bfloat16(), X.bfloat16()),
    ),
    "other eps in every block": lambda n: (
        tl.log_forward_pass(stack(n), X),
        tl.log_forward_pass(stack(n, eps=1e-3), X),
    ),
    "a step missing in every block": lambda n: (
        tl.log_forward_pass(stack(n), X),
        tl.log_forward_pass(stack(n, scaled=False), X),
    ),
}


def main(sizes: tuple[int, ...]) -> None:
    print(f"{'':32}" + "".join(f"{size:>10,}" for size in sizes) + "   operations")
    for name, build in CASES.items():
        times = []
        for size in sizes:
            logs = build(size)
            begin = time.process_time()
            tl.compare(*logs)
            times.append(time.process_time() - begin)
        print(f"{name:32}" + "".join(f"{seconds:9.2f}s" for seconds in times), flush=True)


if __name__ == "__main__":
    main(tuple(int(size) for size in sys.argv[1:]) or SIZES)

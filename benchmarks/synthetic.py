"""Models of any size, for benchmarks of graphs: nested modules, with and without a hub, and none at all.

Nothing of this library is imported here: other tools run them in environments of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(0, 1) / 2.0
        if mask is not None:
            scores = scores + mask
        return self.out(scores.softmax(-1) @ self.v(x))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Nested modules and skips; with a hub, one tensor feeds every block."""

    def __init__(self, operations: int, hub: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(4) for _ in range(max(1, operations // (16 + hub)))])
        self.hub = hub

    def forward(self, x: Tensor) -> Tensor:
        mask = x @ x.transpose(0, 1) if self.hub else None
        for block in self.blocks:
            x = block(x, mask)
        return x


class Chain(nn.Module):
    """No modules: one flat container, with a skip here and there."""

    def __init__(self, operations: int) -> None:
        super().__init__()
        self.operations = operations

    def forward(self, x: Tensor) -> Tensor:
        kept = x
        for index in range(self.operations):
            if index % 7:
                x = x.sin()
            else:
                x, kept = x + kept, x
        return x


SYNTHETIC: dict[str, Callable[[int], nn.Module]] = {
    "nested": lambda size: Transformer(size, hub=False),
    "nested, hub": lambda size: Transformer(size, hub=True),
    "flat": Chain,
}

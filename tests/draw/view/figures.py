"""The cases of the paper's Figure 2, which shows the visual code: one small model for each part."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Simple(nn.Module):
    """A: input, output, functions and modules, a tensor made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.relu = nn.Linear(5, 5), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.relu(self.fc(x)) + torch.rand(5, 5))


class Frozen(nn.Module):
    """B: what stands in a node, with parameters that are trained, frozen, or some of each."""

    def __init__(self) -> None:
        super().__init__()
        self.trained, self.frozen, self.mixed = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.frozen.requires_grad_(False)
        self.mixed.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.mixed(self.frozen(self.trained(x)))


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cos(torch.sin(x))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.act = Inner(), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.inner(x)) * 2


class Nested(nn.Module):
    """C: modules in modules; one of them works on a tensor made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.outer, self.noise = Outer(), Outer()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(x) + self.noise(torch.ones(5, 5))


class Arguments(nn.Module):
    """D: operations for which the order of the arguments counts, by position and by name; and one where it doesn't."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.exp(x)
        z = x / y
        z = torch.cat([z, y], dim=1) @ torch.cat((x, y))
        return torch.sub(z, other=y) + y


class Buffers(nn.Module):
    """E: a buffer that the model uses, and those of a batch norm, which are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5).eval()
        self.register_buffer("scale", torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.scale


class Condition(nn.Module):
    """F: the test of an if."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.exp(x)
        return y * 2 if y.mean() > 0 else y * 3


class Cell(nn.Module):
    """One step of an LSTM, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(8, 20)

    def forward(self, x: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        forget, add, update, out = self.gates(torch.cat([x, hidden], dim=1)).chunk(4, dim=1)
        state = torch.sigmoid(forget) * state + torch.sigmoid(add) * torch.tanh(update)
        return torch.sigmoid(out) * torch.tanh(state), state


class WrittenOutLstm(nn.Module):
    """An LSTM over three steps, then a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.readout = Cell(), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = state = torch.zeros(2, 5)
        for t in range(3):
            hidden, state = self.cell(x[:, t], hidden, state)
        return self.readout(hidden)


FIGURE_2 = {"a": Simple, "b": Frozen, "c": Nested, "d": Arguments, "e": Buffers, "f": Condition}

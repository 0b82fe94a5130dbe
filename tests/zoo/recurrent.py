"""Recurrent networks of the visual system, in the manner of CORnet, written for these tests."""

from __future__ import annotations

from itertools import pairwise

import torch
from tests.zoo.build import Built
from torch import Tensor, nn


class Feedforward(nn.Module):
    """An area without recurrence: convolution, nonlinearity, pooling."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels, 3, padding=1)
        self.nonlin = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.nonlin(self.conv(x)))


class WithState(nn.Module):
    """An area that adds its own state of the step before to its input; the first step starts from zeros."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.conv_input = nn.Conv2d(channels_in, channels, 3, stride=2, padding=1)
        self.norm_input = nn.GroupNorm(4, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, channels)
        self.nonlin = nn.ReLU(inplace=True)
        self.channels = channels

    def forward(self, x: Tensor | None, state: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
        if x is None:
            drive = torch.zeros(1, self.channels, size, size)
        else:
            drive = self.nonlin(self.norm_input(self.conv_input(x)))
        after = drive if state is None else drive + state
        after = self.nonlin(self.norm(self.conv(after)))
        return after, after


class Repeating(nn.Module):
    """An area that runs its bottleneck several times with shared convolutions but norms of its own for each time."""

    def __init__(self, channels_in: int, channels: int, times: int) -> None:
        super().__init__()
        self.times = times
        self.conv_input = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.skip = nn.Conv2d(channels, channels, 1, stride=2, bias=False)
        self.norm_skip = nn.BatchNorm2d(channels)
        self.convs = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2 * times)])
        self.nonlin = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_input(x)
        for time in range(self.times):
            if time == 0:
                skip = self.norm_skip(self.skip(x))
                x = nn.functional.avg_pool2d(x, 2)
            else:
                skip = x
            for number, conv in enumerate(self.convs):
                x = self.nonlin(self.norms[2 * time + number](conv(x)))
            x += skip
            x = self.nonlin(x)
        return x


class AreasInARow(nn.Module):
    """V1, V2, V4, IT and a decoder, each area made by `area(channels_in, channels)`."""

    def __init__(self, area: type[nn.Module], *extra: int) -> None:
        super().__init__()
        sizes = (3, 8, 16, 16, 32)
        for name, channels_in, channels in zip(("V1", "V2", "V4", "IT"), sizes, sizes[1:], strict=False):
            self.add_module(name, area(channels_in, channels, *extra))
        self.decoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.IT(self.V4(self.V2(self.V1(x)))))


class BiologicalTime(nn.Module):
    """Areas with state, unrolled so that activity takes one step from each area to the next."""

    def __init__(self, steps: int = 5) -> None:
        super().__init__()
        self.steps = steps
        sizes = (3, 8, 16, 16, 32)
        self.areas = nn.ModuleList([WithState(a, b) for a, b in pairwise(sizes)])
        self.decoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))

    def forward(self, x: Tensor) -> Tensor:
        outputs: list[Tensor | None] = [None] * 4
        states: list[Tensor | None] = [None] * 4
        for _ in range(self.steps):
            below = [x, *outputs[:-1]]
            for number, area in enumerate(self.areas):
                outputs[number], states[number] = area(below[number], states[number], x.shape[-1] >> (number + 1))
        return self.decoder(outputs[-1])


class LateralAndTopDown(nn.Module):
    """Two areas with lateral and feedback connections; stops early once the answer is sure enough."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom_up = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)])
        self.lateral = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)])
        self.top_down = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.readout = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        low = high = None
        for _ in range(6):
            drive = self.bottom_up[0](x)
            if low is not None and high is not None:
                drive = drive + self.lateral[0](low) + self.top_down(high)
            low = drive.relu()
            drive = self.bottom_up[1](nn.functional.max_pool2d(low, 2))
            high = (drive if high is None else drive + self.lateral[1](high)).relu()
            answer = self.readout(high.mean((2, 3))).softmax(-1)
            if answer.max() > 0.9:
                break
        return answer


_MODELS = {
    "feedforward_areas": lambda: AreasInARow(Feedforward),
    "areas_with_state": BiologicalTime,
    "areas_that_repeat": lambda: AreasInARow(Repeating, 3),
    "areas_that_repeat_training": lambda: AreasInARow(Repeating, 3).train(),
    "lateral_and_top_down": LateralAndTopDown,
    "lstm_cell_unrolled": lambda: Unrolled(nn.LSTMCell(3, 8)),
    "gru_cell_unrolled": lambda: Unrolled(nn.GRUCell(3, 8)),
}


class Unrolled(nn.Module):
    """A recurrent cell stepped over a sequence by hand: the pixels of a row, one after the other."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state = None
        states = []
        for step in range(8):
            state = self.cell(x[:, :, 0, step], state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(states)


def names() -> list[str]:
    return list(_MODELS)


def build(name: str) -> Built:
    model = _MODELS[name]()
    model.train("training" in name)
    return Built(model, [torch.rand(1 if name == "areas_with_state" else 2, 3, 32, 32)])

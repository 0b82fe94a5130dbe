"""Draw known models into docs/gallery. Random weights; run by `make gallery`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from demo import Demo  # noqa: E402
from tests.torchvision_models import torchvision_models  # noqa: E402

FOLDER = ROOT / "docs" / "gallery"


# ---- models ---------------------------------------------------------------------------------------------------


class RecurrentArea(nn.Module):
    """A cortical area that sees its input and its own last state."""

    def __init__(self, before: int, here: int) -> None:
        super().__init__()
        self.bottom_up = nn.Conv2d(before, here, 3, stride=2, padding=1)
        self.lateral = nn.Conv2d(here, here, 3, padding=1)
        self.norm = nn.GroupNorm(2, here)

    def forward(self, drive: Tensor, state: Tensor | None) -> Tensor:
        current = self.bottom_up(drive)
        if state is not None:
            current = current + self.lateral(state)
        return torch.relu(self.norm(current))


class RecurrentVisionNet(nn.Module):
    """Two areas that run for four time steps on one image."""

    def __init__(self) -> None:
        super().__init__()
        self.v1, self.it = RecurrentArea(3, 8), RecurrentArea(8, 16)
        self.readout = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        v1 = it = None
        for _ in range(4):
            v1 = self.v1(image, v1)
            it = self.it(v1, it)
        return self.readout(it.mean(dim=(2, 3)))


class DoubleConv(nn.Sequential):
    def __init__(self, before: int, after: int) -> None:
        convs = nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()
        super().__init__(*convs)


class UNet(nn.Module):
    """Down, across the bottom, and up again with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([DoubleConv(1, 8), DoubleConv(8, 16), DoubleConv(16, 32)])
        self.bottom = DoubleConv(32, 64)
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in (32, 16, 8))
        self.up = nn.ModuleList(DoubleConv(2 * n, n) for n in (32, 16, 8))
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for widen, up, skip in zip(self.widen, self.up, reversed(skips), strict=True):
            x = up(torch.cat([skip, widen(x)], dim=1))
        return self.head(x)


class MessagePassing(nn.Module):
    """One round: a message along every edge, summed at its target."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Linear(2 * width, width)
        self.update = nn.GRUCell(width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        messages = torch.relu(self.message(torch.cat([nodes[source], nodes[target]], dim=1)))
        received = torch.zeros_like(nodes).index_add(0, target, messages)
        return self.update(received, nodes)


class GraphNet(nn.Module):
    """The same message passing three times, then a readout for the whole graph."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.layer, self.readout = nn.Linear(4, 16), MessagePassing(16), nn.Linear(16, 2)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        nodes = self.encode(features)
        for _ in range(3):
            nodes = self.layer(nodes, edges)
        return self.readout(nodes.sum(dim=0))


class Expert(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class MixtureOfExperts(nn.Module):
    """A router sends each token to the two best of four experts."""

    def __init__(self, width: int = 8, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))

    def forward(self, tokens: Tensor) -> Tensor:
        weights, chosen = torch.softmax(self.router(tokens), dim=-1).topk(2)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            share = (weights * (chosen == number)).sum(dim=-1, keepdim=True)
            mixed = mixed + share * expert(tokens)
        return tokens + mixed


class VariationalAutoencoder(nn.Module):
    """Noise made inside: what does not come from the input is dashed."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(32, 4), nn.Linear(32, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + torch.exp(log_variance / 2) * torch.randn(mean.shape)
        return self.decoder(code)


def gpt2() -> nn.Module:
    torchvision_models()  # transformers imports torchvision, which may need help to be imported
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(n_layer=12))


# ---- pictures -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A model and how it is drawn; what is written under it says so."""

    name: str
    title: str
    about: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], list[Any]]
    arguments: dict[str, Any] = field(default_factory=dict)
    kwargs: dict[str, Any] = field(default_factory=dict)


def image(size: int = 224, channels: int = 3) -> Callable[[], list[Any]]:
    return lambda: [torch.rand(1, channels, size, size)]


def torchvision(name: str, **arguments: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision_models(), name)(**arguments)


PICTURES = [
    Picture("demo", "The demo", "recurrence, a condition, a buffer and noise, every pass", Demo, image(16)),
    Picture("demo_rolled", "The demo, rolled", "every layer once", Demo, image(16), {"vis_mode": "rolled"}),
    Picture("alexnet", "AlexNet", "every operation", torchvision("alexnet"), image()),
    Picture(
        "googlenet", "GoogLeNet", "inception modules opened, their branches collapsed",
        torchvision("googlenet", init_weights=False), image(), {"vis_nesting_depth": 2},
    ),
    Picture(
        "inception3a", "One inception module of GoogLeNet", "a submodule alone, coloured by work",
        torchvision("googlenet", init_weights=False), image(), {"module": "inception3a", "vis_color_by": "flops"},
    ),
    Picture(
        "resnet50", "ResNet-50", "blocks collapsed, equal ones folded",
        torchvision("resnet50"), image(), {"vis_nesting_depth": 2, "vis_fold_repeats": True},
    ),
    Picture(
        "swin_v2_b", "Swin-V2-B", "1,800 operations; equal blocks folded, attention and MLP collapsed",
        torchvision("swin_v2_b"), image(256), {"vis_nesting_depth": 3, "vis_fold_repeats": True},
    ),
    Picture(
        "gpt2", "GPT-2", "twelve equal blocks drawn once", gpt2, list,
        {"vis_fold_repeats": True, "vis_nesting_depth": 3},
        {"input_ids": torch.arange(8)[None], "use_cache": False},
    ),
    Picture(
        "recurrent_vision", "A recurrent vision net, rolled", "labels say which passes an edge belongs to",
        RecurrentVisionNet, image(32), {"vis_mode": "rolled"},
    ),
    Picture(
        "recurrent_vision_unrolled", "The same, unrolled", "areas collapsed, four time steps",
        RecurrentVisionNet, image(32), {"vis_nesting_depth": 1, "vis_direction": "leftright"},
    ),
    Picture("unet", "A U-Net", "skip connections", UNet, image(32, 1), {"vis_nesting_depth": 1}),
    Picture(
        "gnn", "A graph neural network, rolled", "message passing three times", GraphNet,
        lambda: [torch.rand(5, 4), torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])], {"vis_mode": "rolled"},
    ),
    Picture(
        "mixture_of_experts", "A mixture of experts", "a router and four experts, dark theme", MixtureOfExperts,
        lambda: [torch.rand(6, 8)], {"vis_nesting_depth": 1, "vis_theme": "dark"},
    ),
    Picture("vae", "A variational autoencoder", "noise made inside is dashed", VariationalAutoencoder, image(8, 1)),
]  # fmt: skip


def draw(picture: Picture) -> Path:
    torch.manual_seed(0)
    return tl.show_model_graph(
        picture.build().eval(),
        picture.inputs(),
        picture.kwargs,
        random_seed=0,
        vis_outpath=FOLDER / f"{picture.name}.svg",
        vis_save_only=True,
        renderer="builtin",
        **picture.arguments,
    )


def index(pictures: list[Picture]) -> str:
    """The page that shows the pictures."""
    parts = ["# Gallery", "Drawn by `make gallery` with the built-in layout, from models with random weights."]
    for picture in pictures:
        arguments = "".join(f", {name}={value!r}" for name, value in picture.arguments.items())
        parts += [
            f"## {picture.title}",
            f"{picture.about[0].upper()}{picture.about[1:]}: `tl.show_model_graph(model, x{arguments})`",
            f"![{picture.title}]({picture.name}.svg)",
        ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for picture in PICTURES:
        if not wanted or picture.name in wanted:
            path = draw(picture)
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1024:.0f} KB")
    (FOLDER / "README.md").write_text(index(PICTURES), encoding="utf-8")

"""The models that are measured, by name: each builds the model and an input for it.

This file and `tools.py` also run in the environments of other tools, so neither imports torchlens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

Built = tuple[nn.Module, Tensor]


class Chain(nn.Module):
    """Feedforward: tiny operations, no parameters, nothing repeated exactly."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.length // 2):
            x = (x + i % 97).sin() if i % 5 else (x * (i % 89)).cos()
        return x


class UnrolledRNN(nn.Module):
    """Recurrent: one cell, unrolled over as many steps as it takes; five operations a step."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.inward, self.onward = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(1, 3)
        for step in range(self.length // 5):
            hidden = torch.tanh(self.inward(x[:, step % 7]) + self.onward(hidden))
        return hidden


class Block(nn.Module):
    """A layer of a transformer; 22 operations."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_too = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.inward(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        weights = torch.softmax(q @ k.transpose(-2, -1) / 4, dim=-1)
        x = x + self.outward((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(self.act(self.wide(self.norm_too(x))))


class SmallResNet(nn.Module):
    """Residual blocks of 8 channels on small pictures."""

    def __init__(self, blocks: int = 16, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
            )
            for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = torch.max_pool2d(self.first(x), 4)
        for block in self.blocks:
            x = torch.relu_(x + block(x))
        return x.mean((2, 3))


def small_transformer(operations: int) -> Built:
    """So many operations, or a few less; twelve layers have 300."""
    return nn.Sequential(*[Block() for _ in range(operations // 25)]).eval(), torch.rand(1, 8, 16)


def small_gpt2() -> Built:
    torchvision_models()
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(n_embd=32, n_head=2, vocab_size=100)).eval(), torch.randint(0, 100, (1, 8))


def chain(length: int) -> Built:
    return Chain(length), torch.rand(2, 2)


def rnn(length: int) -> Built:
    return UnrolledRNN(length), torch.rand(1, 7, 3)


def vision(name: str, batch: int) -> Built:
    size = 256 if name.startswith("swin") else 224
    return getattr(torchvision_models(), name)().eval(), torch.rand(batch, 3, size, size)


def gpt2() -> Built:
    torchvision_models()  # transformers imports torchvision, which may need help
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config()).eval(), torch.randint(0, 50257, (1, 128))


def bert() -> Built:
    torchvision_models()
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()).eval(), torch.randint(0, 30522, (1, 128))


SIZES = {"1k": 1_000, "10k": 10_000, "100k": 100_000, "1M": 1_000_000}

MODELS: dict[str, Callable[[], Built]] = {
    "AlexNet b1": lambda: vision("alexnet", 1),
    "ResNet-50 b1": lambda: vision("resnet50", 1),
    "Swin-V2-B b1": lambda: vision("swin_v2_b", 1),
    "ViT-B/16 b1": lambda: vision("vit_b_16", 1),
    "GPT-2": gpt2,
    "BERT": bert,
    "small transformer": lambda: small_transformer(300),
    "small ResNet": lambda: (SmallResNet().eval(), torch.rand(1, 3, 32, 32)),
    "small GPT-2": small_gpt2,
    "AlexNet b16": lambda: vision("alexnet", 16),
    "ResNet-50 b16": lambda: vision("resnet50", 16),
    "Swin-V2-B b16": lambda: vision("swin_v2_b", 16),
    "ViT-B/16 b16": lambda: vision("vit_b_16", 16),
    **{f"chain {name}": lambda size=size: chain(size) for name, size in SIZES.items()},
    **{f"RNN {name}": lambda size=size: rnn(size) for name, size in SIZES.items()},
}


def operations(model: str) -> int:
    """How many tiny operations a chain or RNN of this name has."""
    return SIZES[model.split()[-1]]

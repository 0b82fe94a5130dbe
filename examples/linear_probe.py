"""What does a frozen network know, layer by layer? One linear probe for each layer tells."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl

LAYERS = ["1", "3", "5"]


def backbone() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(10, 24), nn.ReLU(inplace=True), nn.Linear(24, 24), nn.ReLU(inplace=True), nn.Linear(24, 24), nn.Tanh()
    )
    return layers.requires_grad_(False)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """Is the sum of the first half larger than that of the second?"""
    torch.manual_seed(1)
    points = torch.randn(count, 128, 10)
    return [(x, (x[:, :5].sum(1) > x[:, 5:].sum(1)).long()) for x in points]


def probes() -> nn.ModuleDict:
    torch.manual_seed(2)
    return nn.ModuleDict({layer: nn.Linear(24, 2) for layer in LAYERS})


def train(model: nn.Sequential, heads: nn.ModuleDict, steps: int) -> dict[str, float]:
    """Train all probes on the same forward passes; return the last accuracy of each."""
    optimizer = torch.optim.Adam(heads.parameters(), lr=0.01)
    accuracy = {}
    for x, label in batches(steps):
        log = tl.log_forward_pass(model, x, layers_to_save=LAYERS)  # nothing in it is trained
        scores = {layer: head(log[layer].activation) for layer, head in heads.items()}
        optimizer.zero_grad()
        torch.stack([F.cross_entropy(each, label) for each in scores.values()]).sum().backward()
        optimizer.step()
        accuracy = {layer: (each.argmax(1) == label).float().mean().item() for layer, each in scores.items()}
    return accuracy


if __name__ == "__main__":
    for layer, accuracy in train(backbone(), probes(), steps=200).items():
        print(f"layer {layer}: {accuracy:.0%} right")

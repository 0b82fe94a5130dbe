"""What can be read off a frozen layer? Extract it once, then train a linear probe on what is on disk."""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torchlens as tl


def data() -> tuple[Tensor, Tensor]:
    """Is the sum of the first half larger than that of the second?"""
    torch.manual_seed(1)
    x = torch.randn(2000, 10)
    return x, (x[:, :5].sum(1) > x[:, 5:].sum(1)).long()


def backbone() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh()).eval()


def probe(layer: tl.StoredLayer, labels: Tensor, epochs: int = 20) -> float:
    """Train on the first 1,500 rows, and return the share of the others that are right."""
    torch.manual_seed(2)
    head = nn.Linear(layer.shape[1], 2)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    batches = DataLoader(list(zip(range(1500), labels, strict=False)), batch_size=100, shuffle=True)  # type: ignore[arg-type]
    for _ in range(epochs):
        for rows, label in batches:
            optimizer.zero_grad()
            F.cross_entropy(head(layer.torch(rows)), label).backward()
            optimizer.step()
    return float((head(layer.torch(slice(1500, None))).argmax(1) == labels[1500:]).float().mean())


def main(folder: Path) -> dict[str, float]:
    x, labels = data()
    store = tl.extract(backbone(), TensorDataset(x, labels), ["relu_1", "tanh"], folder / "acts", batch_size=250)
    return {name: probe(store[name], labels) for name in store}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for layer, right in main(Path(place)).items():
            print(f"{layer:<8} {right:.0%} right")

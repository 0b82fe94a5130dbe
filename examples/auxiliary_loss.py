"""Train with an auxiliary loss on a hidden layer: its activations are to be sparse."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """Points in three classes."""
    torch.manual_seed(1)
    centers = torch.randn(3, 10)
    labels = torch.randint(0, 3, (count, 64))
    return [(centers[label] + torch.randn(64, 10), label) for label in labels]


def train(model: nn.Sequential, steps: int, sparsity: float = 0.05) -> list[float]:
    """Minimise the task's loss and the mean activation of the second hidden layer, "3"; return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, label in batches(steps):
        log = tl.log_forward_pass(model, x, layers_to_save=["3", "self"], train_mode=True)
        loss = F.cross_entropy(log["self"].activation, label) + sparsity * log["3"].activation.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    losses = train(network(), steps=100)
    print(f"loss: {losses[0]:.3f} at first, {losses[-1]:.3f} after {len(losses)} steps")

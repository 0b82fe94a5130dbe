"""Teach a small network to answer, and to see on the way, as a larger one does."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl


def network(width: int) -> nn.Sequential:
    torch.manual_seed(width)
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Conv2d(width, 8, 3), nn.Tanh(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def images(count: int) -> list[Tensor]:
    torch.manual_seed(1)
    return list(torch.rand(count, 8, 3, 12, 12))


def train(student: nn.Sequential, teacher: nn.Sequential, steps: int) -> list[float]:
    """Bring the student's feature map ("4") and answers ("7") close to the teacher's; return the losses."""
    teacher.eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.5)
    losses = []
    for x in images(steps):
        taught = tl.log_forward_pass(teacher, x, layers_to_save=["4", "7"])
        learned = tl.log_forward_pass(student, x, layers_to_save=["4", "7"], train_mode=True)
        loss = sum(F.mse_loss(learned[layer].activation, taught[layer].activation) for layer in ("4", "7"))
        assert isinstance(loss, Tensor)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    losses = train(network(4), network(16), steps=60)
    print(f"loss: {losses[0]:.4f} at first, {losses[-1]:.4f} after {len(losses)} steps")

"""Log and draw a small model that has a bit of everything: recurrence, a condition, a buffer, noise of its own."""

from pathlib import Path

import torch
from torch import Tensor, nn

import torchlens as tl


class Demo(nn.Module):
    """A recurrent core that looks at the image three times, and a readout that depends on what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, kernel_size=3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.core = nn.Conv2d(8, 8, kernel_size=3, padding=1)
        self.readout = nn.Linear(8, 10)
        self.register_buffer("gain", torch.tensor(0.5))

    def forward(self, image: Tensor) -> Tensor:
        drive = self.stem(image)
        state = torch.zeros_like(drive)
        for _ in range(3):
            state = torch.relu(self.core(state) + drive)
        state = state + 0.01 * torch.randn(state.shape)
        features = state.mean(dim=(2, 3)) * self.gain
        if features.sum() > 0:
            return self.readout(features)
        return self.readout(-features)


if __name__ == "__main__":
    torch.manual_seed(0)
    log = tl.log_forward_pass(Demo().eval(), torch.rand(1, 3, 16, 16))
    print(log)
    print()
    print(log["readout"])
    print()
    folder = Path(__file__).parents[1] / "build"
    for mode in ("unrolled", "rolled"):
        path = log.draw(vis_mode=mode, vis_outpath=folder / f"demo_{mode}.svg", vis_save_only=True)
        print(f"Drawn: {path}")

"""The same extraction by two workers of Ray, which start on this machine; on a cluster, it is the same call.

Needs `pip install "forwardlens[ray]"`. The model and the images are given as functions, so each worker makes its own.
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlens as tl


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 10)).eval()


def images() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(64, 3, 16, 16)


def main(folder: Path) -> tuple[tl.Store, tl.Store]:
    """By one process and by two workers."""
    torch.set_num_threads(1)  # as a worker has: sums are rounded the same way
    one = tl.extract(network, images, ["0", "relu_1"], folder / "one", batch_size=8, shard_rows=8)
    two = tl.extract(
        network, images, ["0", "relu_1"], folder / "two", batch_size=8, shard_rows=8, backend="ray", workers=2
    )
    return one, two


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
        files = [
            (Path(place) / each / "shards" / f"{n:06d}.safetensors").read_bytes()
            for n in range(8)
            for each in ("one", "two")
        ]
        print("the same to the byte:", files[::2] == files[1::2])

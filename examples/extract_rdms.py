"""How alike are the layers of a network? Their representational dissimilarity matrices, compared with rsatoolbox.

Needs `pip install "forwardlens[rsa]"`. Each RDM holds how different the responses to every pair of images are.
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlens as tl

LAYERS = ["0", "relu_1", "relu_2", "6"]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).eval()


def images() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(30, 3, 16, 16)


def main(folder: Path) -> dict[str, float]:
    """Extract, make the RDMs, and compare each with that of the first layer."""
    from rsatoolbox.rdm import compare

    ids = [f"image{number}" for number in range(30)]
    store = tl.extract(network(), images(), LAYERS, folder / "acts", ids=ids, batch_size=10)
    rdms = {layer: store.rdm(layer, metric="correlation") for layer in store}
    return {layer: float(compare(rdms["0"], rdm, method="corr")[0, 0]) for layer, rdm in rdms.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for layer, alike in main(Path(place)).items():
            print(f"{layer:<8} {alike:.2f} like the first layer")

"""Another tool's extraction as a share of the plain loop's speed, in that tool's environment; see `extract.py`.

    python -m benchmarks.extract_peer thingsvision "ResNet-18 b16" 5 float32 3 8

prints the shares as one line of JSON. Nothing of this library is imported here: one of the tools has its name.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn


def resnet(batches: int) -> tuple[nn.Module, Tensor, int, list[str]]:
    torch.manual_seed(0)
    model = torchvision_models().resnet18().eval()
    return model, torch.rand(16 * batches, 3, 224, 224), 16, ["avgpool", "layer1", "layer2", "layer3", "layer4"]


def gpt2(batches: int) -> tuple[nn.Module, Tensor, int, list[str]]:
    torchvision_models()  # transformers imports torchvision, which may need help
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(use_cache=False)).eval()
    return model, torch.randint(0, 50257, (4 * batches, 128)), 4, ["ln_f", "h.0", "h.3", "h.6", "h.9"]


MODELS: dict[str, Callable[[int], tuple[nn.Module, Tensor, int, list[str]]]] = {
    "ResNet-18 b16": resnet,
    "GPT-2 b4": gpt2,
}


def plain(model: nn.Module, x: Tensor, size: int) -> float:
    began = time.perf_counter()
    with torch.no_grad():
        for start in range(0, len(x), size):
            model(x[start : start + size])
    return time.perf_counter() - began


def thingsvision(
    model: nn.Module, x: Tensor, size: int, layers: list[str], dtype: torch.dtype, folder: str
) -> Callable[[], Any]:
    from thingsvision import get_extractor_from_model

    if dtype != torch.float32:
        raise NotImplementedError("it stores float32 only")
    extractor = get_extractor_from_model(model=model, device="cpu", backend="pt")
    batches = [x[start : start + size] for start in range(0, len(x), size)]
    which = {"module_name": layers[0]} if len(layers) == 1 else {"module_names": layers}
    return lambda: extractor.extract_features(batches=batches, output_dir=folder, step_size=4, **which)


def torchlens(
    model: nn.Module, x: Tensor, size: int, layers: list[str], dtype: torch.dtype, folder: str
) -> Callable[[], Any]:
    import torchlens as other

    stored = None if dtype == torch.float32 else dtype
    return lambda: other.extract_dataset(model, x, layers, size, output_dir=folder, progress=False, dtype=stored)


PEERS: dict[str, Callable[..., Callable[[], Any]]] = {"thingsvision": thingsvision, "torchlens newest": torchlens}


def timed(peer: str, *asked: Any) -> float:
    """Seconds of one extraction into an empty folder."""
    folder = tempfile.mkdtemp()
    try:
        extraction = PEERS[peer](*asked, folder)
        began = time.perf_counter()
        extraction()
        took = time.perf_counter() - began
        if not any(path.is_file() for path in Path(folder).rglob("*")):
            raise RuntimeError("nothing was written")
        return took
    finally:
        shutil.rmtree(folder)


def main(peer: str, name: str, count: int, dtype: str, rounds: int, batches: int) -> None:
    model, x, size, layers = MODELS[name](batches)
    asked = (peer, model, x, size, layers[:count], getattr(torch, dtype))
    timed(*asked)
    shares, before = [], plain(model, x, size)
    for _ in range(rounds):
        took = timed(*asked)
        after = plain(model, x, size)
        shares.append((before + after) / 2 / took)
        before = after
    print(json.dumps(shares))


if __name__ == "__main__":
    peer, name, count, dtype, rounds, batches = sys.argv[1:]
    main(peer, name, int(count), dtype, int(rounds), int(batches))

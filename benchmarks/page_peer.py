"""The graph of a model in another tool's viewer, in that tool's environment; see `page.py`.

    python -m benchmarks.page_peer netron "nested 10000" FOLDER PORT

prepares what the tool shows, in FOLDER, and prints one line of JSON: the address to open, that of everything opened
if it is another one, and the CPU seconds that preparing the first took. It serves them, on this machine only, until
it is stopped.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import torch
from benchmarks.synthetic import SYNTHETIC
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

RECURSION = 100_000  # deep enough for tools that walk ten thousand operations by recursion


def swin() -> tuple[nn.Module, Tensor]:
    return torchvision_models().swin_v2_b().eval(), torch.rand(1, 3, 64, 64)


def synthetic(kind: str, size: int) -> Callable[[], tuple[nn.Module, Tensor]]:
    return lambda: (SYNTHETIC[kind](size).eval(), torch.rand(3, 4))


#: What is shown, with how many operations it has, about.
GRAPHS: dict[str, tuple[int, Callable[[], tuple[nn.Module, Tensor]]]] = {"swin_v2_b": (1_500, swin)}
for size in (10_000, 50_000):
    for kind in ("nested", "nested, hub"):
        GRAPHS[f"{kind} {size}"] = size, synthetic(kind, size)


def netron(model: nn.Module, x: Tensor, folder: Path, port: int) -> Iterator[str]:
    """From a file that torch exports to ONNX, by tracing: of ten thousand operations the newer way takes minutes."""
    import netron as viewer

    path = folder / "model.onnx"
    torch.onnx.export(model, (x,), path, dynamo=False, verbose=False)
    viewer.start(str(path), address=("127.0.0.1", port), browse=False)
    yield f"http://127.0.0.1:{port}/"


def model_explorer(model: nn.Module, x: Tensor, folder: Path, port: int) -> Iterator[str]:
    """From the program that torch.export makes."""
    import model_explorer as viewer

    config = viewer.config()
    config.add_model_from_pytorch("model", torch.export.export(model, (x,)))

    def serve() -> None:
        viewer.visualize_from_config(config, host="127.0.0.1", port=port, no_open_in_browser=True)

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{port}/?data={config.to_url_param_value()}"


def torchvista(model: nn.Module, x: Tensor, folder: Path, port: int) -> Iterator[str]:
    """A page that it writes, and another one with all modules open."""
    import torchvista as viewer

    pages = {"page": {}, "all": {"collapse_modules_after_depth": 999}}
    for name, options in pages.items():
        viewer.trace_model(model, x, export_format="html", export_path=str(folder / f"{name}.html"), **options)
        yield (folder / f"{name}.html").as_uri()


VIEWERS: dict[str, Callable[[nn.Module, Tensor, Path, int], Iterator[str]]] = {
    "netron": netron,
    "model explorer": model_explorer,
    "torchvista": torchvista,
}


def main(viewer: str, graph: str, folder: str, port: str) -> None:
    torch.manual_seed(0)
    sys.setrecursionlimit(RECURSION)
    told, sys.stdout = sys.stdout, sys.stderr  # what tools print, from whatever thread, is no answer
    model, x = GRAPHS[graph][1]()
    import_module(viewer.replace(" ", "_"))
    begin = time.process_time()
    pages = VIEWERS[viewer](model, x, Path(folder), int(port))
    first = next(pages)
    seconds = time.process_time() - begin
    print(json.dumps({"urls": [first, *pages], "seconds": seconds}), file=told, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Try every part of the package with a torch that lacks a private name.

Imports nothing of the package: the name is hidden while that is imported.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.fc(x))) + 1
        y[0] += 1
        return y * 2 if y.sum() > 0 else y


def forward_pass(tl: Any, folder: Path) -> None:
    model, x = Small().eval(), torch.rand(3, 4)
    log = tl.log_forward_pass(model, x)
    assert torch.equal(log.layer_list[-1].activation, model(x))
    assert torch.equal(log["fc"].activation, model.fc(x))
    assert log.validate() and not tl.lint(log) and not log.warnings


def training(tl: Any, folder: Path) -> None:
    model, x = Small(), torch.rand(3, 4)
    log = tl.log_forward_pass(model, x, save_gradients=True)
    log.log_backward(log.layer_list[-1].activation.sum())
    gradient = model.fc.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    assert torch.allclose(gradient, model.fc.weight.grad)
    assert log["fc"].gradient is not None


def replaying(tl: Any, folder: Path) -> None:
    model = Small().eval()
    log = tl.log_forward_pass(model, torch.rand(3, 4))
    x = torch.rand(3, 4)
    log.save_new_activations(model, x)
    with torch.no_grad():
        assert torch.equal(log.replay(from_layer="fc"), model(x))


def saving(tl: Any, folder: Path) -> None:
    log = tl.log_forward_pass(Small().eval(), torch.rand(3, 4))
    tl.save(log, folder / "bundle")
    loaded = tl.load(folder / "bundle")
    assert loaded.layer_labels == log.layer_labels
    assert torch.equal(loaded["fc"].activation, log["fc"].activation)


def drawing(tl: Any, folder: Path) -> None:
    log = tl.log_forward_pass(Small().eval(), torch.rand(3, 4))
    log.draw(vis_outpath=str(folder / "model.svg"), vis_save_only=True)
    assert (folder / "model.svg").exists()


def fastlog(tl: Any, folder: Path) -> None:
    model, x = Small().eval(), torch.rand(3, 4)
    with tl.fastlog.Recorder(model, keep_op="linear") as recorder:
        recorder.log(x)
    assert torch.equal(recorder.recording.records[0].activation, model.fc(x))
    assert torch.equal(tl.pluck(model, x, "fc"), model.fc(x))


def completeness(tl: Any, folder: Path) -> None:
    log = tl.log_forward_pass(Small().eval(), torch.rand(3, 4), check_completeness=True)
    assert log.completeness


class Transformed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: row.exp() * 2)(x) + 1


def transforms(tl: Any, folder: Path) -> None:
    model, x = Transformed(), torch.rand(3, 4)
    log = tl.log_forward_pass(model, x)
    assert torch.equal(log.layer_list[-1].activation, model(x))
    assert log.warnings or log.validate()


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.jit.script(nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


def scripts(tl: Any, folder: Path) -> None:
    model, x = Scripted(), torch.rand(3, 4)
    log = tl.log_forward_pass(model, x)
    assert torch.equal(log.layer_list[-1].activation, model(x))
    assert log.warnings or log.validate()


def swaps(tl: Any, folder: Path) -> None:
    class Swapping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b = x * 2, x * 3
            torch.utils.swap_tensors(a, b)
            return a + 1

    x = torch.rand(3)
    log = tl.log_forward_pass(Swapping(), x)
    assert torch.equal(log.layer_list[-1].activation, x * 3 + 1)
    assert log.warnings or log["add"].parent_layers == ["mul_2_2"]


PARTS: list[Callable[[Any, Path], None]] = [
    forward_pass, training, replaying, saving, drawing, fastlog, completeness, transforms, scripts, swaps,
]  # fmt: skip


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """The attribute is not there, for a while; a module can't be imported."""
    owner_name, _, attribute = name.rpartition(".")
    owner: Any = torch
    for step in owner_name.split(".")[1:]:
        owner = getattr(owner, step)
    own = vars(owner).get(attribute)
    if own is None:  # of a class above
        setattr(owner, attribute, NotThere())
    else:
        delattr(owner, attribute)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, own)


class NotThere:
    def __get__(self, instance: Any, owner: Any) -> Any:
        raise AttributeError


def tried(name: str) -> dict[str, str]:
    """What came of each part without this name: "right", "refused" as it should, or what went wrong."""
    torch.manual_seed(0)
    with hidden(name):
        import torchlens as tl
    said = {}
    for part in PARTS:
        with TemporaryDirectory() as folder:
            try:
                part(tl, Path(folder))
                said[part.__name__] = "right"
            except tl.TorchVersionError as error:
                said[part.__name__] = "refused" if name.rpartition(".")[2] in str(error) else f"refused: {error}"
            except BaseException as error:
                said[part.__name__] = f"{type(error).__name__}: {error}"
    return said


def main() -> None:
    """Print as JSON what came of each part without each of the names in the arguments: one forked process for each."""
    found = {}
    for name in sys.argv[1:]:
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, json.dumps(tried(name)).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            found[name] = json.loads(answer.read() or b'{"all": "the process died"}')
        os.wait()
    print(json.dumps(found))


if __name__ == "__main__":
    main()

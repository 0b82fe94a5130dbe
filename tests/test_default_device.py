"""`torch.set_default_device`: where new tensors of the user's are made says nothing about ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)]
    return nn.Sequential(*layers)


def inputs() -> Tensor:
    return torch.linspace(-1, 1, 12).reshape(3, 4)


def logged(network: nn.Module, x: Tensor, **options: Any) -> tl.ModelLog:
    return tl.log_forward_pass(network, x, random_seed=0, **options)


def saved_and_loaded(network: nn.Module, x: Tensor, folder: Path) -> Any:
    tl.save(logged(network, x), folder / "log")
    return [op.activation for op in tl.load(folder / "log")]


def overlapping_writes(network: nn.Module, x: Tensor, folder: Path) -> Any:
    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x + 1
            columns, rows = y[:, ::2], y[1:]
            columns.mul_(2)
            return rows + 1

    log = logged(Writing(), x)
    return bool(log.validate()), [op.activation for op in log]


def gradients(network: nn.Module, x: Tensor, folder: Path) -> Any:
    log = logged(network, x, save_gradients=True)
    log.output.sum().backward()
    return [op.gradient for op in log]


def swept(network: nn.Module, x: Tensor, folder: Path) -> Any:
    effects = tl.sweep(logged(network.eval(), x), sites="3", over=-1, edit=tl.edits.zero(), metric=lambda o: o.sum())
    return [row.effect for row in effects]


def extracted(network: nn.Module, x: Tensor, folder: Path) -> Any:
    project = tl.reduce.random_projection(2)
    store = tl.extract(network.eval(), x, ["0", "5"], save_to=folder / "store", batch_size=2, reduce={"0": project})
    return bool(store.verify()), [store[name][:].tolist() for name in ("0", "5")]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.device == other.device and torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


PARTS: dict[str, Callable[[nn.Module, Tensor, Path], Any]] = {
    "log": lambda network, x, folder: [op.activation for op in logged(network, x)],
    "writes": overlapping_writes,
    "validate": lambda network, x, folder: bool(tl.validate_model_activations(network, x)),
    "validate backward": lambda network, x, folder: bool(tl.validate_backward_pass(network, x)),
    "gradients": gradients,
    "replay": lambda network, x, folder: logged(network, x).replay(),
    "noise": lambda network, x, folder: logged(network, x, interventions={"3": tl.edits.noise(1.0)}).output,
    "resample": lambda network, x, folder: logged(network, x, interventions={"3": tl.edits.resample(x * 2)}).output,
    "sweep": swept,
    "save": saved_and_loaded,
    "compare": lambda network, x, folder: str(tl.compare(logged(network, x), logged(network, x + 1)).status),
    "fastlog": lambda network, x, folder: tl.fastlog.record(network, x, keep_op=lambda ctx: True)[-1].activation,
    "pluck": lambda network, x, folder: tl.pluck(network, x, "3"),
    "extract": extracted,
    "page": lambda network, x, folder: logged(network, x).to_html(folder / "page.html").exists(),
}


@pytest.mark.parametrize("part", PARTS)
def test_it_changes_nothing(part: str, tmp_path: Path) -> None:
    usual, elsewhere = model(), model()
    x = inputs()
    torch.manual_seed(1)
    expected = PARTS[part](usual, x, tmp_path / "usual")
    torch.manual_seed(1)
    with torch.device("meta"):
        found = PARTS[part](elsewhere, x, tmp_path / "elsewhere")
    assert same(found, expected)

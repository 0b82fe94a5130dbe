"""The examples run, and train exactly as the same loops written by hand, with hooks, do."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLES_RUN = [
    "auxiliary_loss",
    "distillation",
    "fastlog_history",
    "fastlog_rollouts",
    "linear_probe",
    "written_out",
]


@pytest.mark.parametrize("name", EXAMPLES_RUN)
def test_examples_run(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout and not list(tmp_path.iterdir())


@contextmanager
def tapped(model: nn.Module, *addresses: str) -> Iterator[dict[str, Tensor]]:
    seen: dict[str, Tensor] = {}
    handles = [
        model.get_submodule(a).register_forward_hook(lambda module, args, result, a=a: seen.update({a: result}))
        for a in addresses
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def assert_equal_models(one: nn.Module, other: nn.Module) -> None:
    for (name, first), (_, second) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(first, second), name


def test_an_auxiliary_loss() -> None:
    example = load("auxiliary_loss")
    model, twin = example.network(), example.network()
    losses = example.train(model, 30)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    by_hand = []
    for x, label in example.batches(30):
        with tapped(twin, "3") as seen:
            loss = F.cross_entropy(twin(x), label) + 0.05 * seen["3"].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        by_hand.append(loss.item())
    assert losses == by_hand and losses[-1] < losses[0]
    assert_equal_models(model, twin)


def test_distillation() -> None:
    example = load("distillation")
    student, twin, teacher = example.network(4), example.network(4), example.network(16)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    losses = example.train(student, teacher, 20)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    by_hand = []
    for x in example.images(20):
        with torch.no_grad(), tapped(teacher, "4", "7") as taught:
            teacher(x)
        with tapped(twin, "4", "7") as learned:
            twin(x)
        loss = sum(F.mse_loss(learned[layer], taught[layer]) for layer in ("4", "7"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        by_hand.append(loss.item())
    assert losses == by_hand and losses[-1] < losses[0]
    assert_equal_models(student, twin)
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_linear_probes() -> None:
    example = load("linear_probe")
    model, heads, twins = example.backbone(), example.probes(), example.probes()
    accuracy = example.train(model, heads, 60)
    optimizer = torch.optim.Adam(twins.parameters(), lr=0.01)
    for x, label in example.batches(60):
        with tapped(model, *example.LAYERS) as seen:
            model(x)
        optimizer.zero_grad()
        torch.stack([F.cross_entropy(head(seen[layer]), label) for layer, head in twins.items()]).sum().backward()
        optimizer.step()
    assert_equal_models(heads, twins)
    assert min(accuracy.values()) > 0.6
    assert all(p.grad is None and not p.requires_grad for p in model.parameters())


def test_a_probe_on_what_was_extracted(tmp_path: Path) -> None:
    right = load("extract_probe").main(tmp_path)
    assert set(right) == {"relu_1", "tanh"} and min(right.values()) > 0.85


@pytest.mark.handover
def test_rdms_of_layers(tmp_path: Path) -> None:
    alike = load("extract_rdms").main(tmp_path)
    assert alike["0"] == pytest.approx(1) and all(-1 <= each <= 1 for each in alike.values()) and len(alike) == 4


@pytest.mark.ray
def test_the_same_extraction_on_ray() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "extract_on_ray.py")], capture_output=True, text=True, check=True
    )
    assert "the same to the byte: True" in done.stdout

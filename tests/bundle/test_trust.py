"""What a loaded log may run: not what anybody wrote into a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.bundle.test_bad_input import edit_metadata
from tests.models import CASES, Forward
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl
from torchlens.bundle import trust
from torchlens.bundle.function_names import _functions, find


def saved(path: Path, forward: Callable[[Tensor], Any]) -> Path:
    tl.save(tl.log_forward_pass(Forward(forward), torch.rand(4, 3)), path / "log")
    return path / "log"


def renamed(path: Path, name: str) -> Path:
    """Let the file call another function than `relu`."""

    def change(tables: Any) -> None:
        for row in tables["functions"]:
            if row[0] == "relu":
                row[1] = name

    edit_metadata(path, change)
    return path


HARMFUL = [
    "torch.ops.aten._segment_reduce_backward", "torch.segment_reduce", "torch.ops.aten.segment_reduce.default",
    "torch.Tensor.set_", "torch.Tensor.resize_", "torch.ops.aten.relu.default", "torch._embedding_bag",
    "torch.quantized_max_pool2d", "torch._C._sparse._sparse_mm", "torch.Tensor.data.__set__", "torch.frombuffer",
    "torch.lstm", "torch.gru", "torch.rnn_tanh", "torch.rnn_relu", "torch.lstm_cell", "torch.gru_cell",
]  # fmt: skip


@pytest.mark.parametrize("name", HARMFUL)
def test_what_is_not_on_the_list_does_not_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = renamed(saved(tmp_path, torch.relu), name)
    log = tl.load(path)
    report = log.validate()
    assert [label for label, _ in report.unverified] == ["relu_1_1"] and not report.replayed
    with pytest.raises((tl.UntrustedError, tl.UnknownFunctionError)):
        log.replay()
    str(log), log["relu"].func_applied, log.to_dot()


def test_trust_runs_it(tmp_path: Path) -> None:
    path = renamed(saved(tmp_path, torch.relu), "torch.ops.aten.relu.default")
    assert tl.load(path, trust=True).validate().replayed == ["relu_1_1"]
    assert tl.ModelLog.load(path, trust=True).validate().replayed == ["relu_1_1"]
    assert torch.equal(tl.load(path, trust=True).replay(), tl.load(path)[-1].activation)


def huge(tables: Any) -> None:
    """Let the file ask for a terabyte."""
    for call in tables["calls"]:
        text = json.dumps(call)
        call[:] = json.loads(text.replace("12345", str(10**12)))


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.sum() + torch.zeros(12345).sum(),
        lambda x: x.sum() + torch.arange(12345).sum(),
        lambda x: x.repeat(12345, 1).sum(),
        lambda x: x[:1, :1].expand(12345, 1) + 1,
        lambda x: torch.nn.functional.pad(x, (12345, 0)).sum(),
        lambda x: torch.ones(1).new_full((12345,), 2.0).sum() + x,
    ],
)
def test_sizes_are_checked(forward: Callable[[Tensor], Any], tmp_path: Path) -> None:
    path = saved(tmp_path, forward)
    assert tl.load(path).validate(perturb=False)
    edit_metadata(path, huge)
    log = tl.load(path)
    reasons = [reason for _, reason in log.validate(perturb=False).unverified]
    found = [*reasons, *[problem.what for problem in log.validate(perturb=False).problems]]
    assert any("bytes" in reason or "shape" in reason or "expand" in reason for reason in found)


def test_a_terabyte_of_memory_is_not_laid_out(tmp_path: Path) -> None:
    def aliased(x: Tensor) -> Tensor:
        y = x * 2
        y[1].add_(1)
        return y + 1

    path = saved(tmp_path, aliased)
    assert tl.load(path).validate()

    def change(tables: Any) -> None:
        text = json.dumps(tables["calls"])
        tables["calls"][:] = json.loads(
            text.replace('["layout", [4, 3], [3, 1], 0,', f'["layout", [4, 3], [3, 1], {10**12},')
        )

    edit_metadata(path, change)
    unverified = tl.load(path).validate(perturb=False).unverified
    assert len(unverified) == 1 and "far more than its tensors" in unverified[0][1]


def test_common_models_need_no_trust(tmp_path: Path) -> None:
    model = torchvision_models().resnet18(weights=None).eval()
    tl.save(tl.log_forward_pass(model, torch.rand(1, 3, 32, 32)), tmp_path / "resnet18")
    assert tl.load(tmp_path / "resnet18").validate(perturb=False).unverified == []
    encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    tl.save(tl.log_forward_pass(encoder, torch.rand(2, 5, 8)), tmp_path / "encoder")
    report = tl.load(tmp_path / "encoder").validate()
    assert report and report.unverified == [] and len(report.replayed) > 20
    for kind in ("tanh", "relu"):
        cell = nn.RNNCell(4, 3, nonlinearity=kind)
        tl.save(tl.log_forward_pass(cell, torch.rand(2, 4)), tmp_path / kind)
        report = tl.load(tmp_path / kind).validate()
        assert report and report.unverified == [] and f"rnn{kind}cell_1_2" in report.replayed


def test_the_list_names_functions_that_exist_and_are_public() -> None:
    allowed = [name for name in _functions() if trust.is_allowed(name)]
    assert len(allowed) > 400 and all(find(name) is not None for name in allowed)
    short = {name.rpartition(".")[2] for name in allowed}
    assert not any(name.startswith("_") and not name.startswith("__") for name in short)
    known = {name.removesuffix("_") for name in short} | short | {name[2:-2] for name in short if name.startswith("__")}
    assert trust._ALLOWED - known == set() and trust._OPERATORS - known == set()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name in ("condition", "InPlaceReluModule", "Dropouts")],
    ids=lambda case: case.name,
)
def test_trusted_or_not_the_answer_is_the_same(case: Any, tmp_path: Path) -> None:
    log = tl.log_forward_pass(case.build(), case.inputs(), case.kwargs())
    tl.save(log, tmp_path / "log")
    for trusted in (True, False):
        assert bool(tl.load(tmp_path / "log", trust=trusted).validate()) == bool(log.validate())

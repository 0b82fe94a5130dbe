"""dry_run: what would be kept, without keeping it, as often as asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.fastlog.test_recorder import CHOICES, Net, X
from torch import nn

import torchlens as tl
from torchlens.fastlog import CaptureSpec, dry_run, record


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize(("chosen", "expected"), CHOICES, ids=lambda thing: str(thing).split(" at 0x")[0][:50])
def test_a_preview_says_what_a_run_keeps(net: nn.Module, chosen: dict[str, Any], expected: Any) -> None:
    runs: list[int] = []
    handle = net.register_forward_hook(lambda *_: runs.append(1))
    try:
        tried = dry_run(net, X, keep_op="mean").retry(**chosen)
        assert runs == [1]
    finally:
        handle.remove()
    found = list(dict.fromkeys(r.context.event_index for r in record(net, X, **chosen)))
    assert [context.event_index for context in tried.kept] == found
    assert [c.event_index for c in dry_run(net, X, **chosen).kept] == found


def test_text_and_tables(net: nn.Module) -> None:
    preview = dry_run(net, X, keep_op=["relu", "mean"], keep_module="head:2")
    lines = str(preview).splitlines()
    assert lines[0] == "5 of 34 events would be kept, 1.8 KB" and lines[1:3] == ["  input_1_0", "  self:1"]
    assert "            * relu_1_5  3x2x6x6" in lines and "    * head:2  returned" in lines
    assert preview.table().splitlines()[0].split()[:3] == ["event_index", "kind", "label"]
    assert len(preview.table().splitlines()) == 6
    table = preview.to_pandas()
    assert list(table[table["kept"]]["label"]) == ["relu_1_5", "relu_2_7", "mean_1_8", "relu_3_13", "head:2"]
    assert len(table) == len(preview.events)


def test_the_picture_marks_what_would_be_kept(net: nn.Module, tmp_path: Path) -> None:
    preview = dry_run(net, X, keep_op="relu", keep_module="features.0")
    marked = [line.split('"')[1] for line in preview.to_dot().splitlines() if "#FFD966" in line]
    assert sorted(label.split("_")[0] for label in marked) == ["conv2d", "relu", "relu", "relu"]
    path = preview.draw(vis_outpath=tmp_path / "preview.svg", vis_save_only=True)
    assert path.read_text().upper().count("#FFD966") >= 4
    rolled = [line for line in preview.to_dot(vis_mode="rolled").splitlines() if "#FFD966" in line]
    assert len(rolled) == 4
    with pytest.raises(tl.ArgumentError, match="vis_node_overrides"):
        preview.to_dot(vis_node_overrides={})


def test_bytes_follow_the_spec(net: nn.Module) -> None:
    preview = dry_run(net, X, keep_op="relu")
    half = preview.retry(keep_op=lambda ctx: CaptureSpec(dtype=torch.float16) if ctx.layer_type == "relu" else False)
    assert half.nbytes * 2 == preview.nbytes
    none = preview.retry(keep_op=lambda ctx: CaptureSpec(save_activation=False))
    assert none.nbytes == 0


def test_a_size_that_is_a_symbol() -> None:
    class Ragged(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ragged: torch.Tensor = torch.nested.nested_tensor_from_jagged(x * 2, torch.tensor([0, 2, 3]))
            return (ragged + 1).values() - 1  # type: ignore[no-any-return, operator]

    preview = dry_run(Ragged(), torch.ones(3, 4), keep_op=["mul", "add", "sub"])
    assert preview.nbytes == 2 * 48  # of the jagged one no size is known before it is there
    assert "add_1" in str(preview) and "2x?x4" in str(preview)


def test_errors(net: nn.Module) -> None:
    with pytest.raises(tl.ArgumentError, match="nothing is chosen"):
        dry_run(net, X)
    preview = dry_run(net, X, keep_op="relu")
    with pytest.raises(tl.ArgumentError, match="ZeroDivisionError for input_1_0"):
        preview.retry(keep_op=lambda ctx: 1 / 0)
    with pytest.raises(tl.ArgumentError, match="returned 'relu'"):
        preview.retry(keep_op=lambda ctx: "relu")


def test_a_preview_of_an_edited_run() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.relu(x)
            return x.tanh() if x.sum() > 0 else x.sin()

    def kept(**more: Any) -> list[str]:
        return [context.label for context in dry_run(Gate(), X.abs() + 1, keep_op=["tanh", "sin"], **more).kept]

    assert kept() == ["tanh_1_4"] and kept(interventions={"relu": tl.edits.zero()}) == ["sin_1_4"]

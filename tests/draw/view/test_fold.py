"""Repeated identical blocks are drawn once, with their number."""

from __future__ import annotations

import torch
from tests.draw.view.test_view import texts, view_of
from torch import Tensor, nn

import torchlens as tl
from torchlens.draw.view.elements import View


class Block(nn.Module):
    def __init__(self, width: int = 4, shift: bool = False) -> None:
        super().__init__()
        self.norm, self.body = nn.LayerNorm(4), nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 4))
        self.shift = shift

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.body(self.norm(x))
        return x + (torch.roll(y, 1) if self.shift else y) * mask


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, mask)
        return x


def folded(*blocks: nn.Module, **arguments: object) -> View:
    log = tl.log_forward_pass(Stack(*blocks), [torch.rand(2, 4), torch.rand(2, 4)])
    return view_of(log, vis_fold_repeats=True, **arguments)


def arrows(view: View) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in view.edges}


def outer_boxes(view: View) -> list[str]:
    return [group.lines[0].text for group in view.groups if group.parent is None]


def test_equal_blocks_are_one_box() -> None:
    view, single = folded(Block(), Block(), Block()), folded(Block())
    assert outer_boxes(view) == ["@blocks.0 ... @blocks.2 (x3)"]
    assert view.notes == ("3 identical Block drawn once: @blocks.0 to @blocks.2",)
    assert len(view.nodes) == len(single.nodes)
    numbered = [{(s.rpartition("_")[0], t.rpartition("_")[0]) for s, t in arrows(v)} for v in (view, single)]
    assert numbered[0] == numbered[1]


def test_a_different_block_stays_alone() -> None:
    view = folded(Block(), Block(), Block(8), Block())
    assert outer_boxes(view) == ["@blocks.0 ... @blocks.1 (x2)", "@blocks.2", "@blocks.3"]
    assert outer_boxes(folded(Block(), Block(8))) == ["@blocks.0", "@blocks.1"]


def test_blocks_that_alternate() -> None:
    view = folded(*(Block(shift=number % 2 == 1) for number in range(6)))
    assert outer_boxes(view) == ["@blocks.0 ... @blocks.4 (x3)", "@blocks.1 ... @blocks.5 (x3)"]
    between = [(s, t) for s, t in arrows(view) if s.startswith("add_1_") and t.startswith("layernorm_2")]
    assert len(between) == 1, "the first kind feeds the second"


def test_collapsed_blocks() -> None:
    view = folded(Block(), Block(), Block(), vis_nesting_depth=1)
    assert [texts(node.lines)[0] for node in view.nodes] == [
        "input_1_0",
        "input_2_1",
        "@blocks.0 ... @blocks.2 (x3)",
        "output_1_20",
    ]
    assert arrows(view) == {
        ("input_1_0", "module @blocks.0"),
        ("input_2_1", "module @blocks.0"),
        ("module @blocks.0", "output_1_20"),
    }


class Twice(nn.Module):
    """Two equal stages of equal blocks: a run inside a run."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Stack(Block(), Block(), Block()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x, x)
        return x


def test_runs_in_runs() -> None:
    view = view_of(tl.log_forward_pass(Twice(), torch.rand(2, 4)), vis_fold_repeats=True)
    names = [group.lines[0].text for group in view.groups if "..." in group.lines[0].text]
    assert names == ["@stages.0 ... @stages.1 (x2)", "@.blocks.0 ... @.blocks.2 (x3)"]
    order = {node.id: number for number, node in enumerate(view.nodes)}
    assert all(order[source] < order[target] for source, target in arrows(view)), "no edge leads back"


def test_recurrent_blocks_fold_in_a_rolled_picture() -> None:
    block = Block()
    view = folded(block, block, Block(), Block(), vis_mode="rolled")
    assert len([node for node in view.nodes if node.id.startswith("layernorm")]) == len(outer_boxes(view))

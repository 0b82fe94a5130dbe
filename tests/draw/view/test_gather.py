"""What is one thing to the reader is one node."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.draw.view.test_view import edge, log_case, node, texts, view_of
from tests.models import CASES, Case
from torch import Tensor, nn

import torchlens as tl
from torchlens.draw.draw_options import DrawOptions
from torchlens.draw.view.build import make_view
from torchlens.draw.view.contents import make_contents


class Forward(nn.Module):
    """A model of a function, with modules to use."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def log_of(function: Callable[..., Any], *inputs: Any, **modules: nn.Module) -> tl.ModelLog:
    torch.manual_seed(0)
    return tl.get_model_metadata(Forward(function, **modules), list(inputs))


def ids(log: tl.ModelLog, **options: Any) -> list[str]:
    return [node.id for node in view_of(log, **options).nodes]


# ---- several results of one call ------------------------------------------------------------------------------


@functools.cache
def lstm() -> tl.ModelLog:
    def forward(model: Any, x: Tensor) -> Any:
        sequence, (hidden, cell) = model.lstm(x)
        return sequence.relu(), hidden, cell

    return log_of(forward, torch.rand(1, 6, 8), lstm=nn.LSTM(8, 16, batch_first=True))


def test_lstm_is_one_node_with_three_outputs() -> None:
    view = view_of(lstm())
    assert [each.id for each in view.nodes] == ["input_1_0", "lstm_1_3", "relu_1_6", *lstm().output_layers]
    shown = node(view, "lstm_1_3")
    assert shown.shape == "box" and shown.group is None
    assert texts(shown.lines) == [
        "lstm_1_3",
        "3 outputs: 1x6x16, 1x1x16, 1x1x16 (512 B)",
        "params: 64x8, 64x16, x64, x64",
        "@lstm",
    ]
    assert texts(edge(view, "lstm_1_3", "relu_1_6").tail_label) == ["lstm_1_3"]
    assert texts(edge(view, "lstm_1_3", "output_2_8").tail_label) == ["lstm_2_4"]
    assert view.notes == ('2 constants not drawn: vis_buffers="always"',)


def test_every_tensor_on_request() -> None:
    assert ids(lstm(), vis_gather=False) == lstm().op_labels
    assert "zeros_1_1" in ids(lstm(), vis_buffers="always")


def test_rolled_results_of_one_call() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        for _ in range(3):
            x = model.fc(x)
            low, high = x.chunk(2, dim=1)
            x = torch.cat([high, low], dim=1)
        return x

    view = view_of(log_of(forward, torch.rand(2, 4), fc=nn.Linear(4, 4)), vis_mode="rolled")
    shown = next(node for node in view.nodes if node.id.startswith("chunk"))
    assert texts(shown.lines) == [f"{shown.id} (x3)", "2 outputs: 2x2 (16 B) each"]


# ---- containers -----------------------------------------------------------------------------------------------


def test_outputs_of_one_container() -> None:
    log = log_of(lambda _, x: {"logits": x + 1, "cache": [(x * i, x - i) for i in range(3)]}, torch.rand(5))
    view = view_of(log)
    assert texts(node(view, "output_2_9").lines) == [
        "output_2_9 ... output_7_14",
        "6 tensors: x5 (20 B) each",
        "cache",
    ]
    assert [each.id for each in view.nodes if each.fill == node(view, "output_1_8").fill] == [
        "output_1_8",
        "output_2_9",
    ]
    assert sum(each.target == "output_2_9" for each in view.edges) == 6


def test_few_outputs_stay_apart() -> None:
    log = log_of(lambda _, x: (x + 1, (x * 2, x * 3)), torch.rand(5))
    assert [each for each in ids(log) if each.startswith("output")] == log.output_layers


def test_inputs_of_one_container() -> None:
    log = log_of(lambda _, x, many: x + torch.stack(many).sum(0), torch.rand(5), [torch.rand(5) for _ in range(4)])
    view = view_of(log)
    assert texts(node(view, "input_2_1").lines)[:2] == ["input_2_1 ... input_5_4", "4 tensors: x5 (20 B) each"]
    stack = next(each for each in view.edges if each.source == "input_2_1")
    assert texts(stack.label) == ["4 tensors"]


# ---- fans -----------------------------------------------------------------------------------------------------


def test_a_wide_fan_is_one_edge_with_a_count() -> None:
    log = log_of(lambda _, x: torch.cat([x[i] for i in range(300)]), torch.rand(300, 4))
    view = view_of(log)
    assert [each.id for each in view.nodes] == ["input_1_0", "getitem_1_1", "cat_1_301", "output_1_302"]
    assert texts(view.nodes[1].lines) == ["getitem_1_1 ... getitem_300_300", "300 tensors: x4 (16 B) each"]
    into = edge(view, "getitem_1_1", "cat_1_301")
    assert texts(into.label) == ["300 tensors"] and texts(into.head_label) == ["arg 0[0] ... 0[299]"]


def test_chains_side_by_side() -> None:
    log = log_of(lambda _, x: torch.stack([row.relu() * 2 for row in x.unbind()]), torch.rand(50, 4))
    for mode in ("unrolled", "rolled"):
        kinds = [each.split("_")[0] for each in ids(log, vis_mode=mode)]
        assert kinds == ["input", "unbind", "relu", "mul", "stack", "output"]


def test_an_ensemble_names_its_members() -> None:
    members = nn.ModuleList([nn.Linear(4, 4) for _ in range(20)])
    log = log_of(
        lambda model, x: torch.stack([member(x) for member in model.members]), torch.rand(2, 4), members=members
    )
    shown = node(view_of(log), "linear_1_1")
    assert texts(shown.lines)[2:] == ["params: 4x4, x4", "@members.0 ... @members.19"]


def test_what_is_fed_by_different_nodes_is_not_alike() -> None:
    def forward(_: Any, x: Tensor) -> Tensor:
        low, high = x + 1, x + 2
        return torch.cat([*(low[i] for i in range(20)), *(high[i] for i in range(20))])

    nodes = [each for each in ids(log_of(forward, torch.rand(20, 4))) if each.startswith("getitem")]
    assert nodes == ["getitem_1_3", "getitem_21_23"]


def test_what_differs_in_shape_or_use_stays_apart() -> None:
    def forward(_: Any, x: Tensor) -> Any:
        rows = [x[i] for i in range(20)]
        return torch.cat([*rows, *(x[0, : i + 1] for i in range(3))]) + rows[7].sum()

    found = [each for each in view_of(log_of(forward, torch.rand(20, 4))).nodes if each.id.startswith("getitem")]
    assert [texts(each.lines)[1] for each in found] == [
        "19 tensors: x4 (16 B) each", "x4 (16 B)", "x1 (4 B)", "x2 (8 B)", "x3 (12 B)",
    ]  # fmt: skip


def test_a_mark_on_one_marks_the_node() -> None:
    log = log_of(lambda _, x: torch.cat([x[i] for i in range(30)]), torch.rand(30, 4))

    def look(layer: Any) -> dict[str, str] | None:
        return {"fill": "#FF0000"} if layer.label == "getitem_9_9" else None

    assert [each.id for each in view_of(log, vis_node_overrides=look).nodes if each.fill == "#FF0000"] == [
        "getitem_1_1"
    ]


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self.fc(x).split(4, dim=1)
        return low + high.relu(), high


def test_equal_blocks_are_counted_as_one_inside_and_all_outside() -> None:
    def forward(model: Any, x: Tensor) -> Any:
        cache = []
        for block in model.blocks:
            x, high = block(x)
            cache.append(high)
        return x, cache

    blocks = nn.ModuleList([Split() for _ in range(5)])
    log = log_of(forward, torch.rand(2, 4), blocks=blocks)
    view = view_of(log, vis_fold_repeats=True)
    assert texts(edge(view, "split_1_2", "relu_1_4").tail_label) == ["split_2_3"]
    assert texts(edge(view, "split_1_2", "add_1_5").tail_label) == ["split_1_2"]
    outputs = next(each.id for each in view.nodes if "..." in each.lines[0].text)
    assert texts(edge(view, "split_1_2", outputs).label) == ["5 tensors"]


def test_what_was_edited_stays_apart() -> None:
    model = Forward(lambda _, x: torch.cat([x[i] for i in range(30)]).chunk(2))
    log = tl.log_forward_pass(
        model, torch.rand(30, 4), interventions={"getitem_9_9": tl.edits.zero(), "chunk_2": tl.edits.zero()}
    )
    view = view_of(log)
    found = [each.id for each in view.nodes if each.id.startswith(("getitem", "chunk"))]
    assert found == ["getitem_1_1", "getitem_9_9", "chunk_1_32", "chunk_2_33"]
    marked = [each.id for each in view.nodes if any(line.text.startswith("edit:") for line in each.lines)]
    assert marked == ["getitem_9_9", "chunk_2_33"]


# ---- every tiny model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["unrolled", "rolled"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_lost(case: Case, mode: str) -> None:
    log = log_case(case)
    options = DrawOptions.checked(vis_mode=mode, vis_buffers="always")
    plan, view = make_contents(log, options), make_view(log, options)
    assert sorted(place for spot in plan.spots for place in spot.places) == list(range(len(log)))
    drawn = {(each.source, each.target) for each in view.edges}
    assert drawn == {
        (plan.spot_of[parent].id, plan.spot_of[place].id)
        for place, parents in enumerate(log.graph.parents)
        for parent in parents
    }
    order = {each.id: number for number, each in enumerate(view.nodes)}
    assert mode == "rolled" or all(order[source] < order[target] for source, target in drawn)

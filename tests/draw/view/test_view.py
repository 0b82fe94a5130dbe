"""What is in a picture: everything that is in the log, in the visual code of the paper."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from tests.draw.view.figures import Arguments, Buffers, Condition, Frozen, Nested, WrittenOutLstm
from tests.models import CASES, Case
from tests.test_documented import DemoNetwork, NetworkOrganizationDemo, RecurrentNetwork
from tests.torch_version import needs_torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.draw.draw_options import DrawOptions
from torchlens.draw.view.build import make_view
from torchlens.draw.view.contents import make_contents
from torchlens.draw.view.elements import Edge, Group, Node, Text, View


def view_of(log: tl.ModelLog, **arguments: Any) -> View:
    return make_view(log, DrawOptions.checked(**arguments))


def node(view: View, name: str) -> Node:
    return next(node for node in view.nodes if node.id == name)


def edge(view: View, source: str, target: str) -> Edge:
    return next(edge for edge in view.edges if (edge.source, edge.target) == (source, target))


def texts(lines: Any) -> list[str]:
    return [line.text for line in lines]


@functools.cache
def log_of(build: type[nn.Module], shape: tuple[int, ...] = (5, 5)) -> tl.ModelLog:
    return tl.log_forward_pass(build(), torch.ones(shape))


def log_case(case: Case) -> tl.ModelLog:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tl.log_forward_pass(case.build().eval(), case.inputs(), case.kwargs())


# ---- every tiny model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_unrolled_is_the_log(case: Case) -> None:
    log = log_case(case)
    view = view_of(log, vis_buffers="always", vis_gather=False)
    assert [node.id for node in view.nodes] == log.op_labels
    drawn = {(edge.source, edge.target) for edge in view.edges}
    assert drawn == {(parent, op.label) for op in log for parent in op.parent_layers}
    assert len(view.edges) == len(drawn)
    boxes = {group.id: group for group in view.groups}
    for op in log:
        shown = node(view, op.label)
        assert (shown.shape == "box") == op.is_leaf_module_output
        assert shown.dashed == (not op.has_input_ancestor)
        assert addresses_around(shown, boxes) == around(op)


def around(op: tl.OpLog) -> list[str]:
    """The modules around an operation, without one that does nothing else."""
    found = op.containing_module_passes
    modules = op._graph.modules
    return found[:-1] if found and modules.homes[op._place] in leaf_calls(op) else found


def leaf_calls(op: tl.OpLog) -> set[int]:
    modules = op._graph.modules
    ops = (tl.OpLog(op._graph, place) for place in range(len(op._graph.entries)))
    return {modules.homes[each._place] for each in ops if each.is_leaf_module_output}


def addresses_around(shown: Node, boxes: dict[str, Group]) -> list[str]:
    found: list[str] = []
    group = shown.group
    while group is not None:
        name = group.partition(": @")[2]
        found.insert(0, name if ":" in name else f"{name}:1")
        group = boxes[group].parent
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rolled_is_the_layers(case: Case) -> None:
    log = log_case(case)
    view = view_of(log, vis_buffers="always", vis_mode="rolled", vis_gather=False)
    assert [node.id for node in view.nodes] == log.layer_labels
    layer = {op.label: op.layer_label for op in log}
    drawn = {(edge.source, edge.target) for edge in view.edges}
    assert drawn == {(layer[parent], op.layer_label) for op in log for parent in op.parent_layers}


@pytest.mark.parametrize("mode", ["unrolled", "rolled"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_lost_when_modules_are_collapsed(case: Case, mode: str) -> None:
    log = log_case(case)
    for depth in (1, 2):
        options = DrawOptions.checked(vis_mode=mode, vis_nesting_depth=depth, vis_buffers="always")
        plan, view = make_contents(log, options), make_view(log, options)
        assert sorted(place for spot in plan.spots for place in spot.places) == list(range(len(log)))
        drawn = {(edge.source, edge.target) for edge in view.edges}
        for place, parents in enumerate(log.graph.parents):
            for parent in parents:
                link = (plan.spot_of[parent].id, plan.spot_of[place].id)
                assert link in drawn or link[0] == link[1]
        assert all(len(spot.path) < depth for spot in plan.spots)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_view_is_consistent(case: Case) -> None:
    log = log_case(case)
    for mode in ("unrolled", "rolled"):
        view = view_of(log, vis_mode=mode, vis_fold_repeats=True, vis_color_by="flops")
        nodes, groups = [node.id for node in view.nodes], [group.id for group in view.groups]
        assert len(set(nodes)) == len(nodes) and len(set(groups)) == len(groups)
        assert {node.group for node in view.nodes} <= {None, *groups}
        for number, group in enumerate(view.groups):
            assert group.parent is None or group.parent in groups[:number]
        assert {end for edge in view.edges for end in (edge.source, edge.target)} <= set(nodes)


# ---- the visual code ------------------------------------------------------------------------------------------


def test_title() -> None:
    view = view_of(log_of(DemoNetwork))
    assert texts(view.title) == ["DemoNetwork", "12 tensors total (1.1 KB)", "30 params total (120 B)"]
    assert view.title[0].bold and not view.title[1].bold


def test_lines_of_a_node() -> None:
    linear = node(view_of(log_of(DemoNetwork)), "linear_1_3")
    assert texts(linear.lines) == ["linear_1_3", "5x5 (100 B)", "params: 5x5, x5", "@fc"]
    assert linear.lines[0].bold
    assert (linear.shape, linear.fill, linear.dashed) == ("box", "#D9D9D9", False)


def test_colours_and_outlines() -> None:
    view = view_of(log_of(DemoNetwork))
    assert node(view, "input_1_0").fill == "#98FB98"
    assert node(view, "output_1_11").fill == "#FF9999"
    assert node(view, "relu_2_4").shape == "ellipse" and node(view, "relu_1_2").shape == "box"
    buffer = node(view, "buffer_1_9")
    assert buffer.fill == "#EFEFEF" and texts(buffer.lines) == ["buffer_1_9", "x5 (20 B)", "@example_buffer"]
    assert node(view, "randn_1_5").dashed and edge(view, "randn_1_5", "add_2_6").dashed
    assert not edge(view, "relu_2_4", "add_2_6").dashed


def test_frozen_parameters() -> None:
    view = view_of(log_of(Frozen))
    fills = [(each.fill, each.fill2) for each in view.nodes[1:4]]
    assert fills == [("#D9D9D9", None), ("#B0B0B0", None), ("#D9D9D9", "#B0B0B0")]


def test_boxes_nest_and_the_outer_ones_are_thicker() -> None:
    view = view_of(log_of(Nested))
    assert [(texts(group.lines), group.pen, group.dashed) for group in view.groups] == [
        (["@outer", "(Outer)"], 3.0, False),
        (["@.inner", "(Inner)"], 2.0, False),
        (["@noise", "(Outer)"], 3.0, True),
        (["@.inner", "(Inner)"], 2.0, True),
    ]
    assert view.groups[1].parent == view.groups[0].id


def test_a_functional_last_operation_of_a_container_stays_an_ellipse() -> None:
    view = view_of(log_of(NetworkOrganizationDemo))
    assert node(view, "mul_3_17").shape == "ellipse" and node(view, "add_6_16").shape == "ellipse"


def test_arguments_are_named_where_their_order_counts() -> None:
    view = view_of(log_of(Arguments))
    heads = {(e.source, e.target): texts(e.head_label) for e in view.edges if e.head_label}
    assert heads == {
        ("input_1_0", "truediv_1_2"): ["arg 0"],
        ("exp_1_1", "truediv_1_2"): ["arg 1"],
        ("truediv_1_2", "cat_1_3"): ["arg 0[0]"],
        ("exp_1_1", "cat_1_3"): ["arg 0[1]"],
        ("input_1_0", "cat_2_4"): ["arg 0[0]"],
        ("exp_1_1", "cat_2_4"): ["arg 0[1]"],
        ("cat_1_3", "matmul_1_5"): ["arg 0"],
        ("cat_2_4", "matmul_1_5"): ["arg 1"],
        ("matmul_1_5", "sub_1_6"): ["arg 0"],
        ("exp_1_1", "sub_1_6"): ["other"],
    }


def test_an_addition_with_a_factor_is_not_commutative() -> None:
    class Weighted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.add(x, x.exp(), alpha=2)

    view = view_of(log_of(Weighted))
    assert texts(edge(view, "exp_1_1", "add_1_2").head_label) == ["arg 1"]


def test_a_condition() -> None:
    view = view_of(log_of(Condition))
    asked = node(view, "gt_1_3")
    assert asked.fill == "#F7D460" and texts(asked.lines) == ["gt_1_3", "scalar (1 B)", "TRUE"]
    assert edge(view, "exp_1_1", "mean_1_2").label[0] == Text("IF", bold=True)
    assert [e for e in view.edges if e.label] == [edge(view, "exp_1_1", "mean_1_2")]


def test_a_condition_that_changes_its_mind() -> None:
    class Loop(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            while x.sum() < 100:
                x = x * 2
            return x

    view = view_of(log_of(Loop), vis_mode="rolled")
    asked = next(each for each in view.nodes if each.fill == "#F7D460")
    assert texts(asked.lines)[-1] == "TRUE in 1-2, FALSE in 3"


def test_rolled() -> None:
    view = view_of(log_of(RecurrentNetwork), vis_mode="rolled")
    assert texts(node(view, "linear_1_1").lines) == ["linear_1_1 (x3)", "5x5 (100 B)", "params: 5x5, x5", "@fc"]
    labels = {(e.source, e.target): (texts(e.tail_label), texts(e.head_label)) for e in view.edges}
    assert labels == {
        ("input_1_0", "linear_1_1"): ([], ["In 1"]),
        ("linear_1_1", "add_1_2"): ([], []),
        ("add_1_2", "mul_1_3"): ([], []),
        ("mul_1_3", "linear_1_1"): (["Out 1-2"], ["In 2-3"]),
        ("mul_1_3", "output_1_4"): (["Out 3"], []),
    }


def test_unrolled_names_passes_of_layers_and_modules() -> None:
    view = view_of(log_of(RecurrentNetwork))
    assert texts(node(view, "linear_1_1:2").lines) == ["linear_1_1:2", "5x5 (100 B)", "params: 5x5, x5", "@fc:2"]


def test_boxes_of_several_calls() -> None:
    log = log_of(WrittenOutLstm, (2, 3, 3))
    assert [group.lines[0].text for group in view_of(log).groups] == ["@cell:1", "@cell:2", "@cell:3"]
    assert [group.lines[0].text for group in view_of(log, vis_mode="rolled").groups] == ["@cell (x3)"]


def test_a_collapsed_module() -> None:
    log = log_of(WrittenOutLstm, (2, 3, 3))
    cell = node(view_of(log, vis_nesting_depth=1), "module @cell:2")
    assert cell.shape == "box3d" and cell.fill == "#D9D9D9"
    assert texts(cell.lines) == ["@cell:2", "Cell", "2x5, 2x5 (80 B)", "15 layers", "params: 180 (720 B)"]
    rolled = view_of(log, vis_nesting_depth=1, vis_mode="rolled")
    again = edge(rolled, "module @cell", "module @cell")
    assert (texts(again.tail_label), texts(again.head_label)) == (["Out 1-2"], ["In 2-3"])


def test_gradients_are_drawn_backwards_in_blue() -> None:
    class TwoWays(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp() + x.detach().sin()

    log = tl.log_forward_pass(TwoWays(), torch.ones(3, requires_grad=True), save_gradients=True)
    assert not any(e.backward for e in view_of(log).edges)
    tl.log_backward(log[-1].activation.sum())
    backward = [e for e in view_of(log).edges if e.backward]
    assert {e.line for e in backward} == {"#9197F6"}
    assert [(e.source, e.target) for e in backward] == [
        ("exp_1_1", "input_1_0"),
        ("add_1_4", "exp_1_1"),
        ("output_1_5", "add_1_4"),
    ]


def test_a_log_of_few_layers_is_drawn_whole() -> None:
    log = tl.log_forward_pass(DemoNetwork(), torch.ones(5, 5), layers_to_save=["fc"])
    assert len(log) == 1
    assert [each.id for each in view_of(log).nodes] == [each.id for each in view_of(log_of(DemoNetwork)).nodes]
    assert view_of(log, vis_color_by={"relu_2_4": 1}).legend is not None


# ---- options --------------------------------------------------------------------------------------------------


def buffers_shown(which: str) -> list[str]:
    return [n.lines[-1].text for n in view_of(log_of(Buffers), vis_buffers=which).nodes if n.id.startswith("buffer")]


def test_buffers() -> None:
    assert buffers_shown("never") == []
    assert buffers_shown("meaningful") == ["@scale"]
    assert buffers_shown("always") == ["@norm.running_mean", "@norm.running_var", "@scale"]


@functools.cache
def nested_log() -> tl.ModelLog:
    return log_of(Nested)


def collapsed(**arguments: Any) -> list[str]:
    return [each.id for each in view_of(nested_log(), **arguments).nodes if each.shape == "box3d"]


def test_single_modules_are_opened_and_closed() -> None:
    assert collapsed() == []
    assert collapsed(vis_nesting_depth=1) == ["module @outer", "module @noise"]
    assert collapsed(vis_nesting_depth=1, vis_expand={"outer"}) == ["module @outer.inner", "module @noise"]
    assert collapsed(vis_nesting_depth=1, vis_expand=["outer.inner"]) == ["module @noise"]
    assert collapsed(vis_collapse="noise") == ["module @noise"]
    assert collapsed(vis_collapse=lambda module: module.module_class_name == "Inner") == [
        "module @outer.inner",
        "module @noise.inner",
    ]
    assert collapsed(vis_nesting_depth=1, vis_expand=lambda module: "noise" in module.address) == ["module @outer"]
    with pytest.raises(tl.LayerNotFoundError, match="did you mean 'outer'"):
        collapsed(vis_collapse={"auter"})


def test_one_submodule_alone() -> None:
    view = view_of(log_of(NetworkOrganizationDemo), module="submodule1")
    names = [each.id for each in view.nodes]
    assert names == ["add_2_9", "add_3_10", "add_4_11", "cos_1_12", "sin_1_13", "tan_1_14", "add_5_15", "add_6_16",
                     "mul_3_17", "output mul_3_17"]  # fmt: skip
    assert (view.nodes[0].fill, view.nodes[-1].fill) == ("#98FB98", "#FF9999")
    assert [texts(group.lines) for group in view.groups] == [["@.submodule2", "(Submodule2)"]]
    assert texts(view.title)[:2] == ["NetworkOrganizationDemo: @submodule1 (Submodule1)", "8 tensors total (800 B)"]
    assert [view.edges[0].target, view.edges[-1].source] == ["add_3_10", "mul_3_17"]


def test_one_call_of_a_submodule_alone() -> None:
    log = log_of(WrittenOutLstm, (2, 3, 3))
    assert len(view_of(log, module="cell:2").groups) == 0
    assert len(view_of(log, module="cell").groups) == 3
    rolled = view_of(log, module="cell", vis_mode="rolled")
    assert not rolled.groups and [n.id for n in rolled.nodes if n.fill == "#98FB98"] == ["zeros_1_1", "getitem_1_2"]
    for wrong in ("sell", "cell:9", "cell:x"):
        with pytest.raises(tl.LayerNotFoundError):
            view_of(log, module=wrong)


def test_a_leaf_module_alone() -> None:
    view = view_of(log_of(DemoNetwork), module="fc")
    assert [each.id for each in view.nodes] == ["relu_1_2", "linear_1_3", "output linear_1_3"]


def test_overrides() -> None:
    log = nested_log()
    view = view_of(
        log,
        vis_nesting_depth=2,
        vis_node_overrides=lambda layer: {"fillcolor": "gold"} if layer.layer_type == "tanh" else None,
        vis_edge_overrides=lambda parent, child: (
            {"line": "#abc", "label": f"{parent.label}>{child.label}"} if child.layer_type == "output" else {}
        ),
        vis_module_overrides={"color": "navy", "shape": "box", "pen": lambda module: 7},
    )
    assert node(view, "tanh_1_3").fill == "#FFD700" and node(view, "mul_1_4").fill == "#FFFFFF"
    last = view.edges[-1]
    assert last.line == "#AABBCC" and texts(last.label) == ["add_1_10>output_1_11"]
    assert {(group.line, group.pen) for group in view.groups} == {("#000080", 7.0)}
    inner = node(view, "module @outer.inner")
    assert (inner.line, inner.shape) == ("#000080", "box")


def test_text_on_a_chosen_fill_stays_readable() -> None:
    view = view_of(nested_log(), vis_theme="dark", vis_node_overrides={"fill": "lightyellow"})
    assert {each.font for each in view.nodes} == {"#000000"}
    view = view_of(nested_log(), vis_theme="dark", vis_node_overrides={"fill": "lightyellow", "font": "red"})
    assert {each.font for each in view.nodes} == {"#FF0000"}


@pytest.mark.parametrize(
    "override", [{"fil": "red"}, {"fill": "no colour"}, {"pen": "thick"}, {"shape": "star"}, lambda layer: 3]
)
def test_overrides_that_make_no_sense(override: Any) -> None:
    with pytest.raises(tl.ArgumentError):
        view_of(nested_log(), vis_node_overrides=override)


def test_colour_by_a_number() -> None:
    log = log_of(RecurrentNetwork)
    view = view_of(log, vis_color_by="flops")
    assert view.legend is not None and (view.legend.title, view.legend.low) == ("flops", "0")
    assert node(view, "linear_1_1:1").fill == view.legend.colors[-1]
    assert node(view, "linear_1_1:1").font == "#FFFFFF"
    assert node(view, "input_1_0").fill == "#98FB98"
    for name in ("time", "memory"):
        assert view_of(log, vis_color_by=name).legend is not None


def test_colour_by_numbers_of_the_user() -> None:
    log = log_of(RecurrentNetwork)
    by_label = view_of(log, vis_color_by={"linear_1_1:1": 0, "linear_1_1:2": 5, "mul_1_3:1": 10})
    assert [node(by_label, n).fill for n in ("linear_1_1:1", "mul_1_3:1", "add_1_2:1")] == [
        "#FFF7EC",
        "#8B0000",
        "#FFFFFF",
    ]
    assert by_label.legend is not None and (by_label.legend.low, by_label.legend.high) == ("0", "10")

    def passes(layer: Any) -> int | None:
        return layer.num_passes if layer.layer_type == "add" else None

    by_function = view_of(log, vis_mode="rolled", vis_color_by=passes)
    assert by_function.legend is not None and (by_function.legend.title, by_function.legend.high) == ("passes", "3")
    for wrong in ({"linear_9": 1}, {"linear_1_1": "much"}, {"linear_1_1": float("nan")}):
        with pytest.raises(tl.ArgumentError):
            view_of(log, vis_mode="rolled", vis_color_by=wrong)


def test_themes_and_directions() -> None:
    dark = view_of(nested_log(), vis_theme="dark", vis_direction="leftright")
    assert dark.background != "#FFFFFF" and dark.direction == "leftright"
    assert {each.font for each in dark.nodes} == {dark.font}


# ---- hard cases -----------------------------------------------------------------------------------------------


class Nothing(nn.Module):
    def forward(self) -> None:
        return None


def test_a_model_without_tensors() -> None:
    view = view_of(tl.log_forward_pass(Nothing()))
    assert view.nodes == () and texts(view.title)[1] == "0 tensors total (0 B)"
    assert view.notes == ("no tensors: the forward pass neither took, made nor returned any",)


class Cluttered(nn.Module):
    """A tensor of many dimensions, very many parameters in one operation, an address of a thousand letters."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.ones(3) for _ in range(40))
        self.add_module("long" * 250, nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, *self.parts])
        return getattr(self, "long" * 250)(x).reshape([1] * 40 + [-1])


def test_long_lines_are_shortened() -> None:
    view = view_of(log_of(Cluttered, (5,)))
    assert max(len(line.text) for each in view.nodes for line in each.lines) <= 64
    assert texts(node(view, "cat_1_1").lines)[2] == "params: x3, x3, x3, x3, x3, x3, x3, x3, ... 32 more"
    assert texts(node(view, "reshape_1_3").lines)[1] == "1x1x1x1x1x1x1x...x1x125 (500 B)"


def test_a_forward_pass_cut_short() -> None:
    class Breaks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 2
            raise RuntimeError("no")

    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(Breaks(), torch.ones(2))
    view = view_of(caught.value.partial_log)  # type: ignore[attr-defined]
    assert [each.id for each in view.nodes] == ["input_1_0", "mul_1_1"]
    assert view.notes == ("cut short: the forward pass raised an exception here",)


@needs_torch("2.5", "has the jagged layout of today")
def test_jagged_tensors_that_were_not_saved() -> None:
    """Their size in bytes is not known, which keeps nobody from a picture or a print."""
    case = next(case for case in CASES if case.name == "jagged_tensors")
    log = tl.get_model_metadata(case.build(), case.inputs())
    words = {node.id: node.lines[1].text for node in view_of(log).nodes}
    assert any("x?x" in text and "(0 B)" in text for text in words.values())
    assert "nestedviewfromjagged" in str(log)


# ---- the whole hierarchy --------------------------------------------------------------------------------------


def test_a_collapsed_picture_knows_what_it_hides() -> None:
    log = log_of(Nested)
    whole, collapsed = view_of(log), view_of(log, vis_nesting_depth=1)
    assert [module._replace(node=None) for module in collapsed.modules] == list(whole.modules)
    assert {group.id for group in whole.groups} == {module.id for module in whole.modules}
    assert {module.node for module in collapsed.modules} <= {node.id for node in collapsed.nodes}
    assert len(collapsed.modules) > len(collapsed.groups)


class CellLoop(nn.Module):
    """A recurrent cell whose state begins as None: its first call makes zeros, so it does more than the others."""

    def __init__(self, cell: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell = cell(3, 4)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Any:
        state = None
        for step in x:
            state = self.cell(step, state)
        return state


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_rolled_cell_stays_in_its_box(cell: type[nn.RNNCellBase]) -> None:
    view = view_of(tl.log_forward_pass(CellLoop(cell), torch.rand(3, 2, 3)), vis_mode="rolled", vis_gather=False)
    inside = {node.lines[0].text.split("_")[0] for node in view.nodes if node.group}
    assert inside >= {"zeros", node_type(cell)}
    assert not [node for node in view.nodes if node.group is None and node_type(cell) in node.id]


def node_type(cell: type[nn.RNNCellBase]) -> str:
    return {nn.LSTMCell: "lstmcell", nn.GRUCell: "grucell", nn.RNNCell: "rnntanhcell"}[cell]


# ---- interventions --------------------------------------------------------------------------------------------


class TwoBlocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(5, 5), nn.ReLU()) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def marked(view: View) -> dict[str, list[str]]:
    """By node or edge, the edits in it; what is marked has another colour and a thicker line."""
    found = {n.id: [t for t in texts(n.lines) if "edit" in t] for n in view.nodes}
    found |= {e.id: [t for t in texts(e.label) if "edit" in t] for e in view.edges}
    looks = {each.id: (each.line, each.pen) for each in (*view.nodes, *view.edges)}
    assert all((looks[name] == ("#B8007F", 2.5)) == bool(edits) for name, edits in found.items())
    return {name: edits for name, edits in found.items() if edits}


def test_edits_are_marked() -> None:
    E, model, x = tl.edits, TwoBlocks(), torch.rand(4, 5)
    sites = {
        "relu_1_2": E.add(2.0, units=[3]),
        "blocks.1.0.weight": E.scale(0.5),
        ("relu_2_4", "linear_3_5"): E.add(1.0),
    }
    log = tl.log_forward_pass(model, x, interventions=sites)
    assert marked(view_of(log)) == {
        "relu_1_2": ["edit: add(2.0, units=[3])"],
        "linear_2_3": ["edit: scale(0.5)"],
        "relu_2_4 -> linear_3_5": ["edit: add(1.0)"],
    }
    assert marked(view_of(tl.log_forward_pass(model, x))) == {}
    closed = marked(view_of(log, vis_nesting_depth=1))
    assert [edits for name, edits in closed.items() if "blocks.0" in name] == [["edit: add(2.0, units=[3])"]]
    dark = node(view_of(log, vis_theme="dark"), "relu_1_2")
    assert (dark.line, dark.pen) == ("#F06BC0", 2.5)


def test_blocks_that_are_edited_in_another_way_are_not_drawn_as_one() -> None:
    log = tl.log_forward_pass(TwoBlocks(), torch.rand(4, 5), interventions={"relu_2_4": tl.edits.add(1.0)})
    assert marked(view_of(log, vis_fold_repeats=True)) == {"relu_2_4": ["edit: add(1.0)"]}
    assert not any("drawn once" in note for note in view_of(log, vis_fold_repeats=True).notes)


def test_edits_of_some_passes() -> None:
    model = RecurrentNetwork()
    base = tl.log_forward_pass(model, torch.ones(5, 5))
    label = next(op.label for op in base if op.num_passes > 1 and op.layer_type == "linear" and op.pass_num == 2)
    log = tl.log_forward_pass(model, torch.ones(5, 5), interventions={label: tl.edits.add(1.0)}, base=base)
    layer = label.partition(":")[0]
    assert marked(view_of(log, vis_mode="rolled")) == {layer: ["edit: add(1.0) in 2"]}
    assert marked(view_of(log)) == {label: ["edit: add(1.0)"]}

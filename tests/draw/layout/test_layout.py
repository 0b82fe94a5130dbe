"""Whatever is drawn, the picture can be read: no overlaps, no cut labels, no line through a box."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.draw.layout.geometry import faults

from torchlens.draw.layout.layout import Layout, Rect, lay_out
from torchlens.draw.layout.positions import GAP
from torchlens.draw.view.elements import Edge, Group, Node, Text, View

TEXTS = st.text(st.sampled_from("abcdeWi_:@.0123 <&>\"'\u03b1\u4e2d\u00d7-"), max_size=20) | st.just("conv2d_1_1")
LINES = st.lists(st.builds(Text, TEXTS, st.booleans()), min_size=1, max_size=4).map(tuple)
LABELS = st.just(()) | st.just(()) | st.sampled_from(["arg 0", "In 1-3", "IF", "weight", "arg 0[13]"]).map(
    lambda text: (Text(text),)
)  # fmt: skip
SHAPES = st.sampled_from(["box", "ellipse", "box3d"])
DIRECTIONS = st.sampled_from(["bottomup", "topdown", "leftright"])


@st.composite
def views(draw: st.DrawFn, most: int = 14) -> View:
    """Nested groups (whose members need not be neighbours), skips, hubs, loops, labels, gradients."""
    groups: list[Group] = []
    for index in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from([None, *(group.id for group in groups)]))
        groups.append(Group(f"g{index}", draw(LINES), parent))
    homes = st.sampled_from([None, *(group.id for group in groups)])
    nodes = [
        Node(f"n{index}", draw(LINES), draw(SHAPES), dashed=draw(st.booleans()), group=draw(homes))
        for index in range(draw(st.integers(0, most)))
    ]
    edges = []
    if nodes:
        places = st.integers(0, len(nodes) - 1)
        for _ in range(draw(st.integers(0, 2 * most))):
            a, b = draw(places), draw(places)
            loop = draw(st.integers(0, 4)) == 0
            a, b = (max(a, b), min(a, b)) if loop else (min(a, b), max(a, b))
            labels = draw(LABELS), draw(LABELS), draw(LABELS)
            edges.append(Edge(f"n{a}", f"n{b}", *labels, backward=loop and draw(st.booleans())))
    return View((Text("Model", True),), tuple(nodes), tuple(edges), tuple(groups), draw(DIRECTIONS))


@settings(max_examples=150, deadline=None)
@given(views())
def test_any_view_can_be_read(view: View) -> None:
    assert faults(view, lay_out(view)) == []


@settings(max_examples=40, deadline=None)
@given(views(most=60))
def test_larger_views_can_be_read(view: View) -> None:
    assert faults(view, lay_out(view)) == []


@settings(max_examples=30, deadline=None)
@given(views())
def test_the_same_view_gives_the_same_layout(view: View) -> None:
    assert lay_out(view) == lay_out(view)


def named(name: str, group: str | None = None) -> Node:
    return Node(name, (Text(f"{name}_1_1", True), Text("1x64x56x56 (784.0 KB)")), group=group)


def chain(count: int, *edges: Edge) -> View:
    nodes = tuple(named(f"n{index}") for index in range(count))
    steps = tuple(Edge(f"n{index}", f"n{index + 1}") for index in range(count - 1))
    return View((), nodes, (*steps, *edges))


@pytest.mark.parametrize("direction", ["bottomup", "topdown", "leftright"])
def test_a_hub_and_long_skips(direction: str) -> None:
    skips = [Edge("n0", f"n{index}") for index in range(2, 60, 3)]
    gathered = [Edge(f"n{index}", "n59", head_label=(Text(f"arg {index}"),)) for index in range(0, 40, 4)]
    loops = [Edge("n50", "n3", tail_label=(Text("Out 1"),)), Edge("n9", "n9"), Edge("n30", "n28")]
    view = dataclasses.replace(chain(60, *skips, *gathered, *loops), direction=direction)
    assert faults(view, lay_out(view)) == []


def test_unconnected_nodes_form_a_block() -> None:
    layout = lay_out(View((), tuple(named(f"n{index}") for index in range(400))))
    assert 0.2 < layout.width / layout.height < 20


def test_a_chain_is_straight() -> None:
    layout = lay_out(chain(5))
    assert len({round(rect.x + rect.width / 2, 3) for rect in layout.nodes}) == 1
    assert all(len(route) == 2 for route in layout.edges)


def test_a_skip_leaves_the_trunk_straight() -> None:
    nodes = (named("a"), named("b", "g"), named("c", "g"), named("d", "g"), named("e"))
    edges = (Edge("a", "b"), Edge("b", "c"), Edge("c", "d"), Edge("a", "d"), Edge("d", "e"))
    layout = lay_out(View((), nodes, edges, (Group("g", (Text("@block (Block)"),)),)))
    middles = [rect.x + rect.width / 2 for rect in layout.nodes]
    assert max(middles) - min(middles) < 0.5


def test_backward_edges_lie_beside_the_forward_ones() -> None:
    view = chain(3, Edge("n2", "n1", backward=True), Edge("n1", "n0", backward=True))
    layout = lay_out(view)
    assert faults(view, layout) == []
    forward, backward = layout.edges[0], layout.edges[3]
    assert [x for x, _ in forward] != [x for x, _ in backward]
    assert abs(forward[0][0] - backward[0][0]) < 20


def test_an_empty_view_and_an_empty_group() -> None:
    assert lay_out(View((), ())).nodes == []
    view = View((), (named("a"),), (), (Group("g", (Text("@empty"),)),))
    assert faults(view, lay_out(view)) == []


def test_a_line_of_a_thousand_characters_is_wrapped() -> None:
    view = View((), (Node("a", (Text("(" + "123, " * 400 + ")"),)),))
    layout = lay_out(view)
    assert layout.width < 900
    assert faults(view, layout) == []


# ---- the checker sees what it should ---------------------------------------------------------------------------


def example() -> tuple[View, Layout]:
    nodes = (named("a"), named("b", "g"), named("c", "g"), named("d"), named("e"))
    edges = (
        Edge("a", "b", label=(Text("IF", True),)),
        Edge("b", "c"),
        Edge("c", "d", head_label=(Text("arg 0"),)),
        Edge("a", "d", head_label=(Text("arg 1"),)),
        Edge("d", "e"),
    )
    view = View((), nodes, edges, (Group("g", (Text("@block (Block)"),)),), "topdown")
    return view, lay_out(view)


def moved(rect: Rect, x: float = 0.0, y: float = 0.0) -> Rect:
    return Rect(rect.x + x, rect.y + y, rect.width, rect.height)


def test_the_example_has_no_faults() -> None:
    assert faults(*example()) == []


@pytest.mark.parametrize(
    "fault, expected",
    [
        ("node moved onto another", "overlap"),
        ("node moved out of its group", "outside its group"),
        ("edge ends elsewhere", "away from"),
        ("edge through a node", "crosses node"),
        ("edge through a group", "crosses group"),
        ("edge through a label", "crosses label"),
        ("label on a node", "overlaps node"),
        ("label on a label", "overlaps label"),
        ("label cut", "is cut"),
        ("label lost", "should say"),
        ("group label outside", "is outside it"),
        ("picture too small", "cut off"),
        ("text too wide", "wider than the node"),
        ("target below source", "does not lead onwards"),
        ("edge turns back", "turns back"),
    ],
)
def test_the_checker_sees_planted_faults(fault: str, expected: str) -> None:
    view, layout = example()
    _a, b, _c, d, e = layout.nodes
    labels = layout.edge_labels
    match fault:
        case "node moved onto another":
            layout.nodes[2] = moved(b, 5, 5)
        case "node moved out of its group":
            layout.nodes[1] = moved(b, x=-60)
        case "edge ends elsewhere":
            layout.edges[4][-1] = (e.x - 20, e.y)
        case "edge through a node":
            layout.edges[3] = [layout.edges[3][0], (b.x + 5, b.y + 40), layout.edges[3][-1][-2:]]
        case "edge through a group":
            group = layout.groups[0]
            layout.edges[3].insert(1, (group.x + 4, group.y + group.height / 2))
        case "edge through a label":
            layout.edges[1].insert(1, (labels[1].rect.x + 4, labels[1].rect.y + 4))
        case "label on a node":
            labels[0] = dataclasses.replace(labels[0], rect=moved(labels[0].rect, y=b.y - labels[0].rect.y + 5))
        case "label on a label":
            labels[1] = dataclasses.replace(labels[1], rect=moved(labels[2].rect, x=4))
        case "label cut":
            labels[0] = dataclasses.replace(labels[0], rect=labels[0].rect._replace(width=4.0))
        case "label lost":
            del labels[0]
        case "group label outside":
            label = layout.group_labels[0]
            layout.group_labels[0] = dataclasses.replace(label, rect=moved(label.rect, y=-30))
        case "picture too small":
            layout.width -= 40
        case "text too wide":
            layout.nodes[4] = Rect(e.x, e.y, e.width - 20, e.height)
        case "target below source":
            layout.nodes[4], layout.nodes[3] = d, e
        case "edge turns back":
            start, *rest = layout.edges[4]
            layout.edges[4] = [start, (start[0], start[1] + 15), (start[0], start[1] + 5), *rest]
    assert any(expected in found for found in faults(view, layout)), faults(view, layout)


@pytest.mark.parametrize("fan", ["out", "in"])
def test_a_wide_fan_is_one_row(fan: str) -> None:
    """What one tensor feeds, or what feeds one, stands side by side, no farther apart than needed."""
    many = [Node(f"n{index}", (Text(f"sin_{index}"),)) for index in range(300)]
    one = Node("one", (Text("cat_1_301"),))
    view = View(
        (),
        (one, *many) if fan == "out" else (*many, one),
        tuple(Edge("one", node.id) if fan == "out" else Edge(node.id, "one") for node in many),
    )
    layout = lay_out(view)
    assert faults(view, layout) == []
    assert len({rect.y for rect in layout.nodes}) == 2
    assert layout.width <= sum(rect.width for rect in layout.nodes) + GAP * len(many)
    assert layout.height < 600

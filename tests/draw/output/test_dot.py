"""The DOT text: whatever stands in a name, Graphviz reads it back."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
import torch
from tests.draw.output.test_render import needs_graphviz
from tests.draw.view.test_view import log_case, view_of
from tests.models import CASES, Case
from torch import Tensor, nn

import torchlens as tl
from torchlens.draw.output import graphviz
from torchlens.draw.output.dot import quoted, to_dot
from torchlens.draw.view.elements import Edge, Group, Legend, Node, Text, View

HOSTILE = [
    "a < b && c > d",
    'say "hi" \\ \\n \\G',
    "-> {x|y} [z];",
    "</b><br/>",
    "&amp;&#x41;",
    "ünïcödé 模型 🔥",
    "new\nline\ttab\rreturn",
    "control \x00\x01\x1b \ud800",
    "",
    " ",
    "<",
]


def svg_of(dot: str) -> ElementTree.Element:
    return ElementTree.fromstring(graphviz.run_graphviz(dot, "svg", 60))


def words_in(svg: ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()) for element in svg.iter("{http://www.w3.org/2000/svg}text")]


@needs_graphviz
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_everywhere(name: str) -> None:
    text = (Text(name, bold=True), Text(name))
    view = View(
        title=text,
        nodes=(Node("1" + name, text, group="g" + name, tooltip=name), Node("2" + name, text)),
        edges=(Edge("1" + name, "2" + name, label=text, tail_label=text, head_label=text),),
        groups=(Group("g" + name, text),),
        legend=Legend(name, name, name, ("#FFFFFF", "#000000")),
        notes=(name,),
    )
    svg = svg_of(to_dot(view))
    kinds = [element.get("class") for element in svg.iter("{http://www.w3.org/2000/svg}g")]
    assert (kinds.count("node"), kinds.count("edge"), kinds.count("cluster")) == (2, 1, 1)
    readable = "".join(letter if letter.isprintable() else " " for letter in name)
    shown = "".join(words_in(svg)).replace("\xa0", " ")
    assert all(part in shown for part in readable.split())


class Oddly(nn.Module):
    """Modules whose names are no identifiers."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("<b>&", 'a"b', "模型", "x->y"):
            self.add_module(name, nn.Sequential(nn.Linear(2, 2), nn.ReLU()))

    def forward(self, x: Tensor) -> Tensor:
        for module in self.children():
            x = module(x)
        return x


@needs_graphviz
def test_modules_with_odd_names() -> None:
    log = tl.log_forward_pass(Oddly(), torch.rand(1, 2))
    shown = " ".join(words_in(svg_of(log.to_dot())))
    for name in ("@<b>&", '@a"b', "@模型", "@x->y"):
        assert name in shown


@needs_graphviz
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_tiny_model_is_read(case: Case) -> None:
    log = log_case(case)
    svg = svg_of(log.to_dot(vis_mode="rolled", vis_buffers="always", vis_color_by="memory"))
    kinds = [element.get("class") for element in svg.iter("{http://www.w3.org/2000/svg}g")]
    view = view_of(log, vis_mode="rolled", vis_buffers="always")
    assert (kinds.count("node"), kinds.count("edge")) == (len(view.nodes), len(view.edges))


def test_braces_and_quotes_balance_without_graphviz() -> None:
    dot = to_dot(View((), (Node('"]; }', (Text("}"),)),)))
    assert dot.startswith("digraph {") and dot.endswith("}\n")
    assert quoted('"]; }') in dot and quoted('"]; }') == '"\\"]; }"'

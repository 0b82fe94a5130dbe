"""SVG, PDF and PNG of a view: well-formed, self-contained, the same every time, with every text in it."""

from __future__ import annotations

import dataclasses
import gc
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.draw.layout.test_layout import views

from torchlens.draw.draw_options import DrawOptions
from torchlens.draw.output.formats import FORMATS, Format
from torchlens.draw.output.picture import picture_of
from torchlens.draw.output.render import render as render_any
from torchlens.draw.output.svg import print_svg
from torchlens.draw.view.elements import Edge, Group, Legend, Node, Text, View
from torchlens.errors import ArgumentError, TorchLensError


def render(view: View, ending: str) -> bytes:
    return FORMATS[ending].print(view)


SVG = "{http://www.w3.org/2000/svg}"


def example() -> View:
    """One of everything."""
    nodes = (
        Node("a", (Text("input_1_0", True), Text("5x5 (100 B)")), "box", "#98FB98", tooltip="the <input>"),
        Node("b", (Text("linear_1_1", True), Text("@fc")), "box", "#D9D9D9", "#B0B0B0", group="g"),
        Node("c", (Text('a<b>&"c"'),), dashed=True, pen=2.5, group="g"),
        Node("d", (Text("@block (Block)"),), "box3d"),
    )
    edges = (
        Edge("a", "b", label=(Text("IF", True),)),
        Edge("b", "c", tail_label=(Text("Out 1"),), head_label=(Text("In 2"),), dashed=True),
        Edge("c", "d", pen=3.0, line="#ff0000"),
        Edge("d", "c", line="#9197F6", backward=True),
    )
    groups = (Group("g", (Text("@encoder", True), Text("(Encoder)")), fill="#FAFAFA"),)
    legend = Legend("time", "1 ms", "20 ms", ("#ffffff", "#ff8800", "#000000"))
    return View((Text("Model", True),), nodes, edges, groups, legend=legend, notes=("2 buffers not shown",))


def texts_of(svg: bytes) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


# ---- SVG -------------------------------------------------------------------------------------------------------


def test_svg_shows_every_text() -> None:
    shown = texts_of(render(example(), "svg"))
    for text in ("Model", "input_1_0", 'a<b>&"c"', "@encoder", "IF", "Out 1", "In 2", "time", "1 ms", "20 ms"):
        assert shown.count(text) == 1
    assert "2 buffers not shown" in shown


def test_svg_has_the_shapes() -> None:
    root = ElementTree.fromstring(render(example(), "svg"))
    count = {tag: len(list(root.iter(SVG + tag))) for tag in ("ellipse", "linearGradient", "title")}
    assert count == {"ellipse": 1, "linearGradient": 3, "title": 1}  # one of the node, two steps of the legend
    assert [title.text for title in root.iter(f"{SVG}title")] == ["the <input>"]
    dashed = [element for element in root.iter() if "stroke-dasharray" in element.attrib]
    assert [element.tag for element in dashed] == [f"{SVG}path", f"{SVG}ellipse"]


def test_svg_needs_nothing_from_outside() -> None:
    svg = render(example(), "svg").decode()
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "<style" not in svg and "<script" not in svg and "href" not in svg
    defined = set(re.findall(r'id="([^"]+)"', svg))
    assert defined == set(re.findall(r"url\(#([^)]+)\)", svg))


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(), max_size=30), st.text(st.characters(), max_size=10))
def test_any_name_gives_a_well_formed_file(name: str, other: str) -> None:
    node = Node("a", (Text(name),), tooltip=other, group="g")
    view = View((Text(other),), (node,), (), (Group("g", (Text(name),)),), notes=(name,))
    ElementTree.fromstring(render(view, "svg"))
    check_pdf(render(view, "pdf"))


@settings(max_examples=25, deadline=None)
@given(views())
def test_every_view_prints(view: View) -> None:
    svg = render(view, "svg")
    assert svg == render(view, "svg")
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}ellipse"))) == sum(node.shape == "ellipse" for node in view.nodes)
    pdf = render(view, "pdf")
    assert pdf == render(view, "pdf")
    check_pdf(pdf)


def test_arrows_point_at_their_targets() -> None:
    nodes = Node("a", (Text("a"),), "box"), Node("b", (Text("b"),), "box")
    svg = render(View((), nodes, (Edge("a", "b"),), direction="topdown"), "svg")
    root = ElementTree.fromstring(svg)
    below = max(float(rect.get("y", 0)) for rect in root.iter(f"{SVG}rect"))
    head = next(path for path in root.iter(f"{SVG}path") if path.get("d", "").endswith("Z"))
    assert float(re.findall(r"[\d.]+", head.get("d", ""))[1]) == pytest.approx(below, abs=0.2)


# ---- PDF -------------------------------------------------------------------------------------------------------


def check_pdf(pdf: bytes) -> str:
    """Every object is where the table says; returns what the page paints."""
    assert pdf.startswith(b"%PDF-1.6") and pdf.endswith(b"%%EOF\n")
    table = int(re.findall(rb"startxref\n(\d+)\n", pdf)[-1])
    assert pdf[table:].startswith(b"xref")
    entries = re.findall(rb"(\d{10}) 00000 n \n", pdf[table:])
    for number, entry in enumerate(entries, start=1):
        assert pdf[int(entry) :].startswith(b"%d 0 obj\n" % number)
    length, content = re.findall(rb"/Length (\d+)/Filter/FlateDecode>>stream\n(.*)\nendstream", pdf, re.DOTALL)[0]
    assert int(length) == len(content)
    return zlib.decompress(content).decode("ascii")


def test_pdf_shows_every_text() -> None:
    content = check_pdf(render(example(), "pdf"))
    shown = [bytes.fromhex(text).decode("cp1252") for text in re.findall(r"<([0-9a-f]*)> Tj", content)]
    assert sorted(shown) == sorted(texts_of(render(example(), "svg")))


def test_pdf_writes_what_its_fonts_lack_as_python_does() -> None:
    content = check_pdf(render(View((), (Node("a", (Text("\u03b1\u00e9"),)),)), "pdf"))
    shown = bytes.fromhex(re.findall(r"<([0-9a-f]*)> Tj", content)[0]).decode("cp1252")
    assert shown == "\\u03b1\u00e9"


def test_a_huge_pdf_page_has_larger_units() -> None:
    nodes = tuple(Node(f"n{index}", (Text("relu"),), "box") for index in range(1000))
    edges = tuple(Edge(f"n{index}", f"n{index + 1}") for index in range(999))
    pdf = render(View((), nodes, edges), "pdf")
    unit = float(re.findall(rb"/UserUnit (\d+)", pdf)[0])
    width, height = map(float, re.findall(rb"/MediaBox\[0 0 ([\d.]+) ([\d.]+)\]", pdf)[0])
    assert unit > 1 and max(width, height) <= 14_400


def test_a_colour_that_a_pdf_can_not_show_is_refused() -> None:
    view = View((), (Node("a", (Text("a"),), fill="papayawhip"),))
    assert b"papayawhip" in render(view, "svg")
    with pytest.raises(ArgumentError, match=r"'papayawhip'.*#RRGGBB"):
        render(view, "pdf")


# ---- PNG -------------------------------------------------------------------------------------------------------


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])  # type: ignore[return-value]


def test_png_is_twice_as_large_as_the_picture() -> None:
    pytest.importorskip("resvg_py")
    root = ElementTree.fromstring(render(example(), "svg"))
    width, height = size_of(render(example(), "png"))
    assert width == pytest.approx(2 * float(root.get("width", 0)), abs=2)
    assert height == pytest.approx(2 * float(root.get("height", 0)), abs=4)


def test_a_png_of_a_huge_picture_is_made_smaller_and_says_so() -> None:
    pytest.importorskip("resvg_py")
    nodes = tuple(Node(f"n{index}", (Text("relu"),), "box") for index in range(3000))
    edges = tuple(Edge(f"n{index}", f"n{index + 1}") for index in range(2999))
    with pytest.warns(UserWarning, match="svg and pdf keep it sharp"):
        png = render(View((), nodes, edges), "png")
    assert max(size_of(png)) <= 32_100


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(TorchLensError, match=r"forwardlens\[png\]"):
        render(example(), "png")


# ---- what it leaves behind -------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        render(example(), "svg")
        assert gc.isenabled() is enabled
        with pytest.raises(ArgumentError):
            render(dataclasses.replace(example(), background="no colour"), "pdf")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


# ---- all of them -----------------------------------------------------------------------------------------------


def test_a_picture_can_be_printed_twice() -> None:
    picture = picture_of(example())
    assert print_svg(picture) == print_svg(picture) == render(example(), "svg")


def test_every_mark_says_what_it_shows() -> None:
    marks = {mark.id for mark in picture_of(example()).graph}
    assert marks == {"a", "b", "c", "d", "g", "a -> b", "b -> c", "c -> d", "d -> c"}


def test_a_new_format_is_a_row_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "txt", Format("txt", lambda view: f"{len(view.nodes)} nodes".encode()))
    options = DrawOptions.checked(vis_outpath="model.txt")
    assert options.vis_fileformat == "txt"
    assert render_any(example(), "txt", "builtin") == b"4 nodes"
    with pytest.raises(ArgumentError, match="'svg', 'pdf', 'png', 'dot', 'txt'"):
        DrawOptions.checked(vis_fileformat="doc")

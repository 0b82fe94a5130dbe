"""Graphviz where it is and can cope, the built-in layout otherwise; pictures are written and shown."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.draw.view.test_fold import Block, Stack
from tests.draw.view.test_view import log_of, view_of
from tests.test_documented import DemoNetwork
from torch import nn

import torchlens as tl
from torchlens.draw import show
from torchlens.draw.draw_options import DrawOptions
from torchlens.draw.output import graphviz, render
from torchlens.draw.view.elements import Node, Text, View
from torchlens.notebook import ShownPath

MARKS = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}
SVG = "{http://www.w3.org/2000/svg}"

needs_graphviz = pytest.mark.skipif(
    not graphviz.is_there(), reason="neither Graphviz's dot nor pygraphviz is installed"
)


@pytest.fixture
def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(graphviz.importlib.util, "find_spec", lambda name: None if name == "pygraphviz" else object())


def words_in(svg: bytes) -> set[str]:
    """The words of an SVG's texts, whichever way they are split over elements."""
    texts = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return {word for text in texts for word in "".join(text.itertext()).replace("\xa0", " ").split()}


# ---- two renderers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fileformat", ["svg", "pdf"])
def test_builtin_needs_nothing(fileformat: Any, without_graphviz: None, tmp_path: Path) -> None:
    path = log_of(DemoNetwork).draw(vis_outpath=tmp_path / f"graph.{fileformat}", vis_save_only=True)
    assert MARKS[fileformat] in path.read_bytes()[:200]


@needs_graphviz
@pytest.mark.parametrize("fileformat", ["svg", "pdf", "png"])
def test_graphviz(fileformat: Any) -> None:
    assert MARKS[fileformat] in render.render(view_of(log_of(DemoNetwork)), fileformat, "graphviz")[:1000]


@needs_graphviz
def test_both_say_the_same() -> None:
    view = view_of(log_of(DemoNetwork), vis_nesting_depth=1)
    assert words_in(render.render(view, "svg", "graphviz")) == words_in(render.render(view, "svg", "builtin"))


def test_dot_as_a_file(tmp_path: Path, without_graphviz: None) -> None:
    log = log_of(DemoNetwork)
    path = log.draw(vis_outpath=tmp_path / "graph.dot", vis_save_only=True)
    assert path.read_text() == log.to_dot()


def test_graphviz_asked_for_but_missing(without_graphviz: None, tmp_path: Path) -> None:
    with pytest.raises(tl.ArgumentError, match="pip install"):
        tl.show_model_graph(DemoNetwork(), torch.rand(5, 5), renderer="graphviz", vis_outpath=tmp_path / "graph")
    with pytest.raises(tl.DrawingError, match="not installed"):
        graphviz.run_graphviz("digraph {}", "svg")


def test_png_without_a_way_to_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(graphviz.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(tl.ArgumentError, match=r"forwardlens\[png\]"):
        render.check_renderer("auto", "png")


def test_a_graphviz_that_fails_is_replaced_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> bytes:
        raise tl.DrawingError("Graphviz took longer than 30 s")

    monkeypatch.setattr(graphviz, "is_there", lambda: True)
    monkeypatch.setattr(graphviz, "run_graphviz", fail)
    with pytest.warns(tl.DrawingWarning, match="took longer than 30 s; drawn with the built-in layout instead"):
        picture = render.render(view_of(log_of(DemoNetwork)), "svg")
    assert MARKS["svg"] in picture[:200]


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands for dot")
@pytest.mark.parametrize(
    "script, complaint",
    [("import time; time.sleep(60)", "took longer than 1 s"), ("raise SystemExit('bad syntax')", "failed: bad syntax")],
)
def test_a_graphviz_that_hangs_or_breaks(
    script: str, complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "dot"
    program.write_text(f"#!{sys.executable}\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(graphviz.shutil, "which", lambda name: str(program))
    with pytest.raises(tl.DrawingError, match=complaint):
        graphviz.run_graphviz("digraph {}", "svg", 1 if "sleep" in script else 60)


def test_very_many_nodes_are_not_given_to_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphviz, "is_there", lambda: True)
    monkeypatch.setattr(graphviz, "run_graphviz", lambda *args: pytest.fail("Graphviz was asked"))
    nodes = tuple(Node(str(number), (Text("x"),)) for number in range(render.MOST_NODES_FOR_GRAPHVIZ + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert MARKS["svg"] in render.render(View((), nodes), "svg")[:200]


def test_pygraphviz_is_used_without_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygraphviz", reason="needs the package pygraphviz")
    monkeypatch.setenv("PATH", "")
    assert MARKS["svg"] in graphviz.run_graphviz(log_of(DemoNetwork).to_dot(), "svg", 60)[:1000]


# ---- entry points ---------------------------------------------------------------------------------------------


def test_show_model_graph_keeps_no_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    logs = []
    monkeypatch.setattr("torchlens.draw.show.draw", lambda log, options: logs.append(log) or options.vis_outpath)
    path = tl.show_model_graph(DemoNetwork(), torch.rand(5, 5), vis_outpath=tmp_path / "graph.pdf")
    assert path == tmp_path / "graph.pdf" and logs[0].num_tensors_saved == 0


def test_log_and_draw_in_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "graph.svg"
    log = tl.log_forward_pass(
        DemoNetwork(), torch.rand(5, 5), vis_mode="rolled", vis_outpath=path, vis_save_only=True, renderer="builtin"
    )
    assert log.num_tensors_saved == 12
    assert words_in(path.read_bytes()) >= {"DemoNetwork", "linear_1_3", "@fc"}


def test_nothing_to_draw() -> None:
    with pytest.raises(tl.ArgumentError, match="nothing to draw"):
        tl.show_model_graph(DemoNetwork(), torch.rand(5, 5), vis_mode="none")


def test_a_model_without_tensors_has_a_picture(tmp_path: Path) -> None:
    class Nothing(nn.Module):
        def forward(self) -> None:
            return None

    for renderer in ("auto", "builtin"):
        path = tl.show_model_graph(Nothing(), vis_outpath=tmp_path / "graph", vis_save_only=True, renderer=renderer)
        assert "Nothing" in words_in(path.read_bytes())


# ---- showing --------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are started to show files."""
    commands: list[list[str]] = []
    monkeypatch.setattr(show.subprocess, "Popen", lambda command, **rest: commands.append(command))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    return commands


def draw_demo(path: Path, **arguments: Any) -> Path:
    return log_of(DemoNetwork).draw(vis_outpath=path, renderer="builtin", **arguments)


def test_from_a_script_the_viewer_opens(opened: list[list[str]], tmp_path: Path) -> None:
    path = draw_demo(tmp_path / "graph.svg")
    assert opened == [["xdg-open", str(path)]]


def test_save_only(opened: list[list[str]], tmp_path: Path) -> None:
    draw_demo(tmp_path / "graph.svg", vis_save_only=True)
    assert opened == []


@pytest.mark.parametrize("variable", ["CI", "DISPLAY"])
def test_no_viewer_without_a_screen(
    variable: str, opened: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1" if variable == "CI" else "")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert draw_demo(tmp_path / "graph.svg").exists()
    assert opened == []


def test_a_missing_viewer_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(show, "_viewer", lambda: [str(tmp_path / "no such program")])
    assert draw_demo(tmp_path / "graph.svg").exists()
    assert not show.open_in_viewer(tmp_path / "graph.svg")


@pytest.mark.parametrize("fileformat", ["svg", "pdf", "dot"])
def test_in_a_notebook_the_picture_is_inline(fileformat: str, notebook: list[Any], tmp_path: Path) -> None:
    path = draw_demo(tmp_path / "graph", vis_fileformat=fileformat)
    assert path == tmp_path / f"graph.{fileformat}" and path.exists()
    (picture,) = notebook
    assert "linear_1_3" in words_in(picture._repr_svg_().encode())
    assert set(picture._repr_mimebundle_()) == {"image/svg+xml", "text/plain"}
    assert str(path) in repr(picture)


def test_in_a_notebook_no_file_is_left_where_nobody_asked_for_one(
    notebook: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = log_of(DemoNetwork).draw()
    assert path.name == "modelgraph.svg" and path.exists() and not list(tmp_path.iterdir()) and len(notebook) == 1
    assert repr(notebook[0]) == "Picture of DemoNetwork"  # and not where it will be gone from
    assert isinstance(path, ShownPath)  # which is not shown as well, if it is the last line of a cell
    log_of(DemoNetwork).draw(vis_save_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["modelgraph.svg"] and len(notebook) == 1


def test_the_built_in_layout_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(graphviz, "is_there", lambda: True)
    monkeypatch.setattr(graphviz, "run_graphviz", lambda *args: b"Graphviz")
    log = log_of(DemoNetwork)
    assert MARKS["svg"] in log.draw(vis_outpath=tmp_path / "a.svg", vis_save_only=True).read_bytes()[:200]
    asked = log.draw(vis_outpath=tmp_path / "b.svg", vis_save_only=True, renderer="graphviz")
    assert asked.read_bytes() == b"Graphviz"


def test_big_graphs_start_collapsed_in_a_notebook_and_say_so(notebook: list[Any], tmp_path: Path) -> None:
    model = Stack(*(Block() for _ in range(60)))
    log = tl.get_model_metadata(model, [torch.rand(2, 4), torch.rand(2, 4)])
    log.draw(vis_outpath=tmp_path / "graph.svg", renderer="builtin")
    words = words_in(notebook[0]._repr_svg_().encode())
    assert "@blocks.59" in words and {"collapsed", "nesting", "vis_nesting_depth"} <= words
    log.draw(vis_outpath=tmp_path / "graph.svg", renderer="builtin", vis_nesting_depth=9)
    assert "collapsed" not in words_in(notebook[1]._repr_svg_().encode())


def test_the_deepest_readable_level_is_chosen() -> None:
    model = Stack(*(Block() for _ in range(40)))
    log = tl.get_model_metadata(model, [torch.rand(2, 4), torch.rand(2, 4)])
    view = show.readable_view(log, DrawOptions())
    assert len(view.nodes) == 40 * 4 + 3 and "nesting depth 2" in view.notes[0]
    small = dataclasses.replace(DrawOptions(), vis_collapse=lambda module: True)
    assert not show.readable_view(log, small).notes


def test_drawing_in_a_fresh_process_never_waits(tmp_path: Path) -> None:
    script = (
        "import torch, torchlens as tl\n"
        "from torch import nn\n"
        f"print(tl.show_model_graph(nn.Linear(2, 2), torch.rand(1, 2), vis_outpath={str(tmp_path / 'graph.svg')!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == str(tmp_path / "graph.svg") and not done.stderr

"""Arguments are checked before the model runs, and older names work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.draw.draw_options import DrawOptions


class Counting(nn.Module):
    """Knows how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.fc = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return torch.relu(self.fc(x))


WRONG: dict[str, dict[str, Any]] = {
    "an unknown argument": {"vis_nesting_deep": 1},
    "an unknown mode": {"vis_mode": "rolling"},
    "an unknown format": {"vis_fileformat": "gif"},
    "formats that disagree": {"vis_fileformat": "png", "vis_outpath": "graph.svg"},
    "no path": {"vis_outpath": 3},
    "a picture of another kind": {"vis_outpath": "graph.jpg"},
    "depth 0": {"vis_nesting_depth": 0},
    "a depth that is no number": {"vis_nesting_depth": "1"},
    "a depth that is a bool": {"vis_nesting_depth": True},
    "an unknown direction": {"vis_direction": "up"},
    "an unknown theme": {"vis_theme": "solarized"},
    "unknown buffers": {"vis_buffers": "some"},
    "an unknown renderer": {"renderer": "d3"},
    "no module address": {"module": 3},
    "an unknown number": {"vis_color_by": "beauty"},
    "no modules": {"vis_collapse": 3},
    "modules that are no addresses": {"vis_expand": [3]},
    "no override": {"vis_node_overrides": "red"},
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_fail_before_the_model_runs(what: str, tmp_path: Path) -> None:
    model = Counting()
    arguments = {"vis_mode": "unrolled", "vis_save_only": True, **WRONG[what]}
    for function in (tl.log_forward_pass, tl.show_model_graph):
        with pytest.raises(tl.ArgumentError):
            function(model, torch.ones(1, 2), **arguments)
    assert model.runs == 0


@pytest.mark.parametrize("what", [{"module": "rellu"}, {"vis_expand": {"rellu"}}, {"vis_collapse": "rellu"}])
def test_a_module_that_is_not_there_fails_before_the_model_runs(what: dict[str, Any], tmp_path: Path) -> None:
    model = Counting()
    model.relu = nn.ReLU()
    with pytest.raises(tl.LayerNotFoundError, match="no module 'rellu'; did you mean 'relu'"):
        tl.show_model_graph(model, torch.rand(2), vis_outpath=tmp_path / "graph", **what)
    with pytest.raises(tl.LayerNotFoundError, match="never called"):
        tl.show_model_graph(model, torch.rand(2), vis_outpath=tmp_path / "graph", module="relu:1")
    assert model.runs == 1


def test_paths_that_cannot_be_written_fail_before_the_model_runs(tmp_path: Path) -> None:
    model = Counting()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "graph.svg", tmp_path / "file" / "deeper" / "graph", "/proc/no/graph.svg"):
        with pytest.raises(tl.ArgumentError, match="can.t write"):
            tl.show_model_graph(model, torch.ones(1, 2), vis_outpath=path)
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(tl.ArgumentError, match="folder"):
        tl.show_model_graph(model, torch.ones(1, 2), vis_outpath=tmp_path / "folder.svg")
    assert model.runs == 0


def test_a_near_miss_is_named() -> None:
    with pytest.raises(tl.ArgumentError, match="did you mean 'vis_nesting_depth'"):
        DrawOptions.checked(vis_nesting_deptj=1)


def test_arguments_are_checked_even_when_nothing_is_drawn() -> None:
    with pytest.raises(tl.ArgumentError):
        tl.log_forward_pass(Counting(), torch.ones(1, 2), vis_nesting_deep=3)


@pytest.mark.parametrize(
    "arguments, name, fileformat",
    [
        ({}, "modelgraph.svg", "svg"),
        ({"vis_outpath": "graph"}, "graph.svg", "svg"),
        ({"vis_outpath": "graph.PDF"}, "graph.PDF", "pdf"),
        ({"vis_outpath": "graph", "vis_fileformat": "png"}, "graph.png", "png"),
        ({"vis_outpath": "graph.v2"}, "graph.v2.svg", "svg"),
        ({"vis_fileformat": "dot"}, "modelgraph.dot", "dot"),
        ({"vis_outpath": Path("a") / "b.dot"}, "b.dot", "dot"),
    ],
)
def test_path_and_format_complete_each_other(arguments: dict[str, Any], name: str, fileformat: str) -> None:
    options = DrawOptions.checked(**arguments)
    assert (options.vis_outpath.name, options.vis_fileformat) == (name, fileformat)


def test_older_names(tmp_path: Path) -> None:
    path = tmp_path / "graph.dot"
    log = tl.log_forward_pass(Counting(), torch.ones(1, 2), vis_opt="rolled", vis_outpath=path, vis_save_only=True)
    assert log.layer_labels and path.exists()
    assert DrawOptions.checked(vis_opt="rolled").vis_mode == "rolled"
    with pytest.raises(tl.ArgumentError, match="same argument"):
        DrawOptions.checked(vis_opt="rolled", vis_mode="rolled")
    with pytest.raises(tl.ArgumentError, match="same argument"):
        tl.log_forward_pass(Counting(), torch.ones(1, 2), vis_opt="rolled", vis_mode="unrolled")
    assert tl.log_forward_pass(Counting(), torch.ones(1, 2), vis_opt="none") is not None


def test_buffers_as_a_bool() -> None:
    assert DrawOptions.checked(vis_buffers=True).vis_buffers == "always"
    assert DrawOptions.checked(vis_buffers=False).vis_buffers == "never"

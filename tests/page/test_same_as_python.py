"""The page shows and lays out what the pictures do: the viewer's modules give the same results as Python's."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.draw.layout.test_layout_models import MODELS
from tests.models import CASES
from tests.page.modules import LAY_OUT, SHOW, layout_as_data, library, view_as_data

import torchlens as tl
from torchlens.draw.draw_options import DrawOptions
from torchlens.draw.layout.layout import lay_out
from torchlens.draw.view.build import make_view
from torchlens.page.page_data import page_data

SOME_MODELS = ("googlenet", "gpt2", "lstm cells", "mobilenet_v3_small")
SOME_CASES = CASES[::9]


@functools.cache
def log_of(name: str) -> tl.ModelLog:
    torch.manual_seed(0)
    if name in MODELS:
        return tl.log_forward_pass(*MODELS[name]())
    case = next(case for case in CASES if case.name == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tl.log_forward_pass(case.build().eval(), case.inputs(), case.kwargs())


@pytest.fixture(scope="module")
def viewer(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    page.evaluate(library())
    yield page
    page.close()


def near(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    return bool(abs(one - other) < 1e-6)


@pytest.mark.parametrize("name", [*SOME_MODELS, *(case.name for case in SOME_CASES)])
def test_layout(viewer: Any, name: str) -> None:
    for options in (
        {"vis_direction": "topdown"},
        {"vis_mode": "rolled"},
        {"vis_nesting_depth": 2, "vis_direction": "leftright", "vis_fold_repeats": True},
    ):
        view = make_view(log_of(name), DrawOptions.checked(**options))
        expected, found = layout_as_data(lay_out(view)), viewer.evaluate(LAY_OUT, view_as_data(view))
        assert [key for key in expected if not near(expected[key], found[key])] == []


@pytest.mark.parametrize("name", [*SOME_MODELS, *(case.name for case in SOME_CASES)])
def test_what_is_shown(viewer: Any, name: str) -> None:
    log = log_of(name)
    data: Any = page_data(log)
    for mode in data["modes"]:
        for depth in (1, 2, 99):
            for fold in (False, True):
                options = {"vis_mode": mode, "vis_nesting_depth": depth, "vis_fold_repeats": fold}
                view = make_view(log, DrawOptions.checked(**options, vis_direction="topdown", vis_gather=False))
                found = viewer.evaluate(SHOW, [data, mode, depth, fold, False, False])
                data = None  # the page keeps it
                expected = view_as_data(view)
                assert found["nodes"] == expected["nodes"]
                assert found["groups"] == expected["groups"]
                assert found["edges"] == expected["edges"]
            data = page_data(log)


class Fan(torch.nn.Module):
    """A wide fan of alike operations, and more outputs than can be read."""

    def forward(self, x: torch.Tensor) -> Any:
        parts = [(x[index] + 1).relu() for index in range(20)]
        return {"sum": torch.stack(parts).sum(0), "all": parts}


@pytest.mark.parametrize("name", ["gpt2", "fan"])
def test_what_is_gathered(viewer: Any, name: str) -> None:
    log = tl.log_forward_pass(Fan(), torch.rand(20, 3)) if name == "fan" else log_of(name)
    for depth in (1, 2):
        view = make_view(log, DrawOptions.checked(vis_nesting_depth=depth, vis_direction="topdown"))
        found = viewer.evaluate(SHOW, [page_data(log), "unrolled", depth, False, False, True])
        expected = view_as_data(view)
        assert found["nodes"] == expected["nodes"] and found["groups"] == expected["groups"]
        assert sorted(map(repr, found["edges"])) == sorted(map(repr, expected["edges"]))
        assert any(" ... " in node["lines"][0][0] for node in found["nodes"])


def test_the_way_of_the_gradient(viewer: Any) -> None:
    log = tl.log_forward_pass(
        torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), torch.rand(2, 3), save_gradients=True
    )
    log[-1].activation.sum().backward()
    view = make_view(log, DrawOptions.checked(vis_direction="topdown"))
    found = viewer.evaluate(SHOW, [page_data(log), "unrolled", 99, False, True, False])
    assert found["edges"] == view_as_data(view)["edges"] and any(edge["backward"] for edge in found["edges"])


def test_text_beyond_ascii_is_measured_by_python(viewer: Any) -> None:
    widths = viewer.evaluate("""() => {
      lib.learnWidths({ "\u6f22": 1, "\u0301": 0.01 });
      return [new lib.Text("\u6f22").width(10), new lib.Text("e\u0301").width(10)];
    }""")
    assert widths == pytest.approx([10.0, 5.66])


def test_long_lines_are_wrapped_alike(viewer: Any) -> None:
    from torchlens.draw.layout.measure import wrapped
    from torchlens.draw.view.elements import Text

    line = "a_very.long/name " * 12 + "x" * 150
    found = viewer.evaluate("(text) => lib.wrapped([new lib.Text(text, true)], 11).map((line) => line.text)", line)
    assert found == [part.text for part in wrapped((Text(line, True),), 11)]

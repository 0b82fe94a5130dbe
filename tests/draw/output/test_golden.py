"""Known models, drawn: the view as JSON and as DOT must be what it was when somebody last looked at it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.conftest import Golden
from tests.draw.view.figures import FIGURE_2, WrittenOutLstm
from tests.models import Lstm
from tests.test_documented import DemoNetwork, Figure3A, Figure3B, NetworkOrganizationDemo, RecurrentNetwork
from tests.torchvision_models import torchvision_models

import torchlens as tl
from torchlens.draw.draw_options import DrawOptions
from torchlens.draw.output.dot import to_dot
from torchlens.draw.view.build import make_view
from torchlens.draw.view.elements import Edge, Group, Legend, Node, Text, View


def googlenet() -> tl.ModelLog:
    model = torchvision_models().googlenet(init_weights=False, aux_logits=False).eval()
    return tl.get_model_metadata(model, torch.rand(1, 3, 224, 224))


def matrix_through(build: Callable[[], torch.nn.Module]) -> Callable[[], tl.ModelLog]:
    return functools.cache(lambda: tl.log_forward_pass(build(), torch.ones(5, 5), random_seed=0))


def sequence_through(build: Callable[[], torch.nn.Module], *shape: int) -> Callable[[], tl.ModelLog]:
    return functools.cache(lambda: tl.log_forward_pass(build(), torch.ones(*shape), random_seed=0))


LOGS: dict[str, Callable[[], tl.ModelLog]] = {
    "demo": matrix_through(DemoNetwork),
    "recurrent": matrix_through(RecurrentNetwork),
    "organization": matrix_through(NetworkOrganizationDemo),
    "figure3a": matrix_through(Figure3A),
    "figure3b": matrix_through(Figure3B),
    "googlenet": functools.cache(googlenet),
    "lstm": sequence_through(Lstm, 2, 4, 3),
    "written_out_lstm": sequence_through(WrittenOutLstm, 2, 3, 3),
    **{f"figure2{part}": matrix_through(build) for part, build in FIGURE_2.items()},
}

PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "demo": ("demo", {}),
    "recurrent_unrolled": ("recurrent", {}),
    "recurrent_rolled": ("recurrent", {"vis_mode": "rolled"}),
    "organization": ("organization", {}),
    "organization_depth_1": ("organization", {"vis_nesting_depth": 1}),
    "organization_alone": ("organization", {"module": "submodule1", "vis_theme": "dark", "vis_color_by": "flops"}),
    "figure3a_unrolled": ("figure3a", {}),
    "figure3a_rolled": ("figure3a", {"vis_mode": "rolled"}),
    "figure3b_unrolled": ("figure3b", {}),
    "figure3b_rolled": ("figure3b", {"vis_mode": "rolled"}),
    "googlenet_depth_1": ("googlenet", {"vis_nesting_depth": 1}),
    "googlenet_depth_2": ("googlenet", {"vis_nesting_depth": 2}),
    "googlenet_depth_3": ("googlenet", {"vis_nesting_depth": 3}),
    "lstm_of_torch": ("lstm", {}),
    "lstm_unrolled": ("written_out_lstm", {}),
    "lstm_rolled": ("written_out_lstm", {"vis_mode": "rolled"}),
    "lstm_rolled_depth_1": ("written_out_lstm", {"vis_mode": "rolled", "vis_nesting_depth": 1}),
    **{f"figure2{part}": (f"figure2{part}", {}) for part in FIGURE_2},
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, golden: Golden) -> None:
    log, arguments = PICTURES[name]
    view = make_view(LOGS[log](), DrawOptions.checked(**arguments))
    golden.check(f"draw/{name}.json", as_json(view))
    golden.check(f"draw/{name}.dot", to_dot(view))


def as_json(view: View) -> str:
    """The view with one line for each element; what is as usual is left out."""
    lists = []
    for name in ("title", "nodes", "groups", "edges"):
        lines = ",\n".join(_line(element) for element in getattr(view, name))
        lists.append(f'"{name}": [\n{lines}\n]')
    rest = {"direction": view.direction, "background": view.background, "font": view.font, "notes": view.notes}
    rest["legend"] = view.legend and _without_defaults(view.legend)
    return "{\n" + ",\n".join([*lists, f'"rest": {json.dumps(rest)}']) + "\n}\n"


def _line(element: Any) -> str:
    return json.dumps(_without_defaults(element))


def _without_defaults(element: Any) -> Any:
    if isinstance(element, Legend):
        return dataclasses.asdict(element)
    if isinstance(element, (Node, Edge, Group, Text)):
        defaults, values = element._field_defaults, element._asdict()
        return {
            name: _without_defaults(value)
            for name, value in values.items()
            if name not in defaults or value != defaults[name]
        }
    if isinstance(element, tuple):
        return [_without_defaults(member) for member in element]
    return element

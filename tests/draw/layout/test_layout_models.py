"""The layouts of real logs can be read: every tiny model, and larger ones, in both modes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.draw.layout.geometry import faults
from tests.models import CASES, Case
from tests.torchvision_models import torchvision_models
from torch import nn

import torchlens as tl
from torchlens.draw.draw_options import DrawOptions
from torchlens.draw.layout.layout import lay_out
from torchlens.draw.view.build import make_view

LARGER = {
    "alexnet": {},
    "googlenet": {"init_weights": False, "aux_logits": False},
    "inception_v3": {"init_weights": False, "aux_logits": False},
    "resnet50": {},
    "densenet121": {},
    "mobilenet_v3_small": {},
    "regnet_y_400mf": {},
    "shufflenet_v2_x0_5": {},
    "swin_v2_t": {},
}


def gpt2() -> tuple[nn.Module, Any]:
    torchvision_models()  # transformers imports torchvision, which must be able to load
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(n_layer=3, n_embd=32, n_head=4)).eval(), torch.randint(0, 100, (1, 7))


def stacked_lstm_cells() -> tuple[nn.Module, Any]:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.ModuleList([nn.LSTMCell(4, 4), nn.LSTMCell(4, 4)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states = [(torch.zeros(1, 4), torch.zeros(1, 4)) for _ in self.cells]
            for step in range(5):
                value = x[step : step + 1]
                for index, cell in enumerate(self.cells):
                    states[index] = cell(value, states[index])
                    value = torch.tanh(states[index][0]) + value
            return value

    return Recurrent(), torch.rand(5, 4)


def from_torchvision(name: str) -> Callable[[], tuple[nn.Module, Any]]:
    def build() -> tuple[nn.Module, Any]:
        size = 96 if name == "inception_v3" else 64
        return getattr(torchvision_models(), name)(**LARGER[name]).eval(), torch.rand(1, 3, size, size)

    return build


MODELS = {name: from_torchvision(name) for name in LARGER} | {"gpt2": gpt2, "lstm cells": stacked_lstm_cells}


def assert_readable(log: tl.ModelLog, **options: Any) -> None:
    view = make_view(log, DrawOptions.checked(**options))
    assert faults(view, lay_out(view)) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tiny_models(case: Case) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = tl.log_forward_pass(case.build(), case.inputs(), case.kwargs())
    for mode in ("unrolled", "rolled"):
        assert_readable(log, vis_mode=mode)
        assert_readable(log, vis_mode=mode, vis_direction="leftright", vis_buffers="always")


@pytest.mark.parametrize("name", MODELS)
def test_larger_models(name: str) -> None:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    log = tl.log_forward_pass(model, x)
    for options in (
        {},
        {"vis_mode": "rolled"},
        {"vis_nesting_depth": 1, "vis_direction": "topdown"},
        {"vis_nesting_depth": 2, "vis_direction": "leftright"},
        {"vis_fold_repeats": True},
    ):
        assert_readable(log, **options)

"""Warnings point at the line of the user's code that led to them, never at a line of the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import torchlens as tl

GRU, X = nn.GRU(3, 4), torch.rand(2, 3)


def unused_edit(folder: Path) -> None:
    tl.log_forward_pass(nn.ReLU(), -X, interventions={"relu_1_1": tl.edits.zero()})


def unused_edit_of_a_log(folder: Path) -> None:
    tl.log_forward_pass(nn.ReLU(), -X).intervene({"relu_1_1": tl.edits.zero()})


def unused_edit_of_a_recording(folder: Path) -> None:
    tl.fastlog.record(nn.ReLU(), -X, keep_op="relu", interventions={"relu_1_1": tl.edits.zero()})


def nothing_recorded(folder: Path) -> None:
    with tl.fastlog.Recorder(nn.ReLU(), keep_op="conv", keep_module="self") as recorder:
        recorder.log(X)


def one_of_several(folder: Path) -> None:
    tl.log_forward_pass(nn.Sequential(GRU), X)["0"]


def plucked_from_several(folder: Path) -> None:
    tl.pluck(nn.Sequential(GRU), X, "0")


def extracted_from_several(folder: Path) -> None:
    tl.extract(nn.Sequential(GRU), torch.rand(4, 2, 3), ["0"], folder / "acts")


def several_of_a_class(folder: Path) -> None:
    tl.log_forward_pass(nn.Sequential(GRU), X)[nn.GRU]


@pytest.mark.parametrize(
    "does",
    [
        unused_edit,
        unused_edit_of_a_log,
        unused_edit_of_a_recording,
        nothing_recorded,
        one_of_several,
        plucked_from_several,
        extracted_from_several,
        several_of_a_class,
    ],
)
def test_a_warning_points_at_the_users_line(does: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.warns((tl.FidelityWarning, tl.SeveralOutputsWarning)) as caught:
        does(tmp_path)
    code = does.__code__
    for warning in caught:
        assert (warning.filename, warning.lineno) in {(code.co_filename, line) for _, _, line in code.co_lines()}


def test_what_fails_does_not_warn_before() -> None:
    with pytest.raises(tl.LayerNotFoundError, match="means 2 layers"):  # SeveralOutputsWarning is an error here
        tl.log_forward_pass(Two(), X)[nn.GRU]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.GRU(3, 4), nn.GRU(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x)[0])[0]  # type: ignore[no-any-return]

"""What a user is told who asks for something that is not there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchlens as tl

needs_notes = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")


def test_a_wrong_name_in_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'log_forward_pas'; did you mean 'log_forward_pass'"):
        tl.log_forward_pas  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "given", "meant"),
    [
        (tl.log_forward_pass, "layer_to_save", "layers_to_save"),
        (tl.log_forward_pass, "vis_outpth", "vis_outpath"),
        (tl.show_model_graph, "random_sed", "random_seed"),
    ],
)
def test_a_wrong_argument(function: Any, given: str, meant: str) -> None:
    with pytest.raises(tl.ArgumentError, match=f"no argument '{given}'; did you mean '{meant}'"):
        function(nn.ReLU(), torch.rand(2), **{given: 1})


def test_a_submodule_that_is_not_there() -> None:
    with pytest.raises(tl.LayerNotFoundError, match="no module 'conv'; print the model to see its modules"):
        tl.log_forward_pass(nn.ReLU(), torch.rand(2), module="conv")


@needs_notes
@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (torch.rand(2, 3).numpy(), "an input is a NumPy array; torch.from_numpy"),
        ({"input": torch.rand(2, 3)}, "the only input is a dict; keyword arguments are given as input_kwargs"),
    ],
)
def test_an_input_that_the_model_can_not_take(given: Any, hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        tl.log_forward_pass(nn.Linear(3, 3), given)
    notes: list[str] = caught.value.__notes__  # type: ignore[attr-defined]
    assert len(notes) == 2 and hint in notes[1]


@needs_notes
def test_how_far_the_model_came() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(model, torch.rand(2, 3))
    (note,) = caught.value.__notes__  # type: ignore[attr-defined]
    assert "raised in 1 (Linear) after 1 operation; the last one was linear in 0 (Linear) (" in note


@needs_notes
def test_in_which_module_and_call_it_raised() -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 3:
                raise ValueError("too much")
            return x + 1

    class Calling(nn.Module):
        def __init__(self, hooked: bool) -> None:
            super().__init__()
            self.part = Failing()
            if hooked:
                self.part.register_forward_hook(lambda module, args, result: None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(5):
                x = self.part(x)
            return x

    for model in (Calling(False), Calling(True)):
        with pytest.raises(ValueError, match="too much") as caught:
            tl.log_forward_pass(model, torch.zeros(1))
        (note,) = caught.value.__notes__  # type: ignore[attr-defined]
        assert "raised in part:5 (Failing) after" in note
    with pytest.raises(TypeError) as wrong:
        tl.log_forward_pass(Calling(False), [1, 2, 3])
    assert "raised in the model itself after 0 operations" in wrong.value.__notes__[0]  # type: ignore[attr-defined]


def test_an_argument_of_the_model_as_a_keyword() -> None:
    with pytest.raises(tl.ArgumentError, match=r"no argument 'm'; an argument of the model: input_kwargs=\{'m': ...\}"):
        tl.log_forward_pass(nn.Linear(3, 3), torch.rand(2, 3), m=1)


def test_completion_lists_what_users_need() -> None:
    assert set(dir(tl.edits)) == set(tl.edits.__all__) and "torch" not in dir(tl.reduce)
    assert "zero" in dir(tl.edits) and "mean" in dir(tl.reduce)


def test_save_returns_where(tmp_path: Path) -> None:
    log = tl.log_forward_pass(nn.Linear(3, 3), torch.rand(2, 3))
    assert tl.save(log, str(tmp_path / "log")) == tmp_path / "log"

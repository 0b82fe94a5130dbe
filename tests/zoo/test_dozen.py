"""A dozen models of the zoo; `make zoo` runs all of them."""

from __future__ import annotations

import pytest
import torch
from tests.zoo.work import FAILED, NOT_BUILT, PARTS, PASSED, _differences, work
from torch import nn

import torchlens as tl

DOZEN = [
    "recurrent/areas_with_state",
    "recurrent/areas_that_repeat_training",
    "recurrent/lateral_and_top_down",
    "recurrent/lstm_cell_unrolled",
    "torchvision/mobilenet_v3_small",
    "torchvision/quantized_shufflenet_v2_x0_5",
    "torchvision/fasterrcnn_mobilenet_v3_large_320_fpn",
    "transformers/bert",
    "transformers/t5",
    "transformers/mixtral",
    "transformers/mamba",
    "generate/gpt2 greedy",
]


@pytest.mark.parametrize("job", DOZEN)
def test_models_are_logged_right(job: str) -> None:
    result = work(job)
    assert result["verdict"] == PASSED, result["why"]
    assert result["operations"] > 5 and not result["unverified"]


def test_models_of_text_and_pictures_get_both() -> None:
    transformers_models = pytest.importorskip("tests.zoo.transformers_models")
    given = transformers_models.build("llava").kwargs
    assert given["pixel_values"].dim() == 4 and given["input_ids"].shape[1] > 16


def test_widths_are_divided_alike() -> None:
    """Where sizes have to agree, dividing all of them by the same number keeps them agreeing."""
    transformers_models = pytest.importorskip("tests.zoo.transformers_models")
    config = transformers_models._config("bamba", transformers_models._in_proportion)
    assert config.mamba_n_heads * config.mamba_d_head == config.mamba_expand * config.hidden_size < 1024


def test_logs_that_differ_are_told() -> None:
    logs = [tl.log_forward_pass(nn.Tanh(), torch.full((3,), number)) for number in (0.5, 0.6)]
    assert _differences(logs[0], logs[0]) == []
    (told,) = _differences(*logs)
    assert told.startswith("two logs compared: Different from input_1_0 on: the inputs differ")


def test_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "odd", "tests.zoo.odd")
    assert work("odd/hidden")["verdict"] == FAILED
    assert "aten.mul.Tensor" in work("odd/hidden")["why"]
    assert work("odd/raises")["verdict"] == NOT_BUILT
    unstable = work("odd/counting")
    assert unstable["verdict"] == PASSED and "two plain runs" in unstable["note"]

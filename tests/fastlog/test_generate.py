"""A Recorder around `generate()`: every step is a pass."""

from __future__ import annotations

import runpy

import pytest
import torch
from tests.test_examples import EXAMPLES, load
from tests.torchvision_models import torchvision_models


@pytest.fixture(autouse=True, scope="module")
def importable() -> None:
    """transformers imports torchvision where it is installed, which on some machines needs help."""
    torchvision_models()


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "fastlog_generate.py"), run_name="__main__")
    assert "12 records of 6 passes" in capsys.readouterr().out


def test_each_step_of_a_generation_is_a_pass() -> None:
    example = load("fastlog_generate")
    model, prompt = example.small_gpt2(), torch.tensor([[1, 2, 3]])
    tokens, recording = example.generate(model, prompt, 5)
    assert recording.num_passes == len(recording.by_pass) == 5
    assert [record.pass_index for record in recording] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    plain = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=5, do_sample=False)
    assert torch.equal(tokens, plain)
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits[0]
    for number, step in enumerate(recording.by_pass):
        assert step["lm_head"].activation[0, -1].argmax() == tokens[0, 3 + number]
        assert torch.allclose(step["lm_head"].activation[0, -1], logits[2 + number], atol=1e-5)
    shapes = [tuple(step["transformer.h.1"].activation.shape) for step in recording.by_pass]
    assert shapes == [(1, 3, 32)] + [(1, 1, 32)] * 4  # the cache is used

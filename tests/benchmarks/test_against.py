"""What a forward hook gives is what each of our ways to edit gives, bit for bit; other tools: `make against`."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from benchmarks.against import EDITS, compared, edited_runs
from benchmarks.against_peer import CHANGES, MODELS, built, tensor_of, with_hook
from benchmarks.peers import EDITORS, EXTRACTORS, PEERS
from torch import Tensor

SITES = [("perceptrons", "blocks.0"), ("perceptrons", "blocks.1.up"), ("GPT-2", "transformer.h.0.mlp")]


@pytest.mark.parametrize("edit", CHANGES)
@pytest.mark.parametrize(("name", "site"), SITES)
@torch.no_grad()
def test_edits_give_what_hooks_give(name: str, site: str, edit: str) -> None:
    model, x, other = built(name)
    donor: list[Tensor] = []
    with_hook(model, other, site, lambda tensor: donor.append(tensor) or tensor)  # type: ignore[func-returns-value]
    expected = with_hook(model, x, site, partial(CHANGES[edit], donor=donor[0]))
    assert not expected.equal(tensor_of(model(x)))
    found = edited_runs(edit, model, x, other, site)
    assert len(found) == (2 if edit == "patch" else 3)
    assert {way: compared(output, expected) for way, output in found.items()} == dict.fromkeys(found, "equal")


def test_each_edit_and_tool_is_there_once() -> None:
    assert list(EDITS) == list(CHANGES)
    assert all(site in MODELS[name][1] for name, site in SITES)
    assert not (PEERS.keys() & EDITORS.keys() or EXTRACTORS.keys() & EDITORS.keys())


def test_a_difference_is_shown() -> None:
    assert compared(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])) == "5.0e-01"

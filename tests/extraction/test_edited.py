"""With interventions, what is stored is what an edited log holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.extraction.networks import images, network

import torchlens as tl

E = tl.edits
EDITS: dict[str, Any] = {
    "a label": {"relu_1": E.zero(units=[1, 2])},
    "a module": {"conv": E.scale(0.5)},
    "a function": {"norm": lambda value: value + 1},
}


@pytest.mark.parametrize("name", ["a label", "a module", "a function"])
def test_values_are_those_of_an_edited_log(tmp_path: Path, name: str) -> None:
    x, arguments = images(10), {"interventions": EDITS[name], "batch_size": 4, "shard_rows": 4}
    store = tl.extract(network(), x, ["conv", "relu_1", "head"], tmp_path / "acts", **arguments)
    for start in (0, 4, 8):  # the last batch is smaller
        log = tl.log_forward_pass(network(), x[start : start + 4], interventions=EDITS[name])
        for layer in store:
            expected = log[layer].activation.detach()
            assert torch.equal(store[layer].torch(slice(start, start + 4)), expected), layer


def test_another_edit_is_another_extraction(tmp_path: Path) -> None:
    def extract(vector: torch.Tensor) -> tl.Store:
        return tl.extract(
            network(), images(8), "head", tmp_path / "acts", interventions={"head": E.add(vector)}, batch_size=4
        )

    extract(torch.ones(5))
    extract(torch.ones(5))
    with pytest.raises(tl.StoreError, match="What differs: the interventions"):
        extract(torch.ones(5) * 2)
    with pytest.raises(tl.StoreError, match="the interventions"):
        tl.extract(network(), images(8), "head", tmp_path / "acts", batch_size=4)


def test_an_edit_that_is_never_reached(tmp_path: Path) -> None:
    with pytest.raises(tl.LayerNotFoundError):
        tl.extract(network(), images(8), "head", tmp_path / "acts", interventions={"nothing_1": E.zero()})
    assert not (tmp_path / "acts").exists()

"""Edits as plain data."""

from __future__ import annotations

from torch import Tensor

from torchlens.intervene.edit_data import from_data, to_data
from torchlens.intervene.edits import FunctionEdit


def halved(tensor: Tensor) -> Tensor:
    return tensor / 2


def test_files_call_a_function_what_they_always_did() -> None:
    data = to_data(FunctionEdit(halved))
    assert data["kind"] == "Function"
    assert isinstance(from_data(data), FunctionEdit)

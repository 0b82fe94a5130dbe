"""The README: its table of tasks works as it stands. Its blocks are run by test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pages import blocks_of, rows_of, run_line

import torchlens as tl

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_one_line_for_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "1")  # no viewer
    names: dict[str, Any] = {}
    exec(next(block.code for block in blocks_of(README) if block.language == "python"), names)
    for _, lines in rows_of(README):
        for line in lines:
            run_line(line, names)
    assert len(names["recorder"].recording) == 3
    assert names["grads"]["fc:2"].gradient is not None
    assert names["log"]["input_1"].tensor_shape == (7, 5)
    assert torch.equal(tl.load("run1")["input_1"].activation, names["x"])


def test_links_lead_somewhere() -> None:
    links = [one or other for one, other in re.findall(r'\]\((.+?)\)|src="(.+?)"', README)]
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_public_names_are_there() -> None:
    assert [name for name in tl.__all__ if not hasattr(tl, name)] == []
    assert tl.__all__ == sorted(tl.__all__)

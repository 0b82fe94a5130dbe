"""What a notebook shows: well-formed, escaped, complete, and not too long."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from tests.test_documented import DemoNetwork, RecurrentNetwork
from torch import Tensor, nn

import torchlens as tl
from torchlens.log.html import MOST_ROWS

NASTY = "<b>&\"'</b>"


class Nasty(nn.Module):
    """Names that are markup: of the class, of a module, of a parameter and of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module(NASTY, nn.Linear(3, 3))
        self.register_parameter(f"p{NASTY}", nn.Parameter(torch.rand(3)))
        self.register_buffer(f"b{NASTY}", torch.rand(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self._modules[NASTY](x)  # type: ignore[misc]
        return x * getattr(self, f"p{NASTY}") + getattr(self, f"b{NASTY}")


Nasty.__name__ = NASTY


def parsed(record: Any) -> ElementTree.Element:
    """As XML, which forgives nothing."""
    return ElementTree.fromstring(record._repr_html_())


def words(record: Any) -> str:
    return " ".join(text for text in parsed(record).itertext() if text.strip())


def rows(table: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


@pytest.fixture(scope="module")
def log() -> tl.ModelLog:
    return tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5))


def test_a_log(log: tl.ModelLog) -> None:
    page = parsed(log)
    for line in str(log).splitlines()[:6]:
        assert line.strip().removesuffix(":") in words(log)
    operations, modules, params, buffers = page.iter("details")
    assert operations.get("open") == "" and modules.get("open") is None
    shown = rows(operations)
    assert shown[0][1:4] == ["label", "tensor_shape", "tensor_dtype"]
    assert [row[1] for row in shown[1:]] == log.op_labels
    assert shown[4] == ["3", "linear_1_3", "5x5", "float32", "100 B", "fc", "relu_1_2"]
    assert rows(modules)[2] == ["1", "fc", "Linear", "1", "30", "linear_1_3"]
    assert rows(params)[1] == ["0", "fc.weight", "5x5", "float32", "100 B", "True"]
    assert rows(buffers)[1][-1] == "mul_1_10"


def test_headings_are_attributes(log: tl.ModelLog) -> None:
    for records in (log, log.modules, log.params, log.buffers):
        table = next(parsed(records).iter("table"))
        for name in rows(table)[0][1:]:
            assert hasattr(next(iter(records)), name)


def test_an_operation(log: tl.ModelLog) -> None:
    facts = dict(rows(next(parsed(log["fc"]).iter("table"))))
    for line in str(log["fc"]).splitlines()[-9:]:
        name, _, fact = line.strip().partition(": ")
        assert facts[name] == fact.strip()
    assert "tensor([[" in words(log["fc"]) and "x = self.fc(x)" in words(log["fc"])
    assert "Code" not in words(log["input_1"])


def test_a_layer_of_several_passes() -> None:
    layer = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))["linear_1_1"]
    assert [row[:3] for row in rows(parsed(layer))[1:]] == [
        [str(n), f"linear_1_1:{n}", str(3 * n - 1)] for n in (1, 2, 3)
    ]
    assert "log['linear_1_1:1']" in words(layer)


def test_names_are_escaped() -> None:
    log = tl.log_forward_pass(Nasty(), torch.rand(2, 3))
    for record in (log, log[NASTY], log.modules, log.params, log.buffers):
        assert NASTY in words(record)
        inner = record._repr_html_()
        assert NASTY not in inner and "<b>&" not in inner and {e.tag for e in parsed(record).iter()} <= TAGS


TAGS = {"div", "style", "b", "table", "tr", "th", "td", "details", "summary", "pre", "code"}


def test_warnings_are_shown_and_escaped(log: tl.ModelLog) -> None:
    noted = tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5))
    noted._trace.warnings.append("a < b & c")
    assert "⚠ a < b & c" in words(noted)


def test_nothing_is_fetched(log: tl.ModelLog) -> None:
    for record in (log, log["fc"], log.modules):
        assert not re.search(r"https?:|src=|url\(|@import|<script", record._repr_html_())


def test_what_is_long_is_cut() -> None:
    log = tl.get_model_metadata(nn.Sequential(*(nn.Tanh() for _ in range(MOST_ROWS + 50))), torch.rand(2))
    operations, _ = parsed(log).iter("details")
    assert operations.get("open") is None and len(rows(operations)) == MOST_ROWS + 1
    assert "... and 52 more" in words(log) and "... and 51 more" in words(log.modules)
    assert len(log._repr_html_()) < 100_000
    wide = tl.log_forward_pass(nn.Identity(), torch.rand(500, 500))
    assert len(wide["input_1"]._repr_html_()) < 4_000


def test_values_that_were_not_saved_and_lazy_ones(log: tl.ModelLog, tmp_path: Path) -> None:
    assert "(not saved)" in words(tl.get_model_metadata(DemoNetwork(), torch.rand(5, 5))["fc"])
    tl.save(log, tmp_path / "log")
    lazy = tl.load(tmp_path / "log", lazy=True)
    assert words(lazy["fc"]) == words(log["fc"])
    assert words(lazy) == words(log)


def test_a_log_without_operations() -> None:
    class Raises(nn.Module):
        def forward(self) -> Tensor:
            raise ValueError

    with pytest.raises(ValueError) as caught:
        tl.log_forward_pass(Raises())
    assert "cut short by an exception" in words(caught.value.partial_log)  # type: ignore[attr-defined]


def test_a_single_module_parameter_and_buffer(log: tl.ModelLog) -> None:
    page = words(log.modules["fc"])
    assert "Module fc" in page and "Linear" in page and "fc.weight, fc.bias" in page
    assert "Module call fc:1" in words(log.modules["fc:1"]) and "linear_1_3" in words(log.modules["fc:1"])
    page = words(log.params["fc.weight"])
    assert "Parameter fc.weight" in page and "5x5" in page and "used_by linear_1_3" in page
    page = words(log.buffers["example_buffer"])
    assert "Buffer example_buffer" in page and "used_by mul_1_10" in page
    nasty = tl.log_forward_pass(Nasty(), torch.rand(3))
    for record in (*nasty.modules, *nasty.params, *nasty.buffers):
        parsed(record)

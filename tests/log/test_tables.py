"""Tables have a row for each record and a column for each plain property, in every format."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.test_documented import DemoNetwork, RecurrentNetwork

import torchlens as tl
from torchlens.log.tables import column_names


@pytest.fixture(scope="module")
def log() -> tl.ModelLog:
    return tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5))


@pytest.fixture(scope="module")
def recurrent() -> tl.ModelLog:
    return tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))


def sources(log: tl.ModelLog, recurrent: tl.ModelLog) -> dict[str, tuple[Any, int]]:
    return {
        "log": (log, 12),
        "operation": (log["fc"], 1),
        "layer": (recurrent["linear_1_1"], 3),
        "modules": (log.modules, 3),
        "module": (log.modules["fc"], 1),
        "module call": (log.modules["fc:1"], 1),
        "params": (log.params, 2),
        "param": (log.params["fc.bias"], 1),
        "buffers": (log.buffers, 1),
        "buffer": (log.buffers[0], 1),
    }


SOURCES = ["log", "operation", "layer", "modules", "module", "module call", "params", "param", "buffers", "buffer"]


@pytest.mark.parametrize("name", SOURCES)
def test_every_format_has_the_same_rows(name: str, log: tl.ModelLog, recurrent: tl.ModelLog, tmp_path: Path) -> None:
    import pyarrow.parquet

    source, count = sources(log, recurrent)[name]
    rows = json.loads(source.to_json())
    assert len(rows) == count and len(rows[0]) > 5
    frame = source.to_pandas()
    assert len(frame) == count and list(frame.columns) == list(rows[0])
    lines = list(csv.DictReader(io.StringIO(source.to_csv())))
    assert len(lines) == count and list(lines[0]) == list(rows[0])
    source.to_parquet(tmp_path / "table.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "table.parquet").to_pylist()
    assert len(table) == count and list(table[0]) == list(rows[0])
    for one, two, three, four in zip(rows, frame.to_dict("records"), lines, table, strict=True):
        for column, cell in one.items():
            if isinstance(cell, (int, float)) and not isinstance(cell, bool):
                assert two[column] == four[column] == cell == float(three[column])
            elif isinstance(cell, str):
                assert two[column] == three[column] == four[column] == cell
            elif isinstance(cell, dict):
                assert two[column] == json.loads(three[column]) == json.loads(four[column]) == cell
            elif isinstance(cell, list):
                assert two[column] == json.loads(three[column]) == cell
                assert four[column] == cell or json.loads(four[column]) == cell
            elif cell is None:
                assert three[column] == "" and four[column] is None


def test_the_rows_say_what_the_records_say(log: tl.ModelLog) -> None:
    row = json.loads(log.to_json())[3]
    op = log[3]
    assert row["layer_label"] == "linear_1_3" and row["tensor_shape"] == [5, 5] and row["parent_layers"] == ["relu_1_2"]
    assert row["tensor_dtype"] == "torch.float32" and row["macs"] == op.macs and row["lookup_keys"] == op.lookup_keys
    assert "activation" not in row and set(row) == set(column_names(tl.OpLog))


def test_no_cell_is_a_tensor() -> None:
    log = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5), save_gradients=True, gradient_postfunc=torch.sum)
    log.log_backward(log[-1].activation.sum())
    text = log.to_csv()
    assert text is not None and "tensor(" not in text and "GradFnLog" not in text


def test_chosen_columns(log: tl.ModelLog, recurrent: tl.ModelLog, tmp_path: Path) -> None:
    assert list(log.to_pandas(["label", "root_ancestors"]).columns) == ["label", "root_ancestors"]
    recurrent["linear_1_1"].to_csv(tmp_path / "t.csv", columns=["label"])
    assert (tmp_path / "t.csv").read_text() == "label\nlinear_1_1:1\nlinear_1_1:2\nlinear_1_1:3\n"
    log.params.to_json(tmp_path / "t.json", columns=["address"])
    assert json.loads((tmp_path / "t.json").read_text()) == [{"address": "fc.weight"}, {"address": "fc.bias"}]
    with pytest.raises(tl.ArgumentError, match="no column 'tensor_shap'.*'tensor_shape'"):
        log.to_csv(columns=["tensor_shap"])


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_pandas"), ("pyarrow", "to_parquet")])
def test_what_is_missing_is_named(
    package: str, method: str, log: tl.ModelLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{method} needs {package}.*forwardlens\[tables\]"):
        getattr(log, method)(*([tmp_path / "x"] if method == "to_parquet" else []))
    assert log.to_csv() and log.to_json()


def test_a_loaded_log_has_the_same_tables(log: tl.ModelLog, tmp_path: Path) -> None:
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log", lazy=True)
    for one, two in ((log, loaded), (log.modules, loaded.modules), (log.params, loaded.params)):
        assert one.to_json() == two.to_json()


def test_an_empty_table() -> None:
    log = tl.log_forward_pass(torch.nn.ReLU(), torch.rand(2))
    assert log.params.to_json() == "[]" and len(log.buffers.to_pandas()) == 0

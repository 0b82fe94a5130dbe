"""Bundles that earlier versions wrote are read; a column belongs to a field of its record."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.bundle.compare import differences

import torchlens as tl
from torchlens.bundle import columns
from torchlens.bundle.columns import OLDEST, SCHEMA
from torchlens.bundle.migrate import _STEPS, migrate
from torchlens.capture.dispatcher import Completeness
from torchlens.capture.gradients import AutogradNode
from torchlens.capture.records import Applied, Call, ModuleCall, ModuleInfo, ReadEvent, TensorInfo

OLD = Path(__file__).parent / "old"


@pytest.mark.parametrize("lazy", [True, False])
def test_a_log_of_schema_2(lazy: bool, tmp_path: Path) -> None:
    log = tl.load(OLD / "schema2" / "log", lazy=lazy)
    assert log.model_name == "Tiny" and len(log) == 17 and log.op_labels[-1] == "output_2_13"
    assert log["relu_1:2"].transformed_activation.shape == () and log["output_1"].gradient.shape == (2, 3)
    assert log.modules["inner"].module_class_name == "Inner" and log.random_seed_used == 3
    completeness = log._trace.completeness
    assert completeness is not None and completeness.operations > 10 and completeness.unknown == []
    assert all(node.saved is not None for node in log._trace.gradients.nodes)
    assert len(log.interventions) == 0 and str(log) and log.to_dot() and tl.lint(log) == []
    tl.save(log, tmp_path / "new")
    assert json.loads((tmp_path / "new" / "manifest.json").read_text())["schema"] == SCHEMA
    assert differences(log, tl.load(tmp_path / "new")) == []


def test_a_journal_of_schema_2() -> None:
    log = tl.recover(OLD / "schema2" / "cut")
    assert log.num_tensors_saved == 8 and "cut short" in log.warnings[0] and tl.lint(log) == []
    assert torch.equal(log["relu_1:1"].activation, torch.relu(log["linear_1:1"].activation))


def test_a_recording_of_schema_2() -> None:
    recording = tl.fastlog.load(OLD / "schema2" / "records")
    assert [record.sample_id for record in recording] == ["one", "one"] and recording[0].activation.shape == (2, 3)


@pytest.mark.parametrize(("schema", "words"), [(OLDEST - 1, "an older"), (SCHEMA + 1, "a newer")])
def test_other_versions_are_named(schema: int, words: str, tmp_path: Path) -> None:
    shutil.copytree(OLD / "schema2" / "log", tmp_path / "log")
    manifest = json.loads((tmp_path / "log" / "manifest.json").read_text())
    (tmp_path / "log" / "manifest.json").write_text(json.dumps(manifest | {"schema": schema}))
    with pytest.raises(tl.BundleError, match=words):
        tl.load(tmp_path / "log")


def test_there_is_a_step_from_every_version_that_is_read() -> None:
    assert list(_STEPS) == list(range(OLDEST, SCHEMA))
    tables = {"anything": 1}
    assert migrate(tables, SCHEMA) is tables


FIELDS: dict[Any, list[str]] = {
    columns.CallRow: list(Call._fields),
    columns.ModuleCallRow: list(ModuleCall.__slots__),
    columns.EventRow: list(ReadEvent._fields),
    columns.AppliedRow: list(Applied._fields),
    columns.NodeRow: list(AutogradNode._fields),
    columns.ModuleRow: list(ModuleInfo._fields),
    columns.TensorInfoRow: list(TensorInfo._fields),
    columns.CompletenessRow: [field.name for field in dataclasses.fields(Completeness)],
}


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row.__name__)
def test_columns_are_the_fields_of_their_records(row: Any) -> None:
    assert sorted(row._fields) == sorted(FIELDS[row])

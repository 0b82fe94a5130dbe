"""Records on disk: the same as in memory, whole or not there, and nothing in the files is trusted."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.fastlog.test_recorder import Net, X, facts, labels
from tests.fastlog.test_values import RUNS
from tests.models import Case
from tests.test_oracle import content, prepared, surroundings
from torch import nn

import torchlens as tl
from torchlens.bundle.files import writing
from torchlens.bundle.hashing import hash_of
from torchlens.bundle.stream import TensorStream
from torchlens.fastlog import CaptureSpec, Record, Recorder, Recording, load, record, recover


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


def assert_same(one: Recording, other: Recording) -> None:
    assert (one.model_name, one.num_passes, one.warnings) == (other.model_name, other.num_passes, other.warnings)
    for first, second in zip(one, other, strict=True):
        assert (first.label, first.pass_index, first.sample_id) == (second.label, second.pass_index, second.sample_id)
        assert (first.activation is None) == (second.activation is None)
        assert first.activation is None or content(first.activation) == content(second.activation)
        assert (first.context is None) == (second.context is None)
        assert first.context is None or plain_facts(first) == plain_facts(second)


def plain_facts(record: Record) -> dict[str, Any]:
    """The size of a jagged dimension is a symbol, of which a file can only say that there is one."""
    known = facts(record.context)
    shape = known["tensor_shape"]
    return {**known, "tensor_shape": shape and tuple(size if type(size) is int else -1 for size in shape)}


ONE_MODE = [run for run in RUNS if run.values[1] == "eval"]


@pytest.mark.parametrize(("case", "mode"), ONE_MODE)
def test_what_is_loaded_is_what_was_recorded(case: Case, mode: str, tmp_path: Path) -> None:
    run = prepared(case, mode)
    with surroundings(case, mode), Recorder(run.model, keep_op=True, save_to=tmp_path / "all") as recorder:
        recorder.log(run.args, run.kwargs)
    assert_same(recorder.recording, load(tmp_path / "all"))


@pytest.mark.parametrize("in_memory", [True, False])
def test_many_passes(net: nn.Module, tmp_path: Path, in_memory: bool) -> None:
    chosen = {"keep_op": ["relu", "input"], "keep_module": ["rnn", "head:2"]}
    with (
        Recorder(net, **chosen) as plain,
        Recorder(net, **chosen, save_to=tmp_path / "many", keep_in_memory=in_memory) as recorder,
    ):
        for number in range(4):
            recorder.log(X * number, sample_id=["sample", number])
    on_disk = load(tmp_path / "many")
    assert_same(recorder.recording, on_disk)
    assert [content(r.activation) for r in on_disk] == [content(r.activation) for r in plain.recording]
    assert all((record._saved is None) != in_memory for record in recorder.recording)
    assert on_disk.by_pass[2]["relu_1"].sample_id == ["sample", 2] and on_disk.num_passes == 4
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == [
        "manifest.json", "metadata.json", "tensors-00000.safetensors",
    ]  # fmt: skip


def test_one_pass_with_specs(net: nn.Module, tmp_path: Path) -> None:
    answers = {
        "relu": CaptureSpec(dtype=torch.float16),
        "conv2d": CaptureSpec(save_activation=False),
        "linear": CaptureSpec(save_metadata=False),
    }
    recording = record(net, X, keep_op=lambda ctx: answers.get(ctx.layer_type, False), save_to=tmp_path / "one")
    assert_same(recording, load(tmp_path / "one"))
    assert recording.to_log()["relu_1"].activation.dtype == torch.float16
    with pytest.raises(tl.ArgumentError, match="have records, but no graph"):
        load(tmp_path / "one").to_log()


def test_values_that_are_only_on_disk_are_in_a_log_as_well(net: nn.Module, tmp_path: Path) -> None:
    recording = record(net, X, keep_op="relu", save_to=tmp_path / "one", keep_in_memory=False)
    log = recording.to_log()
    assert torch.equal(log["relu_1"].activation, recording["relu_1"].activation) and len(log) == 3


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"keep_in_memory": False}, "needs save_to=path"),
        ({"save_to": 3}, "path of a folder"),
        ({"save_to": "x", "train_mode": True}, "connected to autograd, which is impossible on disk"),
    ],
)
def test_arguments_are_checked(net: nn.Module, chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(tl.ArgumentError, match=words):
        record(net, X, keep_op="relu", **chosen)
    with pytest.raises(tl.ArgumentError, match=words):
        Recorder(net, keep_op="relu", **chosen)


def test_what_cannot_be_written_is_refused(net: nn.Module, tmp_path: Path) -> None:
    keep_grad = CaptureSpec(keep_grad=True)
    with pytest.raises(tl.ArgumentError, match="input_1_0 is to stay connected"):
        record(net, X, keep_op=lambda ctx: keep_grad, save_to=tmp_path / "grad")
    with (
        pytest.raises(tl.ArgumentError, match="sample_id"),
        Recorder(net, keep_op="relu", save_to=tmp_path / "sample") as recorder,
    ):
        recorder.log(X, sample_id=object())
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").touch()
    with pytest.raises(tl.BundleError, match="exists"):
        record(net, X, keep_op="relu", save_to=tmp_path / "there")


# ---- cut short ------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, time, torch
from tests.fastlog.test_recorder import Net, X
from torchlens.bundle.stream import TensorStream
from torchlens.fastlog import Recorder

write = TensorStream._write
TensorStream._write = lambda self, *args: (time.sleep(0.002), write(self, *args))[1]  # a slow disk
torch.manual_seed(0)
with Recorder(Net().eval(), keep_op=["relu", "mean"], save_to="cut", keep_in_memory=False) as recorder:
    for number in range(1000):
        recorder.log(X * number, sample_id=number)
        if number == 30:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process that was killed has left."""
    folder = tmp_path_factory.mktemp("killed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, env=environment, check=False)
    assert done.returncode < 0
    return folder / "cut"


def test_what_is_whole_is_recovered(cut: Path, net: nn.Module) -> None:
    with pytest.raises(tl.BundleError, match="tl.fastlog.recover"):
        load(cut)
    recording = recover(cut)
    assert 0 < len(recording) < 4 * 31 and "cut short" in recording.warnings[0]
    assert f"{4 * 31 - len(recording)} of {4 * 31} tensors" in recording.warnings[1]
    with Recorder(net, keep_op=["relu", "mean"]) as recorder:
        for number in range(31):
            recorder.log(X * number, sample_id=number)
    for kept, expected in zip(recording, recorder.recording, strict=False):
        assert facts(kept.context) == facts(expected.context)
        assert torch.equal(kept.activation, expected.activation)


def test_a_line_or_a_tensor_that_is_damaged_is_dropped(cut: Path, tmp_path: Path) -> None:
    whole = recover(cut)
    torn = tmp_path / "torn"
    shutil.copytree(cut, torn)
    journal = torn / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    found = recover(torn)
    assert len(found) == len(whole) - 1 and any("incomplete" in warning for warning in found.warnings)
    damaged = tmp_path / "damaged"
    shutil.copytree(cut, damaged)
    shard = damaged / "tensors-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    found = recover(damaged)
    assert 0 < len(found) < len(whole) + 1 and any("damaged" in warning for warning in found.warnings)
    with pytest.raises(tl.BundleError, match="tl.fastlog.recover"):
        tl.recover(cut)


@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_every_whole_record_of_a_damaged_recording_is_recovered(saved: Path, tmp_path: Path, damage: str) -> None:
    whole, path = load(saved), tmp_path / "damaged"
    shutil.copytree(saved, path)
    shard = path / "tensors-00000.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-3] if damage == "truncated" else data[:-1] + bytes([data[-1] ^ 1]))
    if damage == "missing":
        shard.unlink()
    found = recover(path)
    kept = {record.index: record for record in found}
    assert len(found) == (0 if damage == "missing" else len(whole) - 1) and found.num_passes == whole.num_passes
    assert all(content(kept[i].activation) == content(whole[i].activation) for i in kept)
    lost = len(whole) - len(found)
    assert any(f"{lost} of {len(whole)} records" in warning for warning in found.warnings)
    assert recover(saved).warnings == whole.warnings and len(recover(saved)) == len(whole)


def test_a_full_disk_says_what_can_be_recovered(
    net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TensorStream.store

    def full(self: TensorStream, tensor: Any, name: str) -> Any:
        if len(self.table) == 5:
            with writing(self.folder / "tensors-00000.safetensors"):
                raise OSError(errno.ENOSPC, "No space left on device")
        return store(self, tensor, name)

    monkeypatch.setattr(TensorStream, "store", full)
    with pytest.raises(tl.BundleError) as caught, Recorder(net, keep_op="relu", save_to=tmp_path / "full") as recorder:
        for _ in range(4):
            recorder.log(X)
    assert "No space left" in str(caught.value) and "nothing was saved" not in str(caught.value)
    assert f"tl.fastlog.recover({str(tmp_path / 'full')!r}) gives the 5 tensors" in str(caught.value)
    assert len(recover(tmp_path / "full")) == 5


def test_an_error_in_the_block_leaves_what_was_recorded(net: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Recorder(net, keep_op="relu", save_to=tmp_path / "block") as recorder:
        recorder.log(X)
        1 / 0
    assert len(load(tmp_path / "block")) == 3
    with pytest.raises(RuntimeError, match="size"):
        record(net, torch.rand(3, 1, 8, 9), keep_op="relu", save_to=tmp_path / "model")
    assert labels(recover(tmp_path / "model")) in ([], ["relu_1_5"], ["relu_1_5", "relu_2_7"])


# ---- files that are not to be trusted -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "good"
    torch.manual_seed(0)
    record(Net().eval(), X, keep_op="relu", keep_module="rnn", save_to=path)
    return path


def altered(saved: Path, folder: Path, change: Any) -> Path:
    """A copy of a recording with other metadata, properly hashed."""
    path = folder / "bad"
    shutil.copytree(saved, path)
    tables = json.loads((path / "metadata.json").read_text())
    change(tables)
    data = json.dumps(tables).encode()
    (path / "metadata.json").write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["metadata"] = {"bytes": len(data), "xxh3": hash_of(data)}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def setting(column: int, value: Any) -> Any:
    def change(tables: Any) -> None:
        tables["records"][0][column] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        setting(0, "x"), setting(1, "other"), setting(1, "module_exit"), setting(2, -1), setting(3, 7),
        setting(5, [[1]]), setting(5, [[0, "a", "B", 0]]), setting(6, ["relu", 1]), setting(6, None), setting(7, 1.5),
        setting(8, [[1], "nonsense", "cpu"]), setting(8, [[1], "float32", "__import__('os')"]), setting(9, 5),
        setting(10, "parents"), setting(11, [False, False]), setting(12, 99), setting(12, -1),
        lambda tables: tables["records"][0].pop(), lambda tables: tables.update(records=None),
        lambda tables: tables["fastlog"].update(passes="one"), lambda tables: tables.update(fastlog=[]),
        lambda tables: tables["fastlog"].update(warnings=[1]),
    ],
)  # fmt: skip
def test_bad_metadata_is_refused(saved: Path, tmp_path: Path, change: Any) -> None:
    with pytest.raises(tl.BundleError):
        load(altered(saved, tmp_path, change))


def test_the_two_kinds_of_folders_name_each_other(saved: Path, net: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(tl.BundleError, match="tl.fastlog.load"):
        tl.load(saved)
    tl.save(tl.log_forward_pass(net, X), tmp_path / "log")
    with pytest.raises(tl.BundleError, match="tl.load"):
        load(tmp_path / "log")
    with pytest.raises(tl.BundleError, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(tl.BundleError, match="does not exist"):
        recover(tmp_path / "nowhere")

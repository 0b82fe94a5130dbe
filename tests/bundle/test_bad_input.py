"""Whatever is wrong with a bundle is an error of ours, and costs no more memory than the files have."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import random
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.models import Forward
from torch import Tensor, nn

import torchlens as tl
from torchlens.bundle.hashing import hash_of

SHARD = "tensors-00000.safetensors"
FUZZ = settings(
    max_examples=int(os.environ.get("TORCHLENS_FUZZ", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def demo(x: Tensor) -> Tensor:
    y = torch.dropout(x, 0.5, True)[1:]
    y[0] = 2
    if y.sum() > -100:
        y = torch.stack([y, y * 2]).max(dim=0).values
    return y


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with nothing wrong with it."""
    model = nn.Sequential(nn.Linear(3, 3), Forward(demo), nn.BatchNorm1d(3))
    log = tl.log_forward_pass(model, torch.rand(4, 3), random_seed=0)
    path = tmp_path_factory.mktemp("bundles") / "sound"
    tl.save(log, path)
    assert tl.load(path).validate()
    return path


@pytest.fixture
def bundle(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "bundle"))


def refused(bundle: Path, match: str, lazy: bool = False) -> None:
    with pytest.raises(tl.BundleError, match=match):
        tl.load(bundle, lazy=lazy)


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file in place."""
    data = json.loads(path.read_text())
    path.write_text(json.dumps(change(data) or data))


def sign(bundle: Path) -> None:
    """Put the right hashes into the manifest, as somebody who means harm would."""

    def change(manifest: Any) -> None:
        metadata = (bundle / "metadata.json").read_bytes()
        manifest["metadata"] = {"bytes": len(metadata), "xxh3": hash_of(metadata)}
        for shard in manifest["shards"]:
            data = (bundle / shard["file"]).read_bytes()
            header = data[8 : 8 + int.from_bytes(data[:8], "little")]
            shard |= {"bytes": len(data), "xxh3": hash_of(header)}

    edit(bundle / "manifest.json", change)


def edit_metadata(bundle: Path, change: Callable[[Any], Any]) -> None:
    edit(bundle / "metadata.json", change)
    sign(bundle)


def edit_header(bundle: Path, change: Callable[[Any], Any]) -> None:
    data = (bundle / SHARD).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = json.dumps(change(header) or header).encode()
    (bundle / SHARD).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    sign(bundle)


# ---- damage ---------------------------------------------------------------------------------------------------


def test_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "does not exist")
    (tmp_path / "file").write_text("{}")
    refused(tmp_path / "file", "not a folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "manifest.json is missing")
    with pytest.raises(tl.BundleError, match=r"neither manifest\.json nor journal\.jsonl; give the folder that tl"):
        tl.recover(tmp_path / "empty")
    (tmp_path / "empty" / "plan.json").write_text("{}")
    with pytest.raises(tl.BundleError, match=r"is a store of tl\.extract, not a saved log; tl\.open_store"):
        tl.recover(tmp_path / "empty")


@pytest.mark.parametrize("name", ["manifest.json", "metadata.json", SHARD])
def test_missing_file(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    refused(bundle, f"{name} is missing", lazy=True)


@pytest.mark.parametrize("name", ["metadata.json", SHARD])
@pytest.mark.parametrize("keep", [0, 5, -1])
def test_truncated(bundle: Path, name: str, keep: int) -> None:
    data = (bundle / name).read_bytes()
    (bundle / name).write_bytes(data[:keep])
    refused(bundle, "truncated|bytes")
    refused(bundle, "truncated|bytes", lazy=True)


def test_truncated_after_it_was_opened(bundle: Path) -> None:
    lazy = tl.load(bundle, lazy=True)
    os.truncate(bundle / SHARD, 3000)
    with pytest.raises(tl.BundleError, match="truncated"):
        [op.activation for op in lazy]


def test_one_bit_in_the_data(bundle: Path) -> None:
    data = bytearray((bundle / SHARD).read_bytes())
    data[-1] ^= 1
    (bundle / SHARD).write_bytes(data)
    refused(bundle, "damaged or was altered")
    lazy = tl.load(bundle, lazy=True)  # nothing is wrong until the tensor is read
    with pytest.raises(tl.BundleError, match="damaged or was altered"):
        [op.activation for op in lazy], [param.value for param in lazy.params], [op.func_rng_states for op in lazy]


def test_one_bit_in_the_header(bundle: Path) -> None:
    data = bytearray((bundle / SHARD).read_bytes())
    data[40] ^= 1
    (bundle / SHARD).write_bytes(data)
    refused(bundle, "hash of its header", lazy=True)


def test_wrong_hashes(bundle: Path) -> None:
    for part in ("metadata", "shards"):
        manifest = json.loads((bundle / "manifest.json").read_text())
        (manifest[part] if part == "metadata" else manifest[part][0])["xxh3"] = "0" * 32
        (bundle / "manifest.json").write_text(json.dumps(manifest))
        refused(bundle, "hash", lazy=True)


# ---- harm -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("schema", "age"), [(99, "newer"), (1, "older")])
def test_another_schema(bundle: Path, schema: int, age: str) -> None:
    edit(bundle / "manifest.json", lambda manifest: manifest.update(schema=schema))
    refused(bundle, f"schema {schema}, this version reads 2 to 3; an? {age} torchlens")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "tensors-00000.safetensors\0x", "", "tensors-1"])
def test_paths_that_lead_elsewhere(bundle: Path, name: str) -> None:
    edit(bundle / "manifest.json", lambda manifest: manifest["shards"][0].update(file=name))
    refused(bundle, "is called")


@pytest.mark.parametrize("name", ["manifest.json", "metadata.json", SHARD])
def test_links(bundle: Path, name: str, tmp_path: Path) -> None:
    os.rename(bundle / name, tmp_path / name)
    os.symlink(tmp_path / name, bundle / name)
    refused(bundle, "plain file", lazy=True)


@pytest.mark.parametrize("name", ["manifest.json", "metadata.json", SHARD])
def test_pipes_and_folders(bundle: Path, name: str) -> None:
    os.unlink(bundle / name)
    os.mkfifo(bundle / name)
    refused(bundle, "plain file", lazy=True)
    os.unlink(bundle / name)
    os.mkdir(bundle / name)
    refused(bundle, "plain file", lazy=True)


class Harm:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was read",))


@pytest.mark.parametrize("name", ["manifest.json", "metadata.json"])
@pytest.mark.parametrize(
    ("data", "match"),
    [
        (pickle.dumps(Harm()), "not JSON.*looks like a pickle"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 1_000_000 + b"]" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 1_000_000, "nested too deeply"),
        (b"NaN", "not JSON"),
        (b"1" * 10_000, "not JSON"),
        (b"", "not JSON"),
        (b"null", "manifest|malformed|JSON object"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_something_else_in_place_of_json(bundle: Path, name: str, data: bytes, match: str) -> None:
    (bundle / name).write_bytes(data)
    if name == "metadata.json":
        sign(bundle)
    refused(bundle, match, lazy=True)


@pytest.mark.parametrize(
    "header",
    [b"\xff" * 8, struct.pack("<Q", 2**62), struct.pack("<Q", 0), struct.pack("<Q", 50) + b"[" * 50,
     struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 4) + b"null"],
)  # fmt: skip
def test_bad_headers(bundle: Path, header: bytes) -> None:
    (bundle / SHARD).write_bytes(header.ljust(100))
    digest = hash_of(header[8:])
    edit(bundle / "manifest.json", lambda manifest: manifest["shards"][0].update(bytes=100, xxh3=digest))
    refused(bundle, "header|malformed|no tensor", lazy=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": [10**15]}, {"shape": [2**62, 2**62]}, {"shape": [-1]}, {"shape": "x"}, {"dtype": "F7"},
        {"data_offsets": [0, 10**15]}, {"data_offsets": [-8, 0]}, {"data_offsets": [8, 0]}, {"data_offsets": []},
    ],
    ids=str,
)  # fmt: skip
def test_absurd_tensors_in_a_shard(bundle: Path, fields: dict[str, Any]) -> None:
    edit_header(bundle, lambda header: header["op.1"].update(fields))
    refused(bundle, "malformed|expected|unknown|is stored in", lazy=True)


def strided(tables: Any) -> list[Any]:
    return next(row for row in tables["tensors"] if row[0] == "strided")


@pytest.mark.parametrize(
    ("column", "value"),
    [(1, [10**15, 3]), (1, [2**40, 2**40]), (1, [-1, 3]), (1, [4]), (2, [10**9, 1]), (2, [-3, 1]),
     (0, "float33"), (0, "Tensor"), (0, None), (1, [1] * 1000)],
)  # fmt: skip
def test_absurd_layouts(bundle: Path, column: int, value: Any) -> None:
    edit_metadata(bundle, lambda tables: tables["layouts"][0].__setitem__(column, value))
    refused(bundle, "layouts|tensors", lazy=True)


@pytest.mark.parametrize(
    ("column", "value"), [(1, 10**6), (1, -1), (2, 10**6), (2, -1), (3, 10**9), (3, -1), (4, True), (0, "odd")]
)
def test_absurd_views(bundle: Path, column: int, value: Any) -> None:
    edit_metadata(bundle, lambda tables: strided(tables).__setitem__(column, value))
    refused(bundle, "tensors", lazy=True)


def test_more_elements_than_can_be_counted(bundle: Path) -> None:
    """A stride of 0 makes any size fit into memory; it is legal, within reason."""

    def change(tables: Any) -> None:
        tables["layouts"][0][1:] = [2**30, 2**31], [0, 0]

    edit_metadata(bundle, change)
    refused(bundle, "layouts", lazy=True)


def test_memory_stays_bounded_while_refusing(bundle: Path) -> None:
    edit_metadata(bundle, lambda tables: tables["facts"][0].__setitem__(0, [10**12, 10**12]))
    tracemalloc.start()
    try:
        refused(bundle, "facts")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    os.truncate(bundle / "manifest.json", 10**9)
    refused(bundle, "more than")


def test_unknown_functions_are_named_when_they_are_needed(bundle: Path) -> None:
    def change(tables: Any) -> None:
        for row in tables["functions"]:
            if row[1] == "torch.dropout":
                row[1] = "os.system"

    edit_metadata(bundle, change)
    log = tl.load(bundle)
    assert log["dropout"].func_name == "dropout" and "os.system" in repr(log["dropout"].func_applied)
    with pytest.raises(tl.UnknownFunctionError, match="os.system is not one of torch's own"):
        log["dropout"].func_applied("ls")
    report = log.validate()
    assert [(label, "os.system" in reason) for label, reason in report.unverified] == [("dropout_1_2", True)]


@pytest.mark.parametrize(
    "name",
    ["os.system", "torch.load", "torch.from_file", "torch.ops.aten.from_file", "torch.ops.aten.from_file.default",
     "torch.hub.load", "builtins.eval", "torch.nn.functional.warnings.warn", "torch.Tensor.__class__", "torch.ops.x.y",
     "torch.Tensor.__reduce_ex__", "torch.ops.aten.__class__", "torch.ops.aten.add.__class__", "torch.jit.load"],
)  # fmt: skip
def test_only_torchs_own_functions_are_found(name: str) -> None:
    from torchlens.bundle.function_names import find

    assert find(name) is None


def test_loading_imports_nothing(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tl.load(bundle)  # what is imported lazily by torch itself has been
    edit_metadata(bundle, lambda tables: tables["functions"][0].__setitem__(1, "antigravity.fly"))
    import builtins

    importer = builtins.__import__
    seen: list[str] = []
    monkeypatch.setattr(builtins, "__import__", lambda name, *rest: seen.append(name) or importer(name, *rest))
    tl.load(bundle)
    assert "antigravity" not in seen and not any("pickle" in name for name in seen)


# ---- records that do not fit together -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("values", 1, 0, "god"), ("values", 1, 1, 10**6), ("values", 1, 1, -2), ("values", 1, 1, 0.5),
        ("values", 1, 4, -1), ("values", 1, 6, 10**6), ("values", 0, 1, 0), ("values", 1, 1, 1),
        ("calls", 0, 0, 999), ("calls", 0, 1, [["value", 5]]), ("calls", 0, 1, {"a": 1}), ("calls", 0, 3, []),
        ("calls", 0, 3, [0]), ("calls", 0, 5, 999), ("calls", 0, 6, -1), ("calls", 0, 7, "x"), ("calls", 0, 4, [3]),
        ("calls", 0, 1, [["launch", 1]]), ("calls", 0, 1, [["torch", "nn"]]), ("calls", 0, 1, [["type", "object"]]),
        ("calls", 0, 1, [["number", "O8", "00"]]), ("calls", 0, 1, [["device", "moon"]]),
        ("module_calls", 1, 2, 1), ("module_calls", 1, 0, 99), ("module_calls", 0, 5, 10**9),
        ("sites", 0, 0, 999), ("sites", 0, 1, 12345), ("places", 0, 2, "x"), ("statements", 0, 0, 99),
        ("sources", 0, 0, 1), ("states", 0, 1, 1),
        ("objects", 0, 0, 1), ("events", 0, 0, None), ("functions", 0, 0, None), ("modules", 0, 1, "x"),
    ],
)  # fmt: skip
def test_records_that_do_not_fit(bundle: Path, table: str, row: int, column: int, value: Any) -> None:
    def change(tables: Any) -> None:
        if table == "objects":
            tables["objects"].append([1, 2])
        else:
            tables[table][row][column] = value

    edit_metadata(bundle, change)
    refused(bundle, f"{table}|those of another call", lazy=True)


def test_arguments_nested_too_deeply(bundle: Path) -> None:
    nest: Any = 1
    for _ in range(500):
        nest = ["list", nest]
    edit_metadata(bundle, lambda tables: tables["calls"][0].__setitem__(1, [nest]))
    refused(bundle, "nested too deeply")


# ---- fuzz -----------------------------------------------------------------------------------------------------


def usable(path: Path) -> None:
    """Load it; if that works, whatever can be asked gives an answer or an error of ours."""
    with contextlib.suppress(tl.BundleError):
        log = tl.load(path, lazy=True)
        with contextlib.suppress(tl.TorchLensError):
            str(log), tl.lint(log), [str(op) for op in log][:3]


@FUZZ
@given(data=st.data())
def test_any_byte_of_any_file(sound: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Without the right hashes nothing but the manifest's own unimportant fields can differ unnoticed."""
    target = Path(shutil.copytree(sound, tmp_path / "x"))
    try:
        name = data.draw(st.sampled_from(["manifest.json", "metadata.json", SHARD]))
        content = bytearray((target / name).read_bytes())
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "replace"]))
        place = data.draw(st.integers(0, len(content) - 1))
        if kind == "flip":
            content[place] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del content[place : place + data.draw(st.integers(1, 50))]
        elif kind == "insert":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=20))
        else:
            content = bytearray(data.draw(st.binary(max_size=200)))
        (target / name).write_bytes(content)
        try:
            log = tl.load(target)
        except tl.BundleError:
            return
        assert name == "manifest.json" and str(log) == str(tl.load(sound))
    finally:
        shutil.rmtree(target)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["value", "param", "tuple", "object", "tensor", "strided", "torch", "op"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@FUZZ
@given(seed=st.integers(0, 2**32), junk=JUNK)
def test_any_value_in_the_metadata(sound: Path, tmp_path: Path, seed: int, junk: Any) -> None:
    """Somebody who means harm puts anything anywhere, and signs it."""
    target = Path(shutil.copytree(sound, tmp_path / "x"))
    try:
        chance = random.Random(seed)
        edit_metadata(target, lambda tables: mutated(tables, junk, chance))
        usable(target)
    finally:
        shutil.rmtree(target)


@FUZZ
@given(seed=st.integers(0, 2**32), junk=JUNK)
def test_any_value_in_a_header(sound: Path, tmp_path: Path, seed: int, junk: Any) -> None:
    target = Path(shutil.copytree(sound, tmp_path / "x"))
    try:
        chance = random.Random(seed)
        edit_header(target, lambda header: mutated(header, junk, chance))
        usable(target)
    finally:
        shutil.rmtree(target)


def mutated(tree: Any, junk: Any, chance: random.Random) -> Any:
    """A copy with something replaced, removed, doubled, moved, or a number changed a little."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        node = tree
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(node[key], (dict, list)) and node[key] and chance.random() < 0.85:
                node = node[key]
                continue
            kind = chance.random()
            if isinstance(node[key], int) and kind < 0.6:
                node[key] += chance.choice([-1, 1, 1, 2, 100, 2**40])
            elif kind < 0.7:
                del node[key]
            elif kind < 0.8 and isinstance(node, list):
                node.insert(key, copy.deepcopy(chance.choice(node)))
            else:
                node[key] = copy.deepcopy(junk)
            break
    return tree

"""Reading back: rows in every form, only the bytes that are asked for, and damage that is told."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.extraction.networks import Tokens, images, network
from torch import Tensor
from torch.utils.data import DataLoader

import torchlens as tl
from torchlens.extraction import shard as shard_file
from torchlens.extraction.storage import MappedFile

COUNT = 27


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tl.Store:
    folder = tmp_path_factory.mktemp("store") / "acts"
    ids = [f"i{row}" for row in range(COUNT)]
    return tl.extract(network(), images(COUNT), ["conv", "head"], folder, batch_size=2, shard_rows=4, ids=ids)


@pytest.fixture(scope="module")
def expected(store: tl.Store) -> Any:
    with torch.no_grad():
        return np.concatenate([network()(images(COUNT)[start : start + 2]).numpy() for start in range(0, COUNT, 2)])


KEYS = [
    0,
    -1,
    13,
    slice(None),
    slice(3, 4),
    slice(2, 19),
    slice(20, 3, -3),
    slice(5, 5),
    [0, 26, 3, 3],
    [],
    np.array([9, 8]),
    ...,
    (),
    (slice(2, 5), 1),
    ([3, 9], [0, 4]),
    ([3, 9], slice(1, 3)),
    ([3, 9], None, [1, 2]),
    (..., 2),
    (4, 2),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_rows(store: tl.Store, expected: Any, key: Any) -> None:
    wanted = np.array(expected[np.array(key, int) if isinstance(key, list) else key])
    assert np.array_equal(store["head"][key], wanted)
    assert torch.equal(store["head"].torch(key), torch.from_numpy(wanted))


@pytest.mark.parametrize("key", [[1.7], 1.5, None, True, [[1, 2], [3, 4]], "i7"], ids=str)
def test_what_chooses_no_rows(store: tl.Store, key: Any) -> None:
    with pytest.raises(tl.ArgumentError, match="rows are indexed by"):
        store["head"][key]
    with pytest.raises(tl.ArgumentError, match="number of rows in a batch, 1 or more, not 0"):
        store["head"].batches(0)


@given(st.lists(st.integers(-COUNT, COUNT - 1)))
@settings(max_examples=50, deadline=None)
def test_any_rows(store: tl.Store, expected: Any, rows: list[int]) -> None:
    assert np.array_equal(store["head"][rows], expected[np.array(rows, int)])


@pytest.mark.filterwarnings("error")
def test_further_forms(store: tl.Store, expected: Any) -> None:
    layer = store["head"]
    mask = np.arange(COUNT) % 3 == 0
    assert np.array_equal(layer[mask], expected[mask])
    assert np.array_equal(layer[2:9, 1:3], expected[2:9, 1:3]) and layer[4, 2] == expected[4, 2]
    assert np.array_equal(np.asarray(layer), expected) and layer.shape == expected.shape and layer.dtype == np.float32
    assert np.array_equal(layer.by_id("i7"), expected[7]) and np.array_equal(
        layer.by_id(["i7", "i0"]), expected[[7, 0]]
    )
    assert np.array_equal(np.concatenate([batch.numpy() for batch in layer.batches(5)]), expected)
    assert np.array_equal(torch.cat(list(DataLoader(layer, batch_size=4))), expected)
    assert np.array_equal(np.stack(list(layer)), expected)
    assert (
        list(store.ids) == [f"i{row}" for row in range(COUNT)] and "head" in store and list(store) == ["conv", "head"]
    )


def test_wrong_rows(store: tl.Store) -> None:
    with pytest.raises(IndexError, match="head has 27 rows, and no row 27"):
        store["head"][27]
    with pytest.raises(tl.LayerNotFoundError, match="no row has the id 'i77'; did you mean 'i7'"):
        store["head"].by_id("i77")
    with pytest.raises(tl.ArgumentError, match=r"to look up an id, use \.by_id\('i7'\)"):
        store["head"]["i7"]
    with pytest.raises(tl.ArgumentError, match="a mask must have one entry"):
        store["head"][[True, False]]


def test_a_layer_is_read_without_the_others(store: tl.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    touched = 0
    view = MappedFile.view

    def counted(self: MappedFile, start: int, length: int) -> memoryview:
        nonlocal touched
        touched += length
        return view(self, start, length)

    monkeypatch.setattr(MappedFile, "view", counted)
    folder = Path(store.path).parent / "large"
    large = tl.extract(network(), images(64), ["conv", "norm", "head"], folder, batch_size=32, shard_rows=32)
    large.refresh()
    touched = 0
    large["conv"][:]
    assert large["conv"].nbytes <= touched <= 1.1 * large["conv"].nbytes


def test_bfloat16(tmp_path: Path) -> None:
    x = torch.rand(5, 3)
    layer = tl.extract(torch.nn.ReLU(), x, "relu_1", tmp_path / "acts", dtype="bfloat16")["relu_1"]
    assert layer.torch().dtype == torch.bfloat16 and torch.equal(layer.torch(), x.bfloat16())
    assert layer.dtype == np.float32 and np.array_equal(layer[:], x.bfloat16().float())
    assert (tmp_path / "acts" / "shards" / "000000.safetensors").stat().st_size < 800


def test_safetensors_reads_a_shard(store: tl.Store, expected: Any) -> None:
    from safetensors.numpy import load_file

    found = load_file(Path(store.path) / "shards" / "000001.safetensors")
    assert np.array_equal(found["head"], expected[4:8]) and found["conv"].shape == (4, 8, 6, 6)


def test_every_flipped_byte_is_found(store: tl.Store, tmp_path: Path) -> None:
    folder = tmp_path / "acts"
    shutil.copytree(store.path, folder)
    path = folder / "shards" / "000003.safetensors"
    data = path.read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    for place in [*range(0, head, 7), head, head + 1, (head + len(data)) // 2, len(data) - 1]:
        damaged = bytearray(data)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        report = tl.open_store(folder).verify()
        assert not report and "000003.safetensors" in str(report) and len(report.problems) == 1, place
    path.write_bytes(data[:-1])
    assert "000003.safetensors" in str(tl.open_store(folder).verify())
    path.write_bytes(data)
    assert tl.open_store(folder).verify() and tl.open_store(folder).verify(shards=[3]).checked == 1


def test_damage_elsewhere(store: tl.Store, tmp_path: Path) -> None:
    folder = tmp_path / "acts"
    shutil.copytree(store.path, folder)
    plan, ids = (folder / "plan.json").read_text(), (folder / "ids.json").read_text()
    (folder / "ids.json").write_text(ids.replace("i7", "i9"))
    with pytest.raises(tl.StoreError, match="ids.json is missing or damaged"):
        tl.open_store(folder).ids
    assert not tl.open_store(folder).verify()
    for wrong in (plan[:-40], plan.replace('"format": 1', '"format": 7'), plan.replace('"count"', '"cuont"'), "[]", ""):
        (folder / "plan.json").write_text(wrong)
        with pytest.raises(tl.StoreError, match=r"plan\.json"):
            tl.open_store(folder)
    (folder / "plan.json").unlink()
    with pytest.raises(tl.StoreError, match="is not a store"):
        tl.open_store(folder)


def test_a_shard_under_another_name(store: tl.Store, tmp_path: Path) -> None:
    folder = tmp_path / "acts"
    shutil.copytree(store.path, folder)
    shutil.copy(folder / "shards" / "000001.safetensors", folder / "shards" / "000002.safetensors")
    with pytest.raises(tl.StoreError, match="holds other rows than its name says"):
        tl.open_store(folder)["head"][8]


def test_tensors_are_aligned() -> None:
    tensors = {"b": torch.zeros(1, 3, dtype=torch.float16), "a": torch.ones(1, 2), "c": torch.zeros(0, 4)}
    data = b"".join(shard_file.encode(tensors, shard_file.About(0, 2, {"1": "ValueError: no"}, True)))
    head = int.from_bytes(data[:8], "little")
    rows = json.loads(data[8 : 8 + head])
    assert (8 + head) % 64 == 0 and rows["a"]["data_offsets"] == [0, 8] and rows["b"]["data_offsets"] == [8, 14]
    assert json.loads(rows["__metadata__"]["torchlens"])["skipped"] == {"1": "ValueError: no"}


def test_a_store_that_others_go_on_writing(tmp_path: Path) -> None:
    def extract(part: tuple[int, int] | None) -> None:
        rows = iter(images(COUNT))
        tl.extract(network(), rows, "head", tmp_path / "acts", batch_size=2, shard_rows=4, part=part)

    extract((0, 5))  # the shards 0 and 5: the inputs go on to shard 6
    store = tl.open_store(tmp_path / "acts")
    assert len(store.ids) == 24 and store.row_of(23) == 23 and not store.is_complete
    extract(None)
    store.refresh()
    assert len(store.ids) == COUNT and store.row_of(26) == 26 and store.is_complete and store.verify()


def test_a_shard_that_ends_too_early(tmp_path: Path) -> None:
    for count in (6, 9):  # as if the inputs had become more
        tl.extract(network(), iter(images(count)), "head", tmp_path / str(count), batch_size=2, shard_rows=4)
    shutil.copy(tmp_path / "6" / "shards" / "000001.safetensors", tmp_path / "9" / "shards")
    report = tl.open_store(tmp_path / "9").verify()
    assert "000001.safetensors ends at row 6, before its rows do" in str(report)


def test_a_mask_with_places_is_taken_in_pairs(store: tl.Store, expected: Any) -> None:
    mask = np.arange(27) % 9 == 0
    assert np.array_equal(store["head"][mask, [0, 1, 2]], np.array(expected)[mask, [0, 1, 2]])


def test_ids_in_other_forms(store: tl.Store, tmp_path: Path) -> None:
    numbered = tl.extract(network(), images(4), "head", tmp_path / "numbers")
    assert np.array_equal(numbered["head"].by_id(np.int64(2)), numbered["head"][2])
    with pytest.raises(tl.ArgumentError, match="an id must be a string or an integer"):
        store["head"].by_id(None)
    with pytest.raises(tl.ArgumentError, match="one layer by its name"):
        store[["head"]]  # type: ignore[index]


def test_stores_are_sent_to_other_processes(store: tl.Store, expected: Any) -> None:
    assert np.array_equal(store["head"][:3], expected[:3])
    assert np.array_equal(pickle.loads(pickle.dumps(store["head"]))[:3], expected[:3])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16], ids=str)
def test_types_that_numpy_has_not(tmp_path: Path, dtype: torch.dtype) -> None:
    class Narrow(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to(dtype)

    x = torch.rand(5, 3)
    layer = tl.extract(Narrow(), x, "to", tmp_path / "acts", batch_size=2)["to"]
    assert layer.dtype == np.float32 and np.array_equal(layer[[4, 1]], x.to(dtype).float()[[4, 1]].numpy())
    assert layer.torch().dtype == dtype and torch.equal(layer.torch().float(), x.to(dtype).float())


def test_something_of_each_ragged_row(tmp_path: Path) -> None:
    tokens = [torch.arange(length) for length in (2, 5, 3)]
    layer = tl.extract(Tokens(), tokens, "tanh", tmp_path / "acts", ragged=True)["tanh"]
    assert [row.shape for row in layer[:, 1:]] == [(1, 4), (4, 4), (2, 4)]
    assert np.array_equal(layer[1, 0], layer[1][0])
    with pytest.raises(tl.ArgumentError, match="is ragged, which no array can be"):
        np.asarray(layer)


def test_an_empty_path_is_not_the_current_folder() -> None:
    with pytest.raises(tl.ArgumentError, match="save_to is empty"):
        tl.extract(network(), images(4), "head", "")

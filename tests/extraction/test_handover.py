"""What other tools get is what is in the store."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.extraction.networks import Fragile, images, network

import torchlens as tl

IDS = [f"i{row}.png" for row in range(10)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tl.Store:
    folder = tmp_path_factory.mktemp("store") / "acts"
    return tl.extract(network(), images(10), ["conv", "head"], folder, batch_size=2, shard_rows=4, ids=IDS)


def test_npy(store: tl.Store, tmp_path: Path) -> None:
    paths = store.to_npy(tmp_path / "arrays")
    assert [path.name for path in paths] == ["conv.npy", "head.npy"]
    for path, name in zip(paths, store, strict=True):
        assert np.array_equal(np.load(path), store[name][:])
    assert sorted(path.name for path in (tmp_path / "arrays").iterdir()) == ["conv.npy", "head.npy", "ids.json"]


def test_pandas_and_parquet(store: tl.Store, tmp_path: Path) -> None:
    import pandas

    frame = store.to_pandas("conv")
    assert list(frame.index) == IDS and frame.shape == (10, 8 * 36) and frame.columns[-1] == "7.5.5"
    assert frame.loc["i3.png", "2.0.4"] == store["conv"][3][2, 0, 4]
    read = pandas.read_parquet(store.to_parquet("head", tmp_path / "head.parquet"))
    assert list(read["id"]) == IDS and np.array_equal(read.drop(columns="id").to_numpy(), store["head"][:])


def test_xarray(store: tl.Store) -> None:
    array = store.to_xarray("conv")
    assert array.dims == ("sample", "dim_1", "dim_2", "dim_3") and array.name == "conv"
    assert np.array_equal(array.sel(sample="i4.png"), store["conv"].by_id("i4.png"))


def test_brain_score(store: tl.Store) -> None:
    array = store.to_brainscore("conv")
    assert array.dims == ("presentation", "neuroid") and array.shape == (10, 288)
    assert list(array["stimulus_id"].values) == IDS
    place = int(np.flatnonzero((array["channel"] == 5) & (array["channel_y"] == 1) & (array["channel_x"] == 4))[0])
    assert np.array_equal(array[:, place], store["conv"][:, 5, 1, 4])
    assert array["neuroid_id"].values[3] == "Network.conv.3" and set(array["layer"].values) == {"conv"}


def test_net2brain(store: tl.Store, tmp_path: Path) -> None:
    (path,) = store.to_net2brain(tmp_path, ["head"])
    assert path.name == "consolidated_head.npz"
    with np.load(path) as archive:
        assert archive.files == IDS and np.array_equal(archive["i7.png"], store["head"][7])


def test_skipped_samples_are_left_out(tmp_path: Path) -> None:
    x = torch.rand(6, 4)
    x[2] = float("nan")
    store = tl.extract(Fragile(), x, "add", tmp_path / "acts", batch_size=2, on_error="skip", ids=list("abcdef"))
    assert list(store.to_pandas("add").index) == list("abdef")
    assert np.load(store.to_npy(tmp_path)[0]).shape == (5, 4)


def test_incomplete_stores_are_refused(tmp_path: Path) -> None:
    store = tl.extract(network(), images(8), "head", tmp_path / "acts", batch_size=2, shard_rows=2, part=(1, 2))
    for hand_over in (store.to_pandas, store.to_xarray, store.to_brainscore):
        with pytest.raises(tl.StoreError, match="is not complete; rows 0-1, 4-5 are missing"):
            hand_over("head")


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    store = tl.extract(network(), images(4), "conv:1", tmp_path / "acts")
    assert store.to_npy(tmp_path / "arrays")[0].name == "conv_1.npy"


def test_what_is_missing_is_named(store: tl.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rsatoolbox.data", None)
    with pytest.raises(ImportError, match=r'this needs rsatoolbox: pip install "forwardlens\[rsa\]"'):
        store.to_rsatoolbox("head")


def test_without_rsatoolbox_numpy_gives_the_matrix(
    store: tl.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rsatoolbox.rdm", None)
    x = torch.rand(6, 4)
    x[2] = float("nan")
    skipping = tl.extract(Fragile(), x, "add", tmp_path / "acts", batch_size=2, on_error="skip")
    for each, layer, rows in ((store, "conv", list(range(10))), (skipping, "add", [0, 1, 3, 4, 5])):
        with pytest.raises(ImportError, match=r"is the matrix of correlation distances") as raised:
            each.rdm(layer)
        told = re.search(r"without it, (.+) is the matrix", str(raised.value))[1]  # type: ignore[index]
        first, second = each[layer][rows[1]].ravel(), each[layer][rows[3]].ravel()
        matrix = eval(told, {"np": np, "store": each})
        assert matrix.shape == (len(rows), len(rows))
        assert matrix[1, 3] == pytest.approx(1 - np.corrcoef(first, second)[0, 1], abs=1e-6)


@pytest.mark.handover
def test_rsatoolbox(store: tl.Store) -> None:
    dataset = store.to_rsatoolbox("conv")
    assert dataset.measurements.shape == (10, 288) and list(dataset.obs_descriptors["sample_id"]) == IDS
    assert dataset.descriptors == {"model": "Network", "layer": "conv"}
    matrix: Any = store.rdm("conv").get_matrices()[0]
    expected = 1 - np.corrcoef(store["conv"][:].reshape(10, -1))
    assert np.allclose(matrix, expected, atol=1e-5)
    assert np.allclose(
        store.rdm("head", metric="euclidean").get_matrices()[0][0, 1],
        ((store["head"][0] - store["head"][1]) ** 2).mean(),
    )

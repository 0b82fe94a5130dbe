"""Hand a store over to other tools, in the form that each of them takes."""

from __future__ import annotations

import json
import os
import re
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, StoreError
from ..words import ranges

if TYPE_CHECKING:
    from .plan import Id
    from .store import Store
    from .stored_layer import StoredLayer

_ROWS = 256  # that are in memory at a time, where a file is written


class Handover:
    """The part of a `Store` that other tools get something from.

    All of these need a complete store. Samples that were skipped are left out, of the values and of the ids.
    """

    def to_npy(self, folder: str | os.PathLike[str], layers: Iterable[str] | None = None) -> list[Path]:
        """Write one `.npy` file for each layer, and `ids.json` beside them.

        >>> store = tl.extract(model, x, ["fc"], save_to=folder / "acts")
        >>> import numpy as np
        >>> (path,) = store.to_npy(folder / "arrays")
        >>> np.load(path, mmap_mode="r").shape
        (5, 5)
        """
        rows, ids = _there(self)
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with _written(target / "ids.json") as path:
            path.write_text(json.dumps(list(ids)))
        return [_write_npy(layer, rows, target / f"{_file_name(layer.name)}.npy") for layer in _chosen(self, layers)]

    def to_pandas(self, layer: str) -> Any:
        """A data frame with a row for each sample, under its id, and a column for each number; needs pandas."""
        pandas = _needed("pandas", "forwardlens[tables]")
        rows, ids = _there(self)
        values = _matrix(_one(self, layer), rows)
        return pandas.DataFrame(values, index=pandas.Index(ids, name="id"), columns=_columns(_one(self, layer)))

    def to_parquet(self, layer: str, path: str | os.PathLike[str]) -> Path:
        """The same as a Parquet file, with the ids as its first column; needs pandas and pyarrow."""
        _needed("pyarrow", "forwardlens[tables]")
        with _written(Path(path)) as temporary:
            self.to_pandas(layer).reset_index().to_parquet(temporary, index=False)
        return Path(path)

    def to_xarray(self, layer: str) -> Any:
        """A labelled array: the samples, under their ids, along "sample", then the dimensions of the layer."""
        xarray = _needed("xarray", "forwardlens[xarray]")
        rows, ids = _there(self)
        one = _one(self, layer)
        dims = ["sample", *(f"dim_{number}" for number in range(1, len(one.shape)))]
        return xarray.DataArray(one[rows], dims=dims, coords={"sample": list(ids)}, name=one.name)

    def to_rsatoolbox(self, layer: str) -> Any:
        """An rsatoolbox `Dataset`: samples by numbers, with the ids as the descriptor "sample_id"."""
        data = _needed("rsatoolbox.data", "forwardlens[rsa]")
        rows, ids = _there(self)
        one = _one(self, layer)
        return data.Dataset(
            _matrix(one, rows),
            descriptors={"model": self.plan.model, "layer": one.name},  # type: ignore[attr-defined]
            obs_descriptors={"sample_id": list(ids)},
            channel_descriptors={"unit": _columns(one)},
        )

    def rdm(self, layer: str, metric: str = "correlation") -> Any:
        """The representational dissimilarity matrix of a layer, by rsatoolbox; `metric` is one of its methods."""
        values = f"store[{layer!r}][store.rows].reshape(len(store.rows), -1)"
        instead = f"without it, 1 - np.corrcoef({values}) is the matrix of correlation distances"
        rdm = _needed("rsatoolbox.rdm", "forwardlens[rsa]", instead)
        return rdm.calc_rdm(self.to_rsatoolbox(layer), method=metric, descriptor="sample_id")

    def to_brainscore(self, layer: str) -> Any:
        """A labelled array as Brain-Score packages activations: presentation x neuroid, with their coordinates."""
        xarray = _needed("xarray", "forwardlens[xarray]")
        rows, ids = _there(self)
        one, model = _one(self, layer), self.plan.model  # type: ignore[attr-defined]
        values = _matrix(one, rows)
        number = np.arange(values.shape[1])
        neuroids: dict[str, Any] = {
            "neuroid_num": number,
            "neuroid_id": [f"{model}.{one.name}.{each}" for each in number],
            "model": [model] * len(number),
            "layer": [one.name] * len(number),
        }
        if len(one.shape) == 4:
            places = np.unravel_index(number, one.shape[1:])
            neuroids |= dict(zip(("channel", "channel_y", "channel_x"), places, strict=True))
        coords = {"stimulus_id": ("presentation", list(ids))} | {n: ("neuroid", v) for n, v in neuroids.items()}
        return xarray.DataArray(values, dims=["presentation", "neuroid"], coords=coords, name=one.name)

    def to_net2brain(self, folder: str | os.PathLike[str], layers: Iterable[str] | None = None) -> list[Path]:
        """Write `consolidated_<layer>.npz` for each layer, with an array for each sample under its id."""
        rows, ids = _there(self)
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        paths = []
        for layer in _chosen(self, layers):
            paths.append(target / f"consolidated_{_file_name(layer.name)}.npz")
            with _written(paths[-1]) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
                for row, id in zip(rows, ids, strict=True):
                    with archive.open(f"{id}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, np.asarray(layer[row]), allow_pickle=False)
        return paths


def _there(store: Any) -> tuple[list[int], Sequence[Id]]:
    """The rows that a complete store has, and their ids."""
    whole: Store = store
    if not whole.is_complete:
        missing = ranges(row for rows in whole.missing_rows for row in rows)
        raise StoreError(f"{whole.path} is not complete; rows {missing or 'at the end'} are missing")
    rows = whole.rows
    return rows, [whole.ids[row] for row in rows] if len(rows) < len(whole) else whole.ids


def _chosen(store: Any, layers: Iterable[str] | None) -> Iterator[StoredLayer]:
    return (store[name] for name in (store.layers if layers is None else layers))


def _one(store: Any, name: str) -> StoredLayer:
    layer: StoredLayer = store[name]
    if layer.is_ragged:
        raise ArgumentError(f"{name} is ragged: its rows have no common shape; store[{name!r}] gives them one by one")
    return layer


def _matrix(layer: StoredLayer, rows: list[int]) -> Any:
    return np.asarray(layer[rows]).reshape(len(rows), -1)


def _columns(layer: StoredLayer) -> list[str]:
    """A name for each number of a row: its place."""
    return [".".join(map(str, place)) for place in np.ndindex(*layer.shape[1:])]


def _write_npy(layer: StoredLayer, rows: list[int], path: Path) -> Path:
    shape = (len(rows), *_one(layer._store, layer.name).shape[1:])
    with _written(path) as temporary:
        values = np.lib.format.open_memmap(temporary, "w+", layer.dtype, shape)
        for start in range(0, len(rows), _ROWS):
            values[start : start + _ROWS] = layer[rows[start : start + _ROWS]]
        values.flush()
        del values
    return path


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """Another name to write to; at the end the file gets its own, so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _file_name(layer: str) -> str:
    """A layer's name without what no file may have in its name."""
    return re.sub(r"[^\w.\[\]-]", "_", layer)


def _needed(package: str, install: str, instead: str = "without it, store[layer][:] is an array") -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise ImportError(f'this needs {name}: pip install "{install}"; {instead}') from error

"""Write a trace as a bundle: all of it, or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from ..capture.records import Trace
from ..capture.surroundings import without_collector
from ..errors import BundleError
from .columns import SCHEMA
from .encode import RecordEncoder, write_tables
from .files import FORMAT, MANIFEST, METADATA, is_plain_file, write_file, writing
from .hashing import hash_of
from .replace import belongs_to_bundle, beside, is_manifest, replace
from .rows import Tables
from .shards import ShardEntry, ShardWriter
from .tensors import TensorEncoder

_REPLACE = ", or replace it with tl.save(..., overwrite=True)"


def save_trace(
    trace: Trace, path: Path, *, overwrite: bool, activations: bool, gradients: bool, arguments: bool
) -> None:
    """Write into a temporary folder beside the target, and rename it at the end."""
    check_target(path, overwrite, _REPLACE)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = beside(path, "tmp")
        new.mkdir()
    try:
        _write(trace, new, activations=activations, gradients=gradients, arguments=arguments)
        check_target(path, overwrite, _REPLACE)  # again: another process may have written there meanwhile
        with writing(path):
            replace(path, new)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, BundleError):
            raise BundleError(f"{error}; nothing was saved") from error
        raise


def check_target(path: Path, overwrite: bool, hint: str = "") -> None:
    """Refuse to replace anything but an empty folder or a bundle that holds nothing else, and that only when asked."""
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise BundleError(f"{path} exists already; give another path{hint}")
    if path.is_symlink() or not path.is_dir():
        raise BundleError(f"{path} exists and is not a bundle, so it is not replaced")
    found = sorted(entry.name for entry in path.iterdir())
    if found and not is_manifest(path):
        raise BundleError(f"{path} exists and is not a bundle, so it is not replaced")
    foreign = [name for name in found if not is_plain_file(path / name) or not belongs_to_bundle(name)]
    if foreign:
        raise BundleError(f"{path} holds {foreign[0]!r}, which is not part of a bundle, so it is not replaced")


@without_collector
def _write(trace: Trace, folder: Path, **wanted: bool) -> None:
    names = Names()
    tensors = TensorEncoder(lambda name, memory: writer.append(names.unique(name), *memory[:3]))
    encoder = RecordEncoder(trace, tensors, **wanted)
    writer = ShardWriter(folder, tensors=encoder.foresee())
    try:
        tables = write_tables(encoder, encoder.keep)
        shards = writer.close()
    except BaseException:
        writer.abandon()
        raise
    finish(folder, tables, shards)


class Names:
    """Makes names unique."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def unique(self, name: str) -> str:
        times = self._times[name] = self._times.get(name, 0) + 1
        return name if times == 1 else f"{name}.{times}"


def finish(folder: Path, tables: Tables, shards: Sequence[ShardEntry]) -> None:
    """Write metadata and manifest; with the manifest the folder becomes a bundle."""
    metadata = _dump(tables)
    write_file(folder / METADATA, metadata)
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "torch": str(torch.__version__),
        "metadata": {"bytes": len(metadata), "xxh3": hash_of(metadata)},
        "shards": [entry._asdict() for entry in shards],
    }
    with writing(folder / MANIFEST):
        unfinished = folder / (MANIFEST + ".tmp")
        write_file(unfinished, json.dumps(manifest, indent=1).encode())
        os.replace(unfinished, folder / MANIFEST)


def _dump(tables: Tables) -> bytes:
    return json.dumps(tables, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode("utf-8")

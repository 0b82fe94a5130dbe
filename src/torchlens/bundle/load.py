"""Read a bundle. Nothing in it is trusted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from ..capture.records import Stored, Trace
from ..capture.surroundings import without_collector
from ..errors import BundleError
from .checks import LARGEST, blaming, each, integer, parse, text
from .columns import OLDEST, SCHEMA
from .decode import Kept, read_tables
from .files import FORMAT, JOURNAL, LARGEST_MANIFEST, MANIFEST, METADATA, open_file, read_small_file
from .hashing import hash_of
from .migrate import migrate
from .replace import not_there
from .shards import Blob, Location, ShardEntry, locate, shard_name
from .tensors import TensorTable

_LARGEST_METADATA = 1 << 30
_HASH = re.compile(r"[0-9a-f]{32}", re.ASCII)


class StoredTensor(Stored):
    """A tensor in a bundle, read on access."""

    __slots__ = ("_number", "_requires_grad", "_table")

    def __init__(self, table: TensorTable, number: int, requires_grad: bool | None = None) -> None:
        self._table = table
        self._number = number
        self._requires_grad = requires_grad

    @property
    def nbytes(self) -> int:
        return self._table.nbytes(self._number)

    @property
    def is_whole(self) -> bool:
        return self._table.is_whole(self._number)

    def read(self) -> Tensor:
        return _as(self._table.read(self._number), self._requires_grad)


@without_collector
def load_trace(path: Path, lazy: bool, trust: bool = False) -> Trace:
    """The trace in a bundle; with `lazy`, each tensor is read on access."""
    return _load(path, lazy, trust)


def _load(path: Path, lazy: bool, trust: bool) -> Trace:
    if not (path / MANIFEST).exists() and (path / JOURNAL).exists():
        raise BundleError(
            f"{path} is incomplete: writing it was interrupted; tl.recover({str(path)!r}) reads what is intact"
        )
    tables, table = open_bundle(path)
    if "fastlog" in tables:
        raise BundleError(f"{path} is a recording of tl.fastlog, not a log; tl.fastlog.load({str(path)!r}) reads it")
    if lazy:
        return read_tables(tables, table, stored_in(table), trust)
    with _hinting(path, tables), blaming(str(path)):
        tensors = table.read_all()
    return read_tables(tables, table, lambda number, requires_grad: _as(tensors[number], requires_grad), trust)


def stored_in(table: TensorTable) -> Kept:
    """Keep the tensors of a table as handles that read them on access."""
    return lambda number, requires_grad: StoredTensor(table, number, requires_grad)


def open_bundle(path: Path, damaged: bool = False) -> tuple[dict[str, Any], TensorTable]:
    """The tables of a bundle, and its tensors, which are read on access.

    With `damaged`, the tensors still have to be checked.
    """
    if not path.is_dir():
        raise not_there(path)
    manifest = parse(read_small_file(path, MANIFEST, LARGEST_MANIFEST), f"{path / MANIFEST}")
    with blaming(str(path / MANIFEST)):
        shards, schema = _check_manifest(manifest), manifest["schema"]
        size, digest = integer(manifest["metadata"]["bytes"], 0, _LARGEST_METADATA), _hash(manifest["metadata"])
    tables = parse(_read_metadata(path, size, digest), f"{path / METADATA}")
    with blaming(str(path / METADATA)):
        if type(tables) is not dict:
            raise BundleError("expected a JSON object")
        if "fastlog" not in tables:
            tables = migrate(tables, schema)
        with _hinting(path, tables):
            locations = locate(path, shards, damaged)
        return tables, _tensor_table(path, tables, locations, damaged)


@contextmanager
def _hinting(path: Path, tables: dict[str, Any]) -> Iterator[None]:
    """Where some tensors are damaged, point to the function that recovers the others."""
    try:
        yield
    except BundleError as error:
        recover = "tl.fastlog.recover" if "fastlog" in tables else "tl.recover"
        raise BundleError(f"{error}; {recover}({str(path)!r}) reads what is intact") from error


def _as(tensor: Tensor, requires_grad: bool | None) -> Tensor:
    """The tensor as a `Parameter`, if `requires_grad` is given."""
    return tensor if requires_grad is None else Parameter(tensor, requires_grad)


def _check_manifest(manifest: Any) -> list[ShardEntry]:
    if type(manifest) is not dict or manifest.get("format") != FORMAT:
        raise BundleError("it is not the manifest of a torchlens bundle")
    check_schema(manifest["schema"])
    shards = each("shards", manifest["shards"], _shard_entry)
    for number, entry in enumerate(shards):
        if entry.file != shard_name(number):
            raise BundleError(f"shards[{number}] is called {entry.file[:80]!r}, not {shard_name(number)!r}")
    return shards


def check_schema(schema: Any) -> None:
    if not OLDEST <= integer(schema, 1) <= SCHEMA:
        age = "a newer" if schema > SCHEMA else "an older"
        raise BundleError(f"it has schema {schema}, this version reads {OLDEST} to {SCHEMA}; {age} torchlens wrote it")


def _shard_entry(row: Any) -> ShardEntry:
    return ShardEntry(text(row["file"]), integer(row["bytes"]), _hash(row))


def _hash(row: Any) -> str:
    digest = text(row["xxh3"])
    if not _HASH.fullmatch(digest):
        raise BundleError("a hash must have 32 hexadecimal digits")
    return digest


def _read_metadata(path: Path, size: int, digest: str) -> bytes:
    """The hash is checked before the text is parsed, so that damage is reported as damage."""
    descriptor = open_file(path, METADATA)
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size != size:
            raise BundleError(f"{path / METADATA} is truncated or was altered: its size does not match the manifest")
        data = file.read(size)
    if hash_of(data) != digest:
        raise BundleError(f"{path / METADATA} is damaged or was altered: its hash does not match the manifest")
    return data


def _tensor_table(path: Path, tables: Any, locations: dict[Blob, Location], damaged: bool) -> TensorTable:
    def location(row: Any) -> Location:
        shard, name = row
        found = locations.get(Blob(integer(shard), text(name)))
        if found is None and damaged:
            return Location(shard_name(shard), 0, LARGEST, "")
        if found is None:
            raise BundleError(f"there is no tensor {name[:80]!r} in file {shard}")
        return found

    return TensorTable(path, tables["layouts"], tables["tensors"], each("storages", tables["storages"], location))

"""Safetensors files that are written sequentially, and read one tensor at a time.

A safetensors file begins with a header that lists its tensors, so space for it is reserved first and filled when the
file is closed. The header also has the hash of each tensor; the header's own hash is in the manifest.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import BundleError
from .checks import blaming, integer, one_of, parse, sizes, text
from .files import open_file, writing
from .hashing import PIECE, hash_of, new_hash

#: The names that safetensors has for dtypes. Other dtypes are stored as bytes; the metadata has their names.
DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16", torch.int16: "I16",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.uint32: "U32", torch.int32: "I32", torch.float32: "F32",
    torch.uint64: "U64", torch.int64: "I64", torch.float64: "F64", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip
_ITEM_SIZES = {name: dtype.itemsize for dtype, name in DTYPES.items()}

_LARGEST_HEADER = 100_000_000  # as in safetensors itself
_LARGE = 1 << 20  # bytes above which it pays to hash in another thread
_HEADER_LINE = 300  # bytes that a tensor takes in the header, at most


class Blob(NamedTuple):
    """Where a piece of memory is in the files: number of the file, name in it."""

    shard: int
    name: str


class ShardEntry(NamedTuple):
    """What the manifest says about a file."""

    file: str
    bytes: int
    xxh3: str  # of the header, which has those of the tensors


def shard_name(number: int) -> str:
    return f"tensors-{number:05d}.safetensors"


class ShardWriter:
    """Appends tensors to files in a folder.

    >>> writer = ShardWriter(folder, tensors=1)
    >>> writer.append("x", "F32", (2,), memoryview(bytes(8)))
    Blob(shard=0, name='x')
    >>> writer.close()[0].file
    'tensors-00000.safetensors'
    """

    def __init__(self, folder: Path, tensors: int = 1000, shard_bytes: int = 2 << 30) -> None:
        self._folder = folder
        self._room = min(_HEADER_LINE * max(tensors, 1) + 64, 1 << 20) // 64 * 64 + 56  # the data begins at 64
        self._shard_bytes = shard_bytes
        self._file: Any = None
        self._header: dict[str, Any] = {}
        self._hashes: dict[str, str] = {}
        self._used = 0  # bytes of data
        self._header_used = 0
        self._hasher: ThreadPoolExecutor | None = None
        self.entries: list[ShardEntry] = []

    def append(self, name: str, dtype: str, shape: Sequence[int], data: memoryview) -> Blob:
        """Write one tensor. When this returns, all of it has been handed to the operating system."""
        line = len(name) + 22 * len(shape) + 200
        full = self._used + data.nbytes > self._shard_bytes or self._header_used + line > self._room - 64
        if self._file is not None and full and self._header:
            self._finish()
        if self._file is None:
            self._begin(line)
        self._hashes[name] = self._write(data)
        end = self._used + data.nbytes
        self._header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [self._used, end]}
        self._used = end
        self._header_used += line
        return Blob(len(self.entries), name)

    def last(self) -> Location:
        """Where the tensor that was appended last is."""
        name = next(reversed(self._header))
        start, end = self._header[name]["data_offsets"]
        return Location(shard_name(len(self.entries)), start + 8 + self._room, end - start, self._hashes[name])

    def close(self) -> list[ShardEntry]:
        """Finish the last file; return the manifest's entries for all of them."""
        if self._file is not None:
            self._finish()
        self._end()
        return self.entries

    def abandon(self) -> None:
        """Close the files, leaving the last one unfinished."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._end()

    def _end(self) -> None:
        if self._hasher is not None:
            self._hasher.shutdown()
            self._hasher = None

    def _begin(self, line: int) -> None:
        self._room = max(self._room, line + 120)
        path = self._folder / shard_name(len(self.entries))
        with writing(path):
            self._file = open(path, "xb", buffering=0)  # noqa: SIM115
            self._file.seek(8 + self._room)
        self._header, self._hashes = {}, {}
        self._used = self._header_used = 0

    def _write(self, data: memoryview) -> str:
        """Write bytes and return their hash. Large data is hashed in another thread, while it is written."""
        hashed: Callable[[], str] | None = None
        if data.nbytes >= _LARGE:
            self._hasher = self._hasher or ThreadPoolExecutor(1)
            hashed = self._hasher.submit(hash_of, data).result
        with writing(self._folder / shard_name(len(self.entries))):
            for start in range(0, data.nbytes, PIECE):
                rest = data[start : start + PIECE]
                while rest.nbytes:
                    rest = rest[self._file.write(rest) :]
        return hashed() if hashed is not None else hash_of(data)

    def _finish(self) -> None:
        name = shard_name(len(self.entries))
        header = json.dumps({"__metadata__": self._hashes, **self._header}, separators=(",", ":")).encode()
        assert len(header) <= self._room
        header = header.ljust(self._room)
        with writing(self._folder / name):
            self._file.seek(0)
            self._write(memoryview(self._room.to_bytes(8, "little") + header))
            self._file.close()
        self._file = None
        self.entries.append(ShardEntry(name, 8 + self._room + self._used, hash_of(header)))


# ---- reading --------------------------------------------------------------------------------------------------


class Location(NamedTuple):
    """A piece of memory in a file."""

    file: str
    start: int
    bytes: int
    xxh3: str

    def check(self, folder: Path) -> None:
        """Read the bytes without keeping them. Raises if any are missing or the hash does not match."""
        descriptor = open_file(folder, self.file)
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_size < self.start + self.bytes:
                raise BundleError(f"{folder / self.file} is truncated")
            file.seek(self.start)
            hashed, left = new_hash(), self.bytes
            while left:
                data = file.read(min(left, PIECE))
                hashed.update(data)
                left = left - len(data) if data else 0
        if hashed.hexdigest() != self.xxh3:
            raise BundleError(f"{folder / self.file} is damaged or was altered: the hash of a tensor does not match")

    def is_whole(self, folder: Path) -> bool:
        try:
            self.check(folder)
        except BundleError:
            return False
        return True

    def read(self, folder: Path) -> Tensor:
        """The bytes, in newly allocated memory, checked against their hash."""
        descriptor = open_file(folder, self.file)
        try:
            return self.read_into(self.memory(), descriptor, folder)
        finally:
            os.close(descriptor)

    def memory(self) -> Tensor:
        """Uninitialized memory for the bytes."""
        return torch.empty(self.bytes, dtype=torch.uint8, device="cpu")

    def read_into(self, memory: Tensor, descriptor: int, folder: Path) -> Tensor:
        """The same from an open file. Not memory-mapped: if the file shrank later, the process would be killed."""
        rest, place = memoryview(memory.numpy()), self.start  # type: ignore[arg-type]
        hashed = new_hash()
        while rest.nbytes:
            count = os.preadv(descriptor, [rest[:PIECE]], place)
            if not count:
                raise BundleError(f"{folder / self.file} is truncated")
            hashed.update(rest[:count])
            rest, place = rest[count:], place + count
        if hashed.hexdigest() != self.xxh3:
            raise BundleError(f"{folder / self.file} is damaged or was altered: the hash of a tensor does not match")
        return memory


def locate(folder: Path, shards: Sequence[ShardEntry], damaged: bool = False) -> dict[Blob, Location]:
    """Where each tensor is, from the headers of the files; with `damaged`, unreadable headers are skipped."""
    found: dict[Blob, Location] = {}
    for number, entry in enumerate(shards):
        try:
            with blaming(str(folder / entry.file)):
                header = _read_header(folder, entry, damaged)
        except BundleError:
            if not damaged:
                raise
            continue
        found |= {Blob(number, name): location for name, location in header.items()}
    return found


def _read_header(folder: Path, entry: ShardEntry, damaged: bool) -> dict[str, Location]:
    descriptor, total = open_file(folder, entry.file), entry.bytes
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size != total and not damaged:
            raise BundleError(f"it has {size} bytes, not the {total} that were written")
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_LARGEST_HEADER, total - 8):
            raise BundleError(f"a header can't have {length} bytes")
        data = file.read(length)
    if hash_of(data) != entry.xxh3:
        raise BundleError("the hash of its header does not match")
    header = parse(data, "its header")
    hashes = header.pop("__metadata__")
    return {
        name: _location(entry.file, 8 + length, total, described, text(hashes[name]))
        for name, described in header.items()
    }


def _location(file: str, base: int, total: int, described: dict[str, Any], digest: str) -> Location:
    start, end = described["data_offsets"]
    size = _ITEM_SIZES[one_of(_ITEM_SIZES, described["dtype"])] * math.prod(sizes(described["shape"]))
    integer(start), integer(end, start, total - base)
    if end - start != size:
        raise BundleError(f"a tensor of {size} bytes is stored in {end - start}")
    return Location(file, base + start, size, digest)

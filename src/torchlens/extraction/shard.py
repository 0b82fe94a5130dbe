"""One shard: the rows of a range, all layers, in one safetensors file.

The header is a function of the content, so a shard that is computed again is the same to the byte. Its `__metadata__`
has one key, whose value is sorted JSON: the order of several keys would differ from run to run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..bundle.checks import blaming, flag, integer, one_of, parse, sizes, text
from ..bundle.hashing import hash_of
from ..bundle.shards import DTYPES
from ..errors import BundleError, StoreError
from .storage import Reader, Storage

FOLDER = "shards"
_TORCH_TYPES = {name: dtype for dtype, name in DTYPES.items()}
_LARGEST_HEADER = 100_000_000


def shard_path(number: int) -> str:
    return f"{FOLDER}/{number:06d}.safetensors"


def shard_numbers(storage: Storage) -> set[int]:
    """The shards that are there: one listing, and nothing else says what is done."""
    names = (name.partition(".") for name in storage.names(FOLDER))
    return {int(stem) for stem, _, ending in names if ending == "safetensors" and stem.isdecimal()}


@dataclass(frozen=True)
class About:
    """What a shard says of itself."""

    start: int  # the first row
    stop: int
    skipped: dict[str, str] = field(default_factory=dict)  # what each of these rows raised
    last: bool = False  # no row follows


def encode(tensors: Mapping[str, Tensor], about: About) -> list[memoryview]:
    """The bytes of a shard, in pieces. The tensors are contiguous, on the CPU, and not copied."""
    widest_first = sorted(tensors, key=lambda name: -tensors[name].element_size())  # so that all are aligned
    pieces = {name: _bytes_of(tensors[name]) for name in widest_first}
    hashes = {name: hash_of(piece) for name, piece in pieces.items()}
    facts = [(name, tensors[name].dtype, tuple(tensors[name].shape)) for name in widest_first]
    head = _head(facts, about, hashes)
    return [memoryview(len(head).to_bytes(8, "little") + head), *pieces.values()]


def _head(facts: Iterable[tuple[str, torch.dtype, tuple[int, ...]]], about: About, hashes: Mapping[str, str]) -> bytes:
    """The header, which also has a hash of itself, taken while that is empty."""
    rows, place = {}, 0
    for name, dtype, shape in facts:
        end = place + dtype.itemsize * math.prod(shape)
        rows[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [place, end]}
        place = end
    known = {**vars(about), "xxh3": dict(hashes)}

    def text(own: str) -> bytes:
        metadata = {"torchlens": json.dumps({**known, "header": own}, sort_keys=True)}
        return json.dumps({"__metadata__": metadata, **rows}, separators=(",", ":")).encode()

    head = text(hash_of(text("")))
    return head.ljust(-(-(len(head) + 8) // 64) * 64 - 8)  # the data begins at a multiple of 64


def _bytes_of(tensor: Tensor) -> memoryview:
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


class Entry(NamedTuple):
    """Where a tensor is in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    nbytes: int


class Shard:
    """A shard that is open for reading. Nothing in the file is trusted."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.name = name
        try:
            with blaming(f"{storage.where}/{self.name}"):
                self._reader = storage.open(self.name)
                self.entries, self.about, self.hashes = _header(self._reader)
        except FileNotFoundError:
            raise StoreError(f"{storage.where}/{name} is missing") from None
        except (BundleError, OSError) as error:
            raise StoreError(str(error)) from error

    def rows(self, name: str, places: Any) -> Any:
        """Some rows of a tensor, by a slice or a list, as a NumPy array; those of a slice are read when looked at.

        Types that NumPy has not, such as bfloat16, come as float32.
        """
        entry = self.entries[name]
        if isinstance(places, slice) and entry.nbytes:
            first, stop, _ = places.indices(entry.shape[0])
            row = entry.nbytes // entry.shape[0]
            self._reader.prefetch(entry.start + first * row, (stop - first) * row)
        view = self._reader.view(entry.start, entry.nbytes)
        bits = _BITS.get(entry.dtype)
        if bits is None:
            return np.frombuffer(view, numpy_type(entry.dtype)).reshape(entry.shape)[places]
        chosen = np.array(np.frombuffer(view, bits).reshape(entry.shape)[places])
        return torch.from_numpy(chosen).view(entry.dtype).float().numpy()

    def tensor(self, name: str) -> Tensor:
        """One tensor, in memory of its own."""
        entry = self.entries[name]
        if not entry.nbytes:
            return torch.empty(entry.shape, dtype=entry.dtype, device="cpu")
        view = self._reader.view(entry.start, entry.nbytes)
        return torch.frombuffer(bytearray(view), dtype=entry.dtype).reshape(entry.shape)

    def damages(self) -> list[str]:
        """What was altered or damaged since it was written: names of tensors, or the header."""
        facts = [(name, entry.dtype, entry.shape) for name, entry in self.entries.items()]
        head = _head(facts, self.about, self.hashes)
        if self.hashes.keys() != self.entries.keys() or head != self._reader.view(8, len(head)):
            return ["the header"]
        return [
            repr(name)
            for name, entry in self.entries.items()
            if hash_of(self._reader.view(entry.start, entry.nbytes)) != self.hashes[name]
        ]


def _header(reader: Reader) -> tuple[dict[str, Entry], About, dict[str, str]]:
    length = int.from_bytes(reader.view(0, 8), "little")
    if reader.size < 8 or not 2 <= length <= min(_LARGEST_HEADER, reader.size - 8):
        raise BundleError(f"it is truncated, or not a safetensors file (a header of {length} bytes in {reader.size})")
    header = parse(bytes(reader.view(8, length)), "its header")
    known = parse(text(header.pop("__metadata__")["torchlens"]).encode(), "its metadata")
    entries = {name: _entry(row, 8 + length, reader.size) for name, row in header.items()}
    if max((entry.start + entry.nbytes for entry in entries.values()), default=8 + length) != reader.size:
        raise BundleError("it has more or fewer bytes than its tensors")
    hashes = {text(name): text(digest) for name, digest in known["xxh3"].items()}
    skipped = {text(row): text(error) for row, error in known["skipped"].items()}
    return entries, About(integer(known["start"]), integer(known["stop"]), skipped, flag(known["last"])), hashes


def _entry(row: dict[str, Any], base: int, total: int) -> Entry:
    dtype, shape = _TORCH_TYPES[one_of(_TORCH_TYPES, row["dtype"])], sizes(row["shape"])
    start, end = row["data_offsets"]
    integer(start), integer(end, start, total - base)
    if end - start != dtype.itemsize * math.prod(shape):
        raise BundleError(f"a tensor of shape {list(shape)} takes {end - start} bytes")
    return Entry(dtype, shape, base + start, end - start)


def known_end(storage: Storage) -> int | None:
    """How many rows there are, if the last one is there; None if more may come."""
    found = shard_numbers(storage)
    if not found:
        return None
    about = Shard(storage, shard_path(max(found))).about
    return about.stop if about.last else None


#: Types that NumPy has not, and one of the same size that it has.
_BITS = {torch.bfloat16: np.int16, torch.float8_e4m3fn: np.uint8, torch.float8_e5m2: np.uint8}


def numpy_type(dtype: torch.dtype) -> Any:
    """The type that NumPy has for it; what it has not becomes float32 without loss."""
    return np.dtype(np.float32) if dtype in _BITS else torch.empty(0, dtype=dtype, device="cpu").numpy().dtype

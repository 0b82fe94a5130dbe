"""Tensors to and from rows of a table: which storage a tensor has, and its layout there.

Each storage is written once, however many tensors are views of it, and they share it again when they are loaded.
A tensor that is not a strided view of a storage (sparse, quantized, nested) is a row that refers to its parts' rows.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import (
    UninitializedTensorMixin,
    call_with_grad,
    data_address,
    jagged_parts,
    make_per_channel_quantized,
    make_per_tensor_quantized,
    without_torch_function,
)
from ..errors import BundleError
from .checks import at, each, flag, integer, number, one_of, optional, sizes, text
from .files import open_file
from .shards import DTYPES, Blob, Location

TensorRow = list[Any]

_COMPRESSED = {
    "sparse_csr": (torch.sparse_csr, "crow_indices", "col_indices"),
    "sparse_csc": (torch.sparse_csc, "ccol_indices", "row_indices"),
    "sparse_bsr": (torch.sparse_bsr, "crow_indices", "col_indices"),
    "sparse_bsc": (torch.sparse_bsc, "ccol_indices", "row_indices"),
}


@cache
def torch_constants() -> dict[str, Any]:
    """Dtypes, layouts and the like by their names in torch."""
    kinds = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
    named = ((name, getattr(torch, name)) for name in dir(torch))
    return {str(thing).removeprefix("torch."): thing for _, thing in named if isinstance(thing, kinds)}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_named(name: Any) -> torch.dtype:
    dtype = torch_constants().get(text(name))
    if not isinstance(dtype, torch.dtype):
        raise BundleError(f"torch has no dtype {name!r}")
    return dtype


# ---- writing --------------------------------------------------------------------------------------------------


class Memory(NamedTuple):
    """A stretch of memory to be stored as it is."""

    dtype: str  # for safetensors
    shape: tuple[int, ...]
    data: memoryview
    owner: Any  # keeps the memory alive


class ByteSpan:
    """The range of bytes of one storage that the tensors to be stored cover."""

    def __init__(self, tensor: Tensor) -> None:
        self.first = tensor
        self.low, self.high = _extent(tensor)
        self.dtypes = {tensor.dtype}

    def include(self, tensor: Tensor) -> None:
        low, high = _extent(tensor)
        self.dtypes.add(tensor.dtype)
        self.low, self.high = min(self.low, low), max(self.high, high)

    def begin(self) -> int:
        """The first byte, aligned for every dtype that views it."""
        return self.low if len(self.dtypes) == 1 else self.low // 16 * 16

    def memory(self) -> Memory:
        first, begin = self.first, self.begin()
        count = self.high - begin
        name = DTYPES.get(first.dtype) if len(self.dtypes) == 1 else None
        whole = name is not None and first.is_contiguous() and first.nbytes == count
        shape = tuple(first.shape) if whole else (count // first.itemsize,) if name else (count,)
        owner, address = first, data_address(first) + begin
        if first.device.type != "cpu":
            owner = torch.empty(0, dtype=torch.uint8, device=first.device).set_(first.untyped_storage()).cpu()
            address = owner.data_ptr() + begin
        data = memoryview((ctypes.c_ubyte * count).from_address(address))
        return Memory(name or "U8", shape, data.cast("B"), owner)


class TensorEncoder:
    """Turns tensors into rows, and stores the memory behind them.

    `store` takes a name and a stretch of memory, and returns where it was stored.
    """

    def __init__(self, store: Callable[[str, Memory], Blob]) -> None:
        self._store = store
        self.rows: list[TensorRow] = []
        self.layouts: list[TensorRow] = []
        self._layout_numbers: dict[Any, int] = {}
        self.storages: list[Blob] = []
        self._blobs: dict[Blob, int] = {}
        self._spans: dict[Any, ByteSpan] = {}
        self._stored: dict[Any, int] = {}
        self._known: dict[int, tuple[Tensor, int]] = {}  # by id; the tensor is kept alive so that the id is not reused

    def foresee(self, tensor: Tensor) -> None:
        """Note which part of which storage a tensor needs, before any is stored."""
        for leaf in leaves(tensor):
            if leaf.numel() and not leaf.is_meta:
                span = self._spans.get(_memory_of(leaf))
                if span is None:
                    self._spans[_memory_of(leaf)] = ByteSpan(leaf)
                else:
                    span.include(leaf)

    @property
    def pieces(self) -> int:
        """How many storages have been noted."""
        return len(self._spans)

    def add(self, tensor: Tensor, name: str) -> int:
        """The number of the tensor's row."""
        known = self._known.get(id(tensor))
        if known is None:
            row = call_with_grad(False, self._row, tensor, name)
            self.rows.append(row)
            known = self._known[id(tensor)] = (tensor, len(self.rows) - 1)
        return known[1]

    def forget(self) -> None:
        """Drop the references to the tensors: their memory may be reused from now on."""
        self._spans.clear()
        self._stored.clear()
        self._known.clear()

    def _row(self, tensor: Tensor, name: str) -> TensorRow:
        parts = parts_of(tensor)
        if parts is None:
            return self._view(tensor, name)
        kind, facts, tensors = parts
        return [kind, [self.add(part, f"{name}.{label}") for label, part in tensors.items()], *facts]

    def _view(self, tensor: Tensor, name: str) -> TensorRow:
        layout = self._layout(tensor)
        if tensor.is_meta:
            return ["meta", layout]
        if not tensor.numel():
            return ["empty", layout]
        key = _memory_of(tensor)
        span = self._spans.get(key)
        if span is None:
            span = self._spans[key] = ByteSpan(tensor)
        number = self._stored.get(key)
        if number is None:
            blob = self._store(name, span.memory())
            number = self._stored[key] = self._blobs.setdefault(blob, len(self.storages))
            if number == len(self.storages):
                self.storages.append(blob)
        offset = tensor.storage_offset() - span.begin() // tensor.itemsize
        return ["strided", layout, number, offset, tensor.is_conj()]

    def _layout(self, tensor: Tensor) -> int:
        """Layouts are a table of their own: the tensors of a model share few dtypes, shapes and strides."""
        key = (tensor.dtype, tensor.shape, tensor.stride())
        number = self._layout_numbers.get(key)
        if number is None:
            number = self._layout_numbers[key] = len(self.layouts)
            self.layouts.append([dtype_name(tensor.dtype), list(tensor.shape), list(tensor.stride())])
        return number


def is_own_kind(tensor: Tensor) -> bool:
    """Is it of a user's subclass that stores its elements as a plain tensor does?"""
    kind = type(tensor)
    if kind in (Tensor, Parameter) or isinstance(tensor, UninitializedTensorMixin):
        return False
    return kind.__torch_dispatch__ is Tensor.__torch_dispatch__


def plain_tensor(tensor: Tensor) -> Tensor:
    """The same elements as a plain `torch.Tensor`."""
    if not is_own_kind(tensor):
        return tensor
    with without_torch_function():
        return tensor.detach().as_subclass(Tensor)


Parts = tuple[str, list[Any], dict[str, Tensor]]


def parts_of(tensor: Tensor) -> Parts | None:
    """Kind, facts and parts of a tensor that is made of others; None for a strided one. Raises for other kinds."""
    if tensor.layout is torch.jagged:
        values, offsets, lengths, facts = jagged_parts(tensor)
        return "jagged", facts, _named(values=values, offsets=offsets, lengths=lengths)
    if type(tensor) not in (Tensor, Parameter):
        raise BundleError(f"a tensor of class {type(tensor).__name__} can't be saved: only torch's own kinds can")
    tensor = tensor.detach()
    if tensor.is_nested:
        return "nested", [], {str(number): part for number, part in enumerate(tensor.unbind())}
    if tensor.is_quantized:
        return _quantized(tensor)
    if tensor.layout is torch.sparse_coo:
        parts = _named(indices=tensor._indices(), values=tensor._values())
        return "sparse_coo", [list(tensor.shape), tensor.is_coalesced()], parts
    for kind, (layout, outer, inner) in _COMPRESSED.items():
        if tensor.layout is layout:
            indices = getattr(tensor, outer)(), getattr(tensor, inner)()
            return kind, [list(tensor.shape)], _named(outer=indices[0], inner=indices[1], values=tensor.values())
    if tensor.is_mkldnn:
        return "mkldnn", [], {"dense": tensor.to_dense()}
    if tensor.layout is not torch.strided:
        raise BundleError(f"a tensor of layout {tensor.layout} can't be saved")
    if tensor.is_neg():
        return "plain", [], {"positive": tensor.resolve_neg()}
    return None


def _quantized(tensor: Tensor) -> Parts:
    codes = {"codes": tensor.int_repr()}
    if tensor.qscheme() is torch.per_tensor_affine:
        facts = [dtype_name(tensor.dtype), tensor.q_scale(), tensor.q_zero_point()]
        return "quantized_per_tensor", facts, codes
    if tensor.qscheme() is torch.per_channel_affine:
        scales, points = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        facts = [dtype_name(tensor.dtype), tensor.q_per_channel_axis()]
        return "quantized_per_channel", facts, codes | _named(scales=scales, zero_points=points)
    raise BundleError(f"a tensor quantized as {tensor.qscheme()} can't be saved")


def _named(**tensors: Tensor | None) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def leaves(tensor: Tensor) -> Iterator[Tensor]:
    """The strided tensors that a tensor is made of, without making new ones."""
    parts = parts_of(tensor)
    if parts is None:
        yield tensor
    elif parts[0] in ("jagged", "nested", "sparse_coo", *_COMPRESSED):
        for part in parts[2].values():
            yield from leaves(part)


def _memory_of(tensor: Tensor) -> tuple[Any, ...]:
    """A key that is equal for tensors in the same memory, including copy-on-write copies of each other."""
    return (tensor.device, data_address(tensor))


def _extent(tensor: Tensor) -> tuple[int, int]:
    """The range of bytes that a tensor covers in its storage."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = int(tensor.storage_offset())
    return first * tensor.itemsize, (first + last + 1) * tensor.itemsize


# ---- reading --------------------------------------------------------------------------------------------------


class TensorTable:
    """The tensors of a bundle, read on access. Tensors that shared memory share it again."""

    def __init__(self, folder: Path, layouts: Any, rows: Any, storages: list[Location]) -> None:
        self._folder = folder
        self.storages = storages
        self.lost: set[int] = set()  # storages that are damaged or missing
        self._layouts = each("layouts", layouts, _read_layout)
        self._memory: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._rows: list[TensorRow] = []
        each("tensors", rows, self.add)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, number: int) -> Tensor:
        """The tensor, checked against its hash."""
        kind, *facts = self._rows[number]
        if kind not in _VIEWS:
            numbers, *facts = facts
            return _ASSEMBLE[kind]([self.read(part) for part in numbers], *facts)
        (dtype, shape, stride, _, _), *where = facts
        if kind == "meta":
            return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        if kind == "empty":
            return torch.empty_strided(shape, stride, dtype=dtype, device="cpu")
        storage, offset, conj = where
        view = torch.empty(0, dtype=dtype, device="cpu").set_(self._storage(storage), offset, shape, stride)
        return view.conj() if conj else view

    def nbytes(self, number: int) -> int:
        """Bytes of a strided tensor, or of all strided tensors that another is made of."""
        kind, *facts = self._rows[number]
        if kind == "jagged":
            return self.nbytes(facts[0][0])
        if kind not in _VIEWS:
            return sum(self.nbytes(part) for part in facts[0])
        return int(facts[0].numel * facts[0].dtype.itemsize)

    def storages_of(self, number: int) -> list[int]:
        """The storages that a tensor needs."""
        kind, *facts = self._rows[number]
        if kind not in _VIEWS:
            return [storage for part in facts[0] for storage in self.storages_of(part)]
        return [facts[1]] if kind == "strided" else []

    def find_damage(self) -> Iterator[str]:
        """Read every storage and note which are damaged; yield a sentence that says how many."""
        self.lost = {i for i, location in enumerate(self.storages) if not location.is_whole(self._folder)}
        if self.lost:
            yield f"{len(self.lost)} of {len(self.storages)} pieces of memory were incomplete or damaged"

    def is_whole(self, number: int) -> bool:
        """Are the storages that a tensor needs intact, as far as they have been checked?"""
        return not self.lost or self.lost.isdisjoint(self.storages_of(number))

    def read_all(self) -> list[Tensor]:
        """Every tensor; the files are read by several threads."""
        with ExitStack() as files:
            opened: dict[str, int] = {}
            for location in self.storages:
                if location.file not in opened:
                    opened[location.file] = open_file(self._folder, location.file)
                    files.callback(os.close, opened[location.file])

            def read(location: Location, memory: Tensor) -> Any:
                return location.read_into(memory, opened[location.file], self._folder).untyped_storage()

            large = [location for location in self.storages if location.bytes > 1 << 20]
            with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
                # Allocated by this thread, which can reuse freed memory: a new thread would wait for new pages.
                found = dict(zip(large, pool.map(read, large, [each.memory() for each in large]), strict=True))
            storages = [found.get(location) or read(location, location.memory()) for location in self.storages]
        self._memory.update(enumerate(storages))
        return [self.read(number) for number in range(len(self))]

    def _storage(self, number: int) -> Any:
        memory = self._memory.get(number)
        if memory is None:
            memory = self._memory[number] = self.storages[number].read(self._folder).untyped_storage()
        return memory

    def add(self, row: TensorRow) -> None:
        """Check a row when it is added, so that reading it later can't fail."""
        kind, *facts = row
        one_of((*_VIEWS, *_ASSEMBLE), kind)
        if kind in _VIEWS:
            self._rows.append([kind, *self._checked_view(kind, *facts)])
        else:
            parts, *rest = facts
            for part in parts:
                integer(part, 0, len(self._rows) - 1)  # parts come before the whole
            self._rows.append([kind, parts, *_CHECK[kind](*rest)])

    def _checked_view(self, kind: str, number: Any, *where: Any) -> TensorRow:
        layout = at(self._layouts, number)
        if kind != "strided":
            if where or (kind == "empty" and layout.numel):
                raise BundleError("an empty tensor has no elements")
            return [layout]
        storage, offset, conj = where
        available = at(self.storages, storage).bytes
        if not layout.numel or (integer(offset) + layout.end + 1) * layout.dtype.itemsize > available:
            raise BundleError(f"a tensor of shape {list(layout.shape)} reaches beyond its memory of {available} bytes")
        if flag(conj) and not layout.dtype.is_complex:
            raise BundleError("only complex tensors are conjugated")
        return [layout, storage, offset, conj]

    def add_layout(self, row: TensorRow) -> None:
        self._layouts.append(_read_layout(row))


class _Layout(NamedTuple):
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    numel: int
    end: int  # the last element, counted from the first


def _read_layout(row: Any) -> _Layout:
    name, size, steps = row
    dtype, shape, stride = dtype_named(name), sizes(size), sizes(steps)
    end = sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    count = math.prod(shape)
    integer(count * dtype.itemsize)
    return _Layout(dtype, shape, stride, count, end)


_VIEWS = ("strided", "empty", "meta")


def _compressed(kind: str) -> Callable[..., Tensor]:
    def assemble(parts: list[Tensor], shape: list[int]) -> Tensor:
        make: Any = torch.sparse_compressed_tensor
        made: Tensor = make(*parts, shape, layout=_COMPRESSED[kind][0], check_invariants=True)
        return made

    return assemble


def _sparse(parts: list[Tensor], shape: list[int], coalesced: bool) -> Tensor:
    make: Any = torch.sparse_coo_tensor
    made: Tensor = make(*parts, shape, is_coalesced=coalesced, check_invariants=True)
    return made


def _jagged(parts: list[Tensor], dimension: int, shortest: int | None, longest: int | None) -> Tensor:
    values, offsets, *lengths = parts
    known = lengths[0] if lengths else None
    made: Tensor = torch.nested.nested_tensor_from_jagged(values, offsets, known, dimension, shortest, longest)
    return made


def _per_tensor(parts: list[Tensor], dtype: torch.dtype, scale: float, zero_point: int) -> Tensor:
    return make_per_tensor_quantized(parts[0], scale, zero_point)


def _per_channel(parts: list[Tensor], dtype: torch.dtype, axis: int) -> Tensor:
    codes, scales, points = parts
    return make_per_channel_quantized(codes, scales, points, axis)


#: How tensors that are made of others are rebuilt.
_ASSEMBLE: dict[str, Callable[..., Tensor]] = {
    "sparse_coo": _sparse,
    **{kind: _compressed(kind) for kind in _COMPRESSED},
    "nested": lambda parts: torch.nested.as_nested_tensor(parts),
    "jagged": _jagged,
    "mkldnn": lambda parts: parts[0].to_mkldnn(),
    "plain": lambda parts: parts[0],
    "quantized_per_tensor": _per_tensor,
    "quantized_per_channel": _per_channel,
}

_CHECK: dict[str, Callable[..., list[Any]]] = {
    "sparse_coo": lambda shape, coalesced: [sizes(shape), flag(coalesced)],
    **dict.fromkeys(_COMPRESSED, lambda shape: [sizes(shape)]),
    "nested": list,
    "jagged": lambda dimension, *ends: [integer(dimension, 1, 64), *(optional(integer, end) for end in ends)],
    "mkldnn": list,
    "plain": list,
    "quantized_per_tensor": lambda dtype, scale, point: [dtype_named(dtype), number(scale), integer(point, -(2**31))],
    "quantized_per_channel": lambda dtype, axis: [dtype_named(dtype), integer(axis, 0, 64)],
}

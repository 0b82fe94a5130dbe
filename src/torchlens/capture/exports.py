"""Memory that code outside torch can write to. torch counts no writes there, so its contents are compared instead.

The model hands a tensor's memory out (`x.numpy()`, DLPack, a storage), or a tensor lies in memory that came from
outside (`torch.from_numpy`, a file, another process). What was handed out may come back as another tensor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from .keeping import Keeper, copied
from .records import MemoryLayout, Value
from .tensor_memory import address_of, differ, layout_of, lies_outside, own_memory


class Export(NamedTuple):
    value: Value
    address: int  # of its storage
    layout: MemoryLayout | None


class Exports:
    """What was handed out to code outside torch, and what came from there."""

    def __init__(self, keeper: Keeper, mirrors: dict[int, tuple[int, int]], unversioned: set[int]) -> None:
        self.keeper = keeper
        self.mirrors = mirrors  # filled here, read by `Writes`
        self.unversioned = unversioned  # storages with an alias, such as x.data, whose writes are not counted
        self.exposed: set[int] = set()  # storages that were handed out
        self.shared: set[int] = set()  # storages over memory that came from outside
        self.by_pointer: dict[int, Export] = {}  # by the address of the tensor's first element
        self.by_storage: dict[int, Export] = {}
        self.snapshots: dict[int, Tensor] = {}  # what such memory held, by the value's index, where no value is kept

    def add(self, tensor: Tensor, value: Value, address: int) -> None:
        """The memory of `tensor`, a storage at `address`, is handed out: it must not move, and may change unseen."""
        export = Export(value, address, layout_of(tensor))
        self.by_pointer[own_memory(tensor)] = self.by_storage[address] = export
        self.keeper.foreign.add(address)
        self.exposed.add(address)

    def add_from_outside(self, tensor: Any) -> None:
        """If this tensor lies in memory that came from outside torch, that may change unseen from now on."""
        if isinstance(tensor, Tensor) and lies_outside(tensor):
            address = self.keeper.guard(tensor)
            if address is not None:
                self.keeper.foreign.add(address)
                self.shared.add(address)

    def may_change(self, tensor: Tensor) -> bool:
        """Can code outside torch write to the memory of `tensor`?"""
        address = address_of(tensor)
        return address in self.exposed or address in self.shared

    def take_snapshot(self, tensor: Tensor, value: Value) -> None:
        copy = copied(tensor)
        if copy is not None:
            self.snapshots[value.index] = copy

    def content(self, value: Value) -> Tensor | None:
        """The contents of a value when it was recorded, if they are known."""
        return self.snapshots.get(value.index, value.saved)

    def find(self, tensor: Tensor) -> tuple[Value, MemoryLayout | None] | None:
        """The value that was handed out and came back as this tensor: as a storage, from NumPy or through DLPack."""
        address = self.keeper.guard(tensor) if self.by_pointer else None
        if address is None:
            return None
        if address in self.by_storage:
            return self.by_storage[address][::2]
        export = self.by_pointer.get(tensor.data_ptr()) if lies_outside(tensor) else None
        if export is None or not self.keeper.is_there(export.address):
            return None
        self.mirrors[address] = (export.address, export.layout.offset if export.layout else 0)
        self.unversioned |= {address, export.address}
        return export.value, layout_of(tensor) if export.value.shape == tensor.shape else None

    def find_array(self, array: Any, copy: Tensor) -> Value | None:
        """The value that was handed out as this array, of which `copy` was made, if the array still holds it."""
        if type(array).__module__ != "numpy" or not hasattr(array, "__array_interface__"):
            return None
        export = self.by_pointer.get(array.__array_interface__["data"][0])
        if export is None or not self.keeper.is_there(export.address):
            return None
        return export.value if differ(self.content(export.value), copy) is False else None

    def find_equal(self, tensor: Tensor) -> Value | None:
        """The latest value handed out that equals `tensor`, which was given memory read from elsewhere (a pickle)."""
        exports = reversed(self.by_storage.values())
        return next((e.value for e in exports if differ(self.content(e.value), tensor) is False), None)

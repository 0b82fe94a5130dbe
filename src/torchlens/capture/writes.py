"""The in-place writes of a forward pass, by the storage that they went to."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import NamedTuple

from torch import Tensor

from .records import MemoryLayout, Value
from .tensor_memory import address_of, layout_of


class Write(NamedTuple):
    value: Value  # the written tensor, after the write
    layout: MemoryLayout | None
    reshapes: bool


_new_write = tuple.__new__  # a third of the time that `Write(...)` takes


class Writes:
    """Records in-place writes, and answers which ones hit a piece of memory since a value was recorded."""

    def __init__(self) -> None:
        self.by_storage: dict[int, list[Write]] = {}
        self.mirrors: dict[int, tuple[int, int]] = {}  # storages over another one's memory: which, their offset in it

    def add(self, tensor: Tensor, value: Value, reshapes: bool, address: int | None = None) -> None:
        """A call has overwritten `tensor`, which lies in the storage at `address`, if that is known."""
        if address is None or self.mirrors:
            address, layout = self.location(tensor)
        else:
            layout = layout_of(tensor)
        if address is None:
            return
        writes = self.by_storage.setdefault(address, [])
        write: Write = _new_write(Write, (value, layout, reshapes))
        if writes and writes[-1].value.index > value.index:  # of several tensors that one call has written
            insort(writes, write, key=_index)
        else:
            writes.append(write)

    def since(self, index: int, tensor: Tensor) -> list[Write]:
        """The writes to the memory of `tensor` after the value with this index was recorded.

        Memory that was freed and reused for another tensor has only older writes, so the two are never confused.
        """
        address, _ = self.location(tensor)
        writes = self.by_storage.get(address, ()) if address is not None else ()
        return list(writes[bisect_right(writes, index, key=_index) :])

    def made(self, value: Value, tensor: Tensor) -> bool:
        """Was this value of `tensor` written into memory that existed before?"""
        address, _ = self.location(tensor) if self.by_storage else (None, None)
        return address is not None and any(write.value is value for write in self.by_storage.get(address, ()))

    def location(self, tensor: Tensor) -> tuple[int | None, MemoryLayout | None]:
        """The storage of a tensor and its layout there; of storages over the same memory, always the first one."""
        address, layout = address_of(tensor), layout_of(tensor)
        if address in self.mirrors:
            address, begin = self.mirrors[address]
            layout = layout and layout._replace(offset=layout.offset + begin)
        return address, layout


def _index(write: Write) -> int:
    return write.value.index

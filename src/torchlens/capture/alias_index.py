"""Find the recorded value whose memory an unrecorded tensor shares."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ref

from torch import Tensor

from .records import MemoryLayout, Value
from .tensor_memory import address_of, layout_of


class AliasIndex:
    """Finds the known tensors that share memory with an unknown one.

    Such tensors are rare (`nn.Parameter(x)`, `x.as_subclass(...)`, a custom autograd function that returns its
    input), so the index is brought up to date only when one turns up.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[ref[Tensor], Value, int]] = []
        self.by_storage: dict[int, list[tuple[ref[Tensor], Value]]] = {}

    def values_of(self, tensor: Tensor) -> Iterator[Value]:
        """The values that a tensor has had, the latest first."""
        yield from (value for reference, value, _ in reversed(self.pending) if reference() is tensor)
        indexed = self.by_storage.get(address_of(tensor) or 0, ())
        yield from (value for reference, value in reversed(indexed) if reference() is tensor)

    def find(self, tensor: Tensor) -> tuple[Value, MemoryLayout | None] | None:
        """The latest value in the same memory and how it lies there; one that lies as `tensor` does, if possible."""
        for reference, value, _ in self.pending:
            known = reference()
            address = address_of(known) if known is not None else None
            if address is not None:
                self.by_storage.setdefault(address, []).append((reference, value))
        self.pending.clear()
        address, layout = address_of(tensor), layout_of(tensor)
        found = None
        for reference, value in reversed(self.by_storage.get(address, ()) if address is not None else ()):
            known = reference()
            if known is None or known is tensor or address_of(known) != address:
                continue
            if layout_of(known) == layout is not None and known.dtype == tensor.dtype:
                return value, layout
            found = found or (value, layout_of(known))
        return found

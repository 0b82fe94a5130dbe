"""Which value is this tensor? And keeping values, without copying them.

Nothing is written on tensors. A table from `id(tensor)` to a weak reference, the tensor's latest value and the
version of its memory answers the question; the weak reference guards against a reused id, the version tells when the
memory was overwritten through another tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import UninitializedTensorMixin, lazy_copy, neg_view, storage_address
from .functions import ALIAS_UPDATE, IMPLICIT_VIEW, Function
from .records import Layout, Recording, Value, facts_of

#: Adds a call that no code made: (function, arguments, keyword arguments, tensor it explains, role, address).
Synthesize = Callable[[Function, tuple[Any, ...], Mapping[str, Any], Tensor, str, "str | None"], Value]

#: The parameters and buffers of the model by id, each with its role and address.
Residents = dict[int, tuple[Tensor, str, str]]

_UNVERSIONED = -1  # memory made in inference mode counts no writes


class _Write(NamedTuple):
    value: Value  # the written tensor, after the write
    layout: Layout | None
    reshapes: bool


class Identity:
    """Knows every tensor of a forward pass by its latest value."""

    def __init__(self, recording: Recording, residents: Residents, synthesize: Synthesize) -> None:
        self.recording = recording
        self.keeping = recording.values_kept
        self.residents = residents
        self.synthesize = synthesize
        self.live: dict[int, tuple[ref[Tensor], Value, int]] = {}
        self.foreign: set[int] = set()  # storages that someone else may read or write at the address they have now
        self.writes: dict[int, list[_Write]] = {}  # by storage
        self.unversioned: set[int] = set()  # storages with an alias whose writes are not counted, such as x.data
        self.exposed: set[int] = set()  # storages that someone outside torch can write to
        self.exports: dict[int, Value] = {}  # the values handed out, by where they begin
        self.param_values: dict[int, list[Value]] = {}  # by storage
        self.buffers = {address for _, role, address in residents.values() if role == "buffer"}
        self._aliases = _AliasIndex()
        for tensor, role, address in residents.values():
            self._mark_foreign(tensor)
            if role == "param" and not isinstance(tensor, UninitializedTensorMixin):
                self._add_param(tensor, address)

    # ---- lookup ---------------------------------------------------------------------------------------------

    def value_of(self, tensor: Tensor) -> Value:
        """The value that `tensor` has now; a new one if it is unknown or was changed through another tensor."""
        entry = self.live.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return self._unknown(tensor)
        _, value, version = entry
        if version != _UNVERSIONED and tensor._version != version:
            return self._changed(tensor, value)
        if (version == _UNVERSIONED or self.unversioned) and self._writes_since(value.index, tensor):
            return self._changed(tensor, value)
        if self.exposed and _address(tensor) in self.exposed and _differ(value.saved, tensor):
            return self._changed(tensor, value)
        return value

    def current(self, tensor: Tensor) -> Value | None:
        """The value last recorded for `tensor`, as it is."""
        entry = self.live.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    # ---- registration ---------------------------------------------------------------------------------------

    def new_value(
        self, tensor: Tensor, role: str, call: int = -1, position: int | None = None, address: str | None = None
    ) -> Value:
        """Record that `tensor` now holds a new value."""
        grad_fn = None
        if tensor.requires_grad:
            node = tensor.grad_fn
            grad_fn = "" if node is None else type(node).__name__
        saved = facts = None
        if self.keeping:
            saved = self._keep(tensor)
        if saved is None or saved.is_nested:
            facts = facts_of(tensor)
        values = self.recording.values
        value = Value(len(values), role, call, position, address, facts, grad_fn, saved)
        values.append(value)
        self._bind(tensor, value)
        return value

    def add_input(self, tensor: Tensor, path: str) -> None:
        """Record a tensor that the model is called with."""
        first = self.current(tensor)
        self._mark_foreign(tensor)
        self.new_value(tensor, "input", address=path)
        if first is not None:  # the same tensor given twice: what uses it uses the first
            self._bind(tensor, first)

    def copy_of(self, origin: Value, role: str, call: int, address: str) -> Value:
        """Record a second entry for the same value."""
        values = self.recording.values
        saved = origin.saved
        if origin.role == "param" and saved is not None:
            saved = saved.detach().clone() if self.recording.values_kept else None
        value = Value(len(values), role, call, None, address, origin.facts, origin.grad_fn, saved)
        values.append(value)
        return value

    def _bind(self, tensor: Tensor, value: Value) -> None:
        try:
            version = tensor._version
        except RuntimeError:
            version = _UNVERSIONED
        entry = self.live[id(tensor)] = (ref(tensor), value, version)
        self._aliases.pending.append(entry)

    # ---- keeping --------------------------------------------------------------------------------------------

    def _keep(self, tensor: Tensor) -> Tensor:
        """Keep what `tensor` holds now, whatever happens to it later.

        Memory that this forward pass allocated is shared with a lazy copy: whoever writes to it first, by whatever
        way, gets memory of his own. Foreign memory must stay where it is, since raw pointers into it may exist
        (a NumPy view of an input, a captured graph over parameters), so a value in it is copied at once.
        """
        if tensor.is_conj() or tensor.is_neg():  # a copy would not be; kernels round differently
            return _through_the_bit(tensor, self._keep)
        try:
            if storage_address(tensor) not in self.foreign and not tensor.is_quantized:  # it would lose its quantizer
                return lazy_copy(tensor.detach() if tensor.requires_grad else tensor)
        except RuntimeError:
            pass  # no storage of the plain kind: sparse, nested, from NumPy, in shared memory
        return _copy(tensor)

    def before_memory_access(self, function: Function, tensor: Any) -> None:
        """A call is about to hand out the memory of `tensor`, or to go by more of it than `tensor` shows."""
        address = _address(tensor) if isinstance(tensor, Tensor) else None
        if address is None:
            return
        if function.reaches_beyond:
            self._keep_with_all_memory(tensor)
        else:  # from now on it is foreign, and may change unseen
            self.exports[self._own_memory(tensor)] = self.value_of(tensor)
            self.foreign.add(address)
            self.exposed.add(address)

    def _keep_with_all_memory(self, tensor: Tensor) -> None:
        """Let what is kept of `tensor` lie in a copy of all the memory behind it, as that is now."""
        value, layout = self.value_of(tensor), _layout(tensor)
        if value.saved is None or value.role == "param" or layout is None or tensor.is_conj() or tensor.is_neg():
            return
        memory = tensor.detach().as_strided((_storage_size(tensor) // layout.itemsize,), (1,), 0)
        value.saved = layout.of(memory.clone())

    def _mark_foreign(self, tensor: Tensor) -> None:
        address = _address(tensor)
        if address is not None:
            self.foreign.add(address)

    # ---- writes ---------------------------------------------------------------------------------------------

    def before_write(self, tensor: Tensor) -> None:
        """A call is about to overwrite `tensor`."""
        value = self.current(tensor)
        saved = value.saved if value is not None else None
        if saved is not None and value is not None and value.role == "op" and saved.nbytes == _storage_size(tensor):
            # The first write would make torch copy the memory, with one thread; this does the same with all of them.
            value.saved = saved.clone()
            del saved
        self._own_memory(tensor)  # growing memory that has lazy copies is an error inside torch
        for param in self.param_values.pop(_address(tensor) or 0, ()):  # kept as they are, until they change
            param.saved = param.saved.detach().clone() if param.saved is not None and self.keeping else None

    def after_write(self, tensor: Tensor, value: Value, reshapes: bool) -> None:
        """A call has overwritten `tensor`, whose value is now `value`."""
        address = _address(tensor)
        if address is not None:
            self.writes.setdefault(address, []).append(_Write(value, _layout(tensor), reshapes))

    def role_after_write(self, old: Value) -> str:
        """A buffer stays a buffer when it is overwritten."""
        return "update" if old.address in self.buffers else "op"

    def note_data_alias(self, tensor: Tensor) -> None:
        """`tensor.data` was taken or given: writes through the other one are not counted."""
        address = _address(tensor)
        if address is not None:
            self.unversioned.add(address)

    def _own_memory(self, tensor: Tensor) -> int:
        """Cut `tensor` loose from its lazy copies; return where its memory is now, 0 if it has none."""
        try:
            return tensor.data_ptr()  # asking for the address to write to makes the memory its own
        except RuntimeError:
            return 0  # fake, sparse

    def _writes_since(self, index: int, tensor: Tensor) -> list[_Write]:
        """The writes to the memory of `tensor` after the value with this index was recorded.

        Memory that was freed and used again for another tensor has only older writes, so they are never confused.
        """
        address = _address(tensor)
        writes = self.writes.get(address, ()) if address is not None else ()
        return [write for write in writes if write.value.index > index]

    def _changed(self, tensor: Tensor, value: Value) -> Value:
        """The memory of `tensor` may have been overwritten through another tensor since `value` was recorded."""
        writes = self._writes_since(value.index, tensor)
        layout = _layout(tensor)
        over = [write for write in writes if not write.reshapes and _overlap(write.layout, layout)]
        if not over:
            # Either the write was elsewhere in the same memory, or none was seen: then only the value can tell.
            if writes or _differ(value.saved, tensor) is False:
                self._bind(tensor, value)
                return value
            self.recording.warnings.append(
                f"a tensor of shape {tuple(value.shape)} was overwritten by something that could not be seen; "
                "its new value is logged as 'aliasupdate', without what wrote it"
            )
        return self._update(tensor, value, over)

    def _update(self, tensor: Tensor, value: Value, writes: list[_Write]) -> Value:
        """Record the value that `tensor` has after these writes through other tensors."""
        layouts = {"layouts": (_layout(tensor), *(write.layout for write in writes))}
        parents = (value, *(write.value for write in writes))
        role = self.role_after_write(value)
        return self.synthesize(ALIAS_UPDATE, parents, layouts, tensor, role, value.address)

    # ---- tensors that no recorded call made -----------------------------------------------------------------

    def _unknown(self, tensor: Tensor) -> Value:
        if isinstance(tensor, UninitializedTensorMixin):  # a lazy module's: it is nothing yet, and not remembered
            return Value(-1, "param", -1, None, None, (torch.Size(()), tensor.dtype, tensor.device), None, None)
        if id(tensor) in self.residents:
            _, role, address = self.residents[id(tensor)]
            is_param = role == "param"  # made by a lazy module just now; all others are known from the start
            value = self._add_param(tensor, address) if is_param else self.new_value(tensor, role, address=address)
            if not self.writes:
                return value
            # Another tensor in the same memory may have been written to before this one is first used.
            over = [write for write in self._writes_since(-1, tensor) if _overlap(write.layout, _layout(tensor))]
            return self._update(tensor, value, over) if over else value
        base, layout = self._aliases.find(tensor) or self._exported(tensor) or (None, None)
        if base is not None and layout == _layout(tensor) is not None and base.dtype == tensor.dtype:
            self._bind(tensor, base)
            return self.value_of(tensor)
        if base is not None:
            layouts = {"layouts": (_layout(tensor), layout)}
            return self.synthesize(IMPLICIT_VIEW, (base,), layouts, tensor, "op", None)
        if tensor.grad_fn is not None:
            self.recording.warnings.append(
                f"a tensor of shape {tuple(facts_of(tensor)[0])} was computed by something that could not be seen "
                "(TorchScript, torch.func, another thread, code before the forward pass); it is logged as a 'source'"
            )
        self._mark_foreign(tensor)
        return self.new_value(tensor, "source")

    def _exported(self, tensor: Tensor) -> tuple[Value, Layout | None] | None:
        """The value that came back from NumPy as this tensor, if it did."""
        if not self.exports or _address(tensor) is None or tensor.untyped_storage().resizable():
            return None
        value = self.exports.get(tensor.data_ptr())
        return None if value is None else (value, _layout(tensor) if value.shape == tensor.shape else None)

    def _add_param(self, tensor: Tensor, address: str) -> Value:
        params = self.recording.params
        grad_fn = "" if tensor.requires_grad else None
        value = Value(len(params), "param", -1, None, address, facts_of(tensor), grad_fn, tensor)
        params.append(value)
        self.param_values.setdefault(_address(tensor) or 0, []).append(value)
        self._bind(tensor, value)
        return value


class _AliasIndex:
    """Finds the known tensors that share memory with an unknown one.

    Such tensors are rare (`nn.Parameter(x)`, `x.as_subclass(...)`, a custom autograd function that returns its
    input), so the index is brought up to date only when one turns up.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[ref[Tensor], Value, int]] = []
        self.by_storage: dict[int, list[tuple[ref[Tensor], Value]]] = {}

    def find(self, tensor: Tensor) -> tuple[Value, Layout | None] | None:
        """The latest value in the same memory and how it lies there; one that lies as `tensor` does, if possible."""
        for reference, value, _ in self.pending:
            known = reference()
            address = _address(known) if known is not None else None
            if address is not None:
                self.by_storage.setdefault(address, []).append((reference, value))
        self.pending.clear()
        address, layout = _address(tensor), _layout(tensor)
        found = None
        for reference, value in reversed(self.by_storage.get(address, ()) if address is not None else ()):
            known = reference()
            if known is None or _address(known) != address:
                continue
            if _layout(known) == layout is not None and known.dtype == tensor.dtype:
                return value, layout
            found = found or (value, _layout(known))
        return found


def _address(tensor: Tensor) -> int | None:
    try:
        return storage_address(tensor if tensor.layout is not torch.sparse_coo else tensor._values()) or None
    except RuntimeError:
        return None  # other layouts have no storage


def _through_the_bit(tensor: Tensor, keep: Callable[[Tensor], Tensor]) -> Tensor:
    """Keep a tensor that is the conjugate or negative of what lies in its memory, as such."""
    with torch.no_grad():
        return keep(tensor.conj()).conj() if tensor.is_conj() else neg_view(keep(neg_view(tensor)))


def _copy(tensor: Tensor) -> Tensor:
    """A copy with the same strides: kernels go through memory in their order, and round accordingly."""
    layout = _layout(tensor)
    with torch.no_grad():
        if tensor.is_quantized:
            return deepcopy(tensor.detach())  # a clone would lie in another order
        if layout is None or type(tensor) not in (Tensor, Parameter):
            return tensor.clone()
        if tensor.is_contiguous():  # dimensions of size 1 may have any stride, and tell kernels which order is meant
            copy = tensor.clone()
            return copy if copy.stride() == layout.stride else copy.as_strided(layout.size, layout.stride)
        span = layout.end - layout.offset + 1
        if layout.conj or span > 4 * max(tensor.numel(), 1):  # a few elements spread over much memory
            return tensor.clone()
        memory = tensor.as_strided((span,), (1,), layout.offset).clone()
        return memory.as_strided(layout.size, layout.stride, 0)


def _storage_size(tensor: Tensor) -> int:
    """Bytes of the memory behind a tensor, -1 if that can't be said."""
    try:
        return tensor.untyped_storage().nbytes()
    except RuntimeError:
        return -1


def _layout(tensor: Tensor) -> Layout | None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    size, stride, offset = tensor.size(), tensor.stride(), int(tensor.storage_offset())
    return Layout(size, stride, offset, tensor.dtype.itemsize, tensor.is_conj())


def _overlap(one: Layout | None, other: Layout | None) -> bool:
    """Do two layouts of the same memory have an element in common?"""
    if one is None or other is None or one.itemsize != other.itemsize:
        return True
    if one.end < other.offset or other.end < one.offset:
        return False
    touched = torch.zeros(max(one.end, other.end) + 1, dtype=torch.bool)
    one.of(touched).fill_(True)
    return bool(other.of(touched).any())


def _differ(saved: Tensor | None, tensor: Tensor) -> bool | None:
    """Is the tensor no longer what was saved? None if that can't be known."""
    try:
        if saved is None or saved.shape != tensor.shape:
            return None
        now = tensor.detach()
        return not bool(((saved == now) | ((saved != saved) & (now != now))).all())
    except RuntimeError:
        return None  # sparse, fake, nested: not to be compared

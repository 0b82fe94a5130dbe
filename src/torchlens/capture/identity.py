"""Which value is this tensor? And keeping values, without copying them.

Nothing is written on tensors. A table from `id(tensor)` to a weak reference, the tensor's latest value and the
version of its memory answers the question; the weak reference guards against a reused id, the version tells when the
memory was overwritten through another tensor.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import UninitializedTensorMixin, data_address, shares_lazily
from .functions import ALIAS_UPDATE, IMPLICIT_VIEW, UNEDITED, UNWRAP, WRAP, Function
from .keeping import Keeper, address_of, copied, inner_tensors, is_plain, layout_of, lies_outside, memory_behind
from .observer import Observer
from .origins import Origins
from .records import NO_KWARGS, UNREAD, Layout, TensorInfo, Trace, Value, facts_of

#: Adds a call that no code made: (function, arguments, keyword arguments, tensor it explains, role, address).
Synthesize = Callable[[Function, tuple[Any, ...], Mapping[str, Any], Tensor, str, "str | None"], Value]

#: The parameters and buffers of the model by id, each with its role and what is known of it.
Residents = dict[int, tuple[Tensor, str, TensorInfo]]

#: What a tensor does when a torch function is called with it; a parameter turns it off, and has no function there.
_PLAIN_BEHAVIOUR = Tensor.__torch_function__.__func__  # type: ignore[attr-defined]

UNVERSIONED = -1  # memory made in inference mode counts no writes
SHARED = -2  # memory that others write to as well, who count nothing

#: Torch frees a graph of nodes that Python has seen by recursion: more of them than this could overflow the stack.
MOST_GRAD_FNS = 8_000


class _Write(NamedTuple):
    value: Value  # the written tensor, after the write
    layout: Layout | None
    reshapes: bool


_new_write = tuple.__new__  # a third of the time that `_Write(...)` takes


class _Export(NamedTuple):
    value: Value
    address: int  # of its storage
    layout: Layout | None


class _Inner(NamedTuple):
    """A tensor that another one holds."""

    tensor: ref[Tensor]
    holder: Value
    name: str


class Identity:
    """Knows every tensor of a forward pass by its latest value."""

    def __init__(
        self,
        trace: Trace,
        residents: Residents,
        keeper: Keeper,
        synthesize: Synthesize,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self.trace = trace
        self.keeping = trace.values_kept
        self.keeper = keeper
        self.foreign = keeper.foreign
        self.observers = observers
        self.untold: list[tuple[Value, Tensor]] | None = [] if observers else None  # new values, to tell them of
        self.grad_fns_to_read = MOST_GRAD_FNS
        self.watchful = False  # a tensor's version does not tell whether it has changed, or others look on
        self.residents = residents
        self.synthesize = synthesize
        self.live: dict[int, tuple[ref[Tensor], Value, int]] = {}
        self.steady: dict[int, Value] = {}  # parameters that nobody has written to; they get into `live` when need be
        self.writes: dict[int, list[_Write]] = {}  # by storage
        self.unversioned: set[int] = set()  # storages with an alias whose writes are not counted, such as x.data
        self.exposed: set[int] = set()  # storages that were handed out: someone outside torch can write to them
        self.shared: set[int] = set()  # storages over memory that came from outside, likewise
        self.snapshots: dict[int, Tensor] = {}  # what exposed memory held, by value, where that is not kept anyway
        self.exports: dict[int, _Export] = {}  # what was handed out, by where it begins
        self.returned: dict[int, tuple[ref[Tensor], Value, Value]] = {}  # arguments that a call returned as they were
        self.unedited: dict[int, tuple[ref[Tensor], Value]] = {}  # tensors whose value another one holds now
        self.handed_out: dict[int, _Export] = {}  # the same by storage
        self.mirrors: dict[int, tuple[int, int]] = {}  # storages over the memory of others: which, where they begin
        self.param_values: dict[int, list[Value]] = {}  # by storage
        self.buffers = {info.address for _, role, info in residents.values() if role == "buffer"}
        self.origins: Origins | None = None  # of the tensors that no recorded call made
        self.below = False  # at the dispatcher, where a tensor has no history yet
        self.inner: dict[int, _Inner] = {}  # tensors that others hold, by id and by storage
        self.plain_buffers: dict[int, tuple[int, int]] = {}  # their versions and storages, by id
        self._aliases = _AliasIndex()
        self.bound = self._aliases.pending  # every entry of `live` there ever was
        for key, (tensor, role, info) in residents.items():
            memory = address_of(tensor)
            if memory is not None:
                self.foreign.add(memory)
            if role == "param" and type(tensor) is Parameter:
                self.steady[key] = self._add_param(tensor, info, memory)
            elif role == "param" and not isinstance(tensor, UninitializedTensorMixin):
                self._bind_param(tensor, self._add_param(tensor, info, memory))
            elif memory is not None and info.shape is not None and len(info.shape) == 1 and _is_plain_here(tensor):
                self.plain_buffers[key] = (version_of(tensor), memory)  # of more dimensions it may lie in any order

    # ---- lookup ---------------------------------------------------------------------------------------------

    def value_of(self, tensor: Tensor) -> Value:
        """The value that `tensor` has now; a new one if it is unknown or was changed through another tensor."""
        entry = self.live.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return self._plain_buffer(tensor) or self._unknown(tensor)
        _, value, version = entry
        if version >= 0 and tensor._version != version:
            return self._changed(tensor, value)
        if version == SHARED and _differ(self._held(value), tensor):
            return self._changed(tensor, value)
        if (version < 0 or self.unversioned) and self._writes_since(value.index, tensor):
            return self._changed(tensor, value)
        if self.exposed and address_of(tensor) in self.exposed and _differ(self._held(value), tensor):
            return self._changed(tensor, value)
        return value

    def current(self, tensor: Tensor) -> Value | None:
        """The value last recorded for `tensor`, as it is."""
        entry = self.live.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else self.steady.get(id(tensor))

    # ---- registration ---------------------------------------------------------------------------------------

    def new_value(
        self,
        tensor: Tensor,
        role: str,
        call: int = -1,
        position: int | None = None,
        address: str | None = None,
        fresh: bool = False,
    ) -> Value:
        """Record that `tensor` now holds a new value; `fresh` if nobody else can have its memory."""
        grad_fn = None
        if tensor.requires_grad:
            grad_fn = self.grad_fn_of(tensor)
        saved = facts = None
        if self.keeping:
            saved = self.keeper.keep(tensor, fresh)
        if saved is None:
            facts = facts_of(tensor)
        values = self.trace.values
        value = Value(len(values), role, call, position, address, facts, grad_fn, saved)
        values.append(value)
        if self.untold is not None:
            self.untold.append((value, tensor))
        if not self.keeping and (self.exposed or self.shared) and self._may_change(tensor):
            self._snapshot(tensor, value)
        self.bind(tensor, value)
        if type(tensor) is not Tensor:
            self._note_inner(tensor, value)
        return value

    def grad_fn_of(self, tensor: Tensor) -> str:
        if self.grad_fns_to_read <= 0:
            return "" if is_leaf(tensor) else UNREAD
        node = _node_of(tensor)
        if node is None:
            return ""
        self.grad_fns_to_read -= 1
        return type(node).__name__

    def _note_inner(self, tensor: Tensor, value: Value) -> None:
        for name, inner in inner_tensors(tensor).items():
            self.inner[id(inner)] = self.inner[address_of(inner) or 0] = _Inner(ref(inner), value, name)

    def add_input(self, tensor: Tensor, path: str) -> None:
        """Record a tensor that the model is called with."""
        first = self.current(tensor)
        self.keeper.mark_foreign(tensor)
        self.note_origin(tensor)
        self.new_value(tensor, "input", address=path)
        if first is not None:  # the same tensor given twice: what uses it uses the first
            self.bind(tensor, first)

    def add_output(self, tensor: Tensor, origin: Value, call: int, path: str) -> Value:
        """Record a tensor that the model returned, whose value is `origin`."""
        values = self.trace.values
        saved = origin.saved if self.keeping else None
        if origin.role == "param" and saved is not None:
            saved = saved.detach().clone()
        value = Value(len(values), "output", call, None, path, origin.facts, origin.grad_fn, saved)
        values.append(value)
        if self.untold is not None:
            self.untold.append((value, tensor))
        return value

    def bind(self, tensor: Tensor, value: Value) -> None:
        """Remember that this is the value of `tensor` now."""
        self.steady.pop(id(tensor), None)
        try:
            version = tensor._version
        except RuntimeError:
            version = UNVERSIONED
        if self.shared and address_of(tensor) in self.shared:
            version = SHARED
        entry = self.live[id(tensor)] = (ref(tensor), value, version)
        self.bound.append(entry)

    # ---- replacing ------------------------------------------------------------------------------------------

    def was_written(self, tensor: Tensor, value: Value) -> bool:
        """Did the call that made this value write it into memory that was there before?"""
        address, _ = self._place(tensor)
        return address is not None and any(write.value is value for write in self.writes.get(address, ()))

    def forget(self, tensor: Tensor, value: Value) -> None:
        """`value` will be held by another tensor: this one holds what it held before, or what `value` would be."""
        reference, before, after = self.returned.get(id(tensor), (None, None, None))
        if reference is not None and reference() is tensor and after is value and before is not None:
            self.bind(tensor, before)
        else:
            del self.live[id(tensor)]
            self.unedited[id(tensor)] = (ref(tensor), value)

    def keep_again(self, value: Value, tensor: Tensor) -> None:
        """A value is held by another tensor now."""
        value.grad_fn = self.grad_fn_of(tensor) if tensor.requires_grad else None
        value._facts = facts_of(tensor)
        if self.keeping:
            value.saved = self.keeper.keep(tensor)

    # ---- keeping --------------------------------------------------------------------------------------------

    def before_memory_access(self, function: Function, tensor: Any) -> None:
        """A call is about to hand out the memory of `tensor`, or to go by more of it than `tensor` shows."""
        if function.reaches_beyond and isinstance(tensor, Tensor):
            self._keep_with_all_memory(tensor)
        else:
            self.expose(tensor)

    def _keep_with_all_memory(self, tensor: Tensor) -> None:
        """Let what is kept of `tensor` lie in a copy of all the memory behind it, as that is now."""
        value, layout = self.value_of(tensor), layout_of(tensor)
        if value.saved is None or value.role == "param" or layout is None or tensor.is_conj() or tensor.is_neg():
            return
        memory = tensor.detach().as_strided((memory_behind(tensor) // layout.itemsize,), (1,), 0)
        value.saved = layout.of(memory.clone())

    def expose(self, tensor: Any) -> None:
        """The memory of `tensor` is about to be handed out: from now on it is foreign, and may change unseen."""
        address = self.keeper.guard(tensor) if isinstance(tensor, Tensor) else None
        if address is not None:
            for observer in self.observers:
                observer.before_write(tensor)
            export = _Export(value := self.value_of(tensor), address, layout_of(tensor))
            self.exports[own_memory(tensor)] = self.handed_out[address] = export
            if not self.keeping:
                self._snapshot(tensor, value)
            self.foreign.add(address)
            self.exposed.add(address)
            self.watchful = True

    def note_origin(self, tensor: Any) -> None:
        """If this tensor lies in memory that came from outside torch, that may change unseen from now on."""
        if isinstance(tensor, Tensor) and lies_outside(tensor):
            address = self.keeper.guard(tensor)
            if address is not None:
                self.foreign.add(address)
                self.shared.add(address)

    def _may_change(self, tensor: Tensor) -> bool:
        address = address_of(tensor)
        return address in self.exposed or address in self.shared

    def _snapshot(self, tensor: Tensor, value: Value) -> None:
        copy = copied(tensor)
        if copy is not None:
            self.snapshots[value.index] = copy

    # ---- writes ---------------------------------------------------------------------------------------------

    def before_write(self, tensor: Tensor) -> int | None:
        """A call is about to overwrite `tensor`. Returns which storage it lies in."""
        for observer in self.observers:
            observer.before_write(tensor)
        value = self.current(tensor)
        saved = value.kept if value is not None and isinstance(value.kept, Tensor) else None
        if saved is not None and value is not None and value.role == "op" and _fills(saved, memory_behind(tensor)):
            # The first write would make torch copy the memory, with one thread; this does the same with all of them.
            value.saved = saved.clone()
            del saved
        own_memory(tensor)  # growing memory that has lazy copies is an error inside torch
        address = address_of(tensor)
        for param in self.param_values.pop(address or 0, ()):  # kept as they are, until they change
            if isinstance(param.kept, Tensor):
                self._unsettle(param.kept)
            param.saved = param.saved.detach().clone() if param.saved is not None and self.keeping else None
            self.trace.param_versions[param.index] = version_of(param.saved)
        return address

    def after_write(self, tensor: Tensor, value: Value, reshapes: bool, address: int | None = None) -> None:
        """A call has overwritten `tensor`, which lies in this storage, if that is known; its value is now `value`."""
        if address is None or self.mirrors:
            address, layout = self._place(tensor)
        else:
            layout = layout_of(tensor)
        if address is not None:
            writes = self.writes.setdefault(address, [])
            write: _Write = _new_write(_Write, (value, layout, reshapes))
            if writes and writes[-1].value.index > value.index:  # of several tensors that one call has written
                insort(writes, write, key=_index_of_write)
            else:
                writes.append(write)
        entry = self.live.get(id(tensor)) if self.below else None
        if entry is not None and entry[2] >= 0:  # torch counts a write when the dispatcher is done with it
            self.live[id(tensor)] = (entry[0], value, entry[2] + 1)

    def before_swap(self, one: Tensor, other: Tensor) -> None:
        """Two tensors are about to exchange all that they are."""
        for tensor in (one, other):
            self.value_of(tensor)
            self.before_write(tensor)

    def after_swap(self, one: Tensor, other: Tensor) -> None:
        first, second = self.current(one), self.current(other)
        assert first is not None and second is not None
        self.bind(one, second)
        self.bind(other, first)

    def look_again(self, tensor: Tensor) -> None:
        """Something may have written to `tensor` without saying so."""
        value = self.current(tensor)
        if value is not None and value.role != "param" and _differ(self._held(value), tensor):
            self._changed(tensor, value)

    def may_differ(self, tensor: Tensor, value: Value) -> bool:
        """Does `tensor` hold something else than `value`? Yes, too, if what that was is not kept."""
        return _differ(self._held(value), tensor) is not False

    def role_after_write(self, old: Value) -> str:
        """A buffer stays a buffer when it is overwritten."""
        return "update" if old.address in self.buffers else "op"

    def note_alias(self, tensor: Tensor) -> None:
        """`tensor.data` was taken or given, or memory by `set_`: writes through the other one are not counted."""
        address = self.keeper.guard(tensor)
        if address is not None:
            self.unversioned.add(address)
            self.watchful = True

    def adopt(self, tensor: Tensor) -> None:
        """`tensor` was given the memory of a storage: that of another tensor, a copy of it, or data from elsewhere."""
        self.steady.pop(id(tensor), None)
        self.live.pop(id(tensor), None)
        if address_of(tensor) in self.handed_out:
            self.note_alias(tensor)
            self.value_of(tensor)
            return
        exports = reversed(self.handed_out.values())
        value = next((e.value for e in exports if _differ(self._held(e.value), tensor) is False), None)
        if value is not None:  # as a pickle
            self.bind(tensor, value)
        elif self.origins is not None:
            self.origins.add_made(tensor)
            self.origins.add_data(tensor, None, bool(self.exports))

    def _writes_since(self, index: int, tensor: Tensor) -> list[_Write]:
        """The writes to the memory of `tensor` after the value with this index was recorded.

        Memory that was freed and used again for another tensor has only older writes, so they are never confused.
        """
        address, _ = self._place(tensor)
        writes = self.writes.get(address, ()) if address is not None else ()
        return list(writes[bisect_right(writes, index, key=_index_of_write) :])

    def _place(self, tensor: Tensor) -> tuple[int | None, Layout | None]:
        """In which storage a tensor lies, and how; of storages over the same memory, always in the first one."""
        address, layout = address_of(tensor), layout_of(tensor)
        if address in self.mirrors:
            address, begin = self.mirrors[address]
            layout = layout and layout._replace(offset=layout.offset + begin)
        return address, layout

    def _changed(self, tensor: Tensor, value: Value) -> Value:
        """The memory of `tensor` may have been overwritten through another tensor since `value` was recorded."""
        writes = self._writes_since(value.index, tensor)
        _, layout = self._place(tensor)
        over = [write for write in writes if not write.reshapes and _overlap(write.layout, layout)]
        if not over:
            # Either the write was elsewhere in the same memory, or none was seen: then only the value can tell.
            if (writes and not self._may_change(tensor)) or _differ(self._held(value), tensor) is False:
                self.bind(tensor, value)
                return value
            self.trace.warnings.append(
                f"a tensor of shape {tuple(value.shape)} was overwritten by something that could not be seen; "
                "its new value is logged as 'aliasupdate', without what wrote it"
            )
        return self._update(tensor, value, over)

    def _held(self, value: Value) -> Tensor | None:
        return self.snapshots.get(value.index, value.saved)

    def _update(self, tensor: Tensor, value: Value, writes: list[_Write]) -> Value:
        """Record the value that `tensor` has after these writes through other tensors."""
        layouts = {"layouts": (self._place(tensor)[1], *(write.layout for write in writes))}
        parents = (value, *(write.value for write in writes))
        role = self.role_after_write(value)
        return self.synthesize(ALIAS_UPDATE, parents, layouts, tensor, role, value.address)

    # ---- tensors that no recorded call made -----------------------------------------------------------------

    def _unknown(self, tensor: Tensor) -> Value:
        if id(tensor) in self.steady:
            self._unsettle(tensor)
            return self.value_of(tensor)
        reference, edited = self.unedited.get(id(tensor), (None, None))
        if reference is not None and reference() is tensor:
            return self.synthesize(UNEDITED, (edited,), NO_KWARGS, tensor, "op", None)
        if isinstance(tensor, UninitializedTensorMixin):  # a lazy module's: it is nothing yet, and not remembered
            return Value(-1, "param", -1, None, None, (torch.Size(()), tensor.dtype, tensor.device), None, None)
        if id(tensor) in self.residents:
            _, role, info = self.residents[id(tensor)]
            if role == "param":  # made by a lazy module just now; all others are known from the start
                value = self._add_param(tensor, info, address_of(tensor))
                self._bind_param(tensor, value)
            else:
                self.note_origin(tensor)
                value = self.new_value(tensor, "buffer", address=info.address)
            writes = self._writes_since(-1, tensor) if self.writes else []
            if not writes:
                return value
            # Another tensor in the same memory may have been written to before this one is first used.
            _, place = self._place(tensor)
            over = [write for write in writes if _overlap(write.layout, place)]
            return self._update(tensor, value, over) if over else value
        for param in list(self.steady.values()):  # what this may share memory with
            assert isinstance(param.kept, Tensor)
            self._unsettle(param.kept)
        base, layout = self._aliases.find(tensor) or self._exported(tensor) or self._kept_as(tensor) or (None, None)
        same = layout == layout_of(tensor) is not None and not _behaves_differently(tensor)
        if base is not None and same and base.dtype == tensor.dtype:
            self.bind(tensor, base)
            return self.value_of(tensor)
        if base is not None:
            layouts = {"layouts": (layout_of(tensor), layout)}
            return self.synthesize(IMPLICIT_VIEW, (base,), layouts, tensor, "op", None)
        if inner_tensors(tensor):
            return self._wrapped(tensor)
        memory = address_of(tensor)
        inner = self.inner.get(id(tensor)) or self.inner.get(memory or 0)
        known = inner and inner.tensor()
        if inner and known is not None and (known is tensor or address_of(known) == memory is not None):
            value = self.synthesize(UNWRAP, (inner.holder,), {"attribute": inner.name}, known, "op", None)
            return value if known is tensor else self._unknown(tensor)
        history = _node_of(tensor) is not None
        if self.origins is not None and (history or not self.below):  # constants of compiled code show themselves below
            self.origins.add_used(tensor, bool(self.exports), history)
        self.keeper.mark_foreign(tensor)
        self.note_origin(tensor)
        return self.new_value(tensor, "source")

    def _wrapped(self, tensor: Tensor) -> Value:
        """The value of a tensor that was made of others and holds them."""
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        held = [getattr(tensor, name) for name in names]
        parents = tuple([self.value_of(inner) if isinstance(inner, Tensor) else inner for inner in held])
        making = {"names": tuple(names), "type": type(tensor), "context": context}
        geometry = {"size": tensor.size(), "stride": tensor.stride()}
        return self.synthesize(WRAP, parents, making | geometry, tensor, "op", None)

    def _exported(self, tensor: Tensor) -> tuple[Value, Layout | None] | None:
        """The value that was handed out and came back as this tensor, if it did: as a storage, from NumPy or by way of
        DLPack."""
        address = self.keeper.guard(tensor) if self.exports else None
        if address is None:
            return None
        if address in self.handed_out:
            return self.handed_out[address][::2]
        export = self.exports.get(tensor.data_ptr()) if lies_outside(tensor) else None
        if export is None or not self.keeper.is_there(export.address):
            return None
        self.mirrors[address] = (export.address, export.layout.offset if export.layout else 0)
        self.unversioned |= {address, export.address}
        return export.value, layout_of(tensor) if export.value.shape == tensor.shape else None

    def _kept_as(self, tensor: Tensor) -> tuple[Value, Layout | None] | None:
        """The value that is kept in the same memory: what a log inside the model has kept is a lazy copy as well."""
        if not shares_lazily(tensor):
            return None
        for value in reversed(self.trace.values):
            kept = value.kept
            if isinstance(kept, Tensor) and shares_lazily(kept) and data_address(kept) == data_address(tensor):
                return value, layout_of(kept)
        return None

    def is_back(self, tensor: Tensor) -> bool:
        """Does this tensor lie in memory that another one had handed out?"""
        return lies_outside(tensor) and self._exported(tensor) is not None

    def brought_in(self, tensor: Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """A tensor was made of data from outside torch. Returns the arguments, with the values that these are."""
        self.note_origin(tensor)
        found = [self._exported_array(argument, tensor) for argument in args] if self.exports else []
        if any(found):
            return tuple([value or argument for value, argument in zip(found, args, strict=True)])
        if self.origins is not None:
            self.origins.add_data(tensor, [*args, *kwargs.values()], bool(self.exports))
        return args

    def constructed(self, tensor: Tensor, data: Any) -> None:
        """`torch.Tensor(data)` was called, which no torch function mode sees, with data of Python's or NumPy's."""
        if self.origins is not None and not lies_outside(tensor):
            self.origins.add_made(tensor)
            self.origins.add_data(tensor, () if data is None else data, bool(self.exports))

    def _exported_array(self, array: Any, copy: Tensor) -> Value | None:
        """The value that was handed out as this array, of which `copy` was made, if it still is what it was."""
        if type(array).__module__ != "numpy" or not hasattr(array, "__array_interface__"):
            return None
        export = self.exports.get(array.__array_interface__["data"][0])
        if export is None or not self.keeper.is_there(export.address):
            return None
        return export.value if _differ(self._held(export.value), copy) is False else None

    def _plain_buffer(self, tensor: Tensor) -> Value | None:
        """As `_unknown`, in short, for a buffer that lies plainly and that nobody has written to: a batch norm uses
        two of them, and what was looked at before the run need not be again. None if it is no such buffer."""
        version, memory = self.plain_buffers.get(id(tensor), (UNVERSIONED, 0))
        if version == UNVERSIONED or tensor._version != version or memory in self.writes or self.mirrors:
            return None
        if self.exposed and not self.keeping:
            return None
        info, values = self.residents[id(tensor)][2], self.trace.values
        assert info.shape is not None
        facts, saved = (info.shape, info.dtype, info.device), tensor.clone() if self.keeping else None
        value = Value(len(values), "buffer", -1, None, info.address, facts, None, saved)
        values.append(value)
        if self.untold is not None:
            self.untold.append((value, tensor))
        entry = self.live[id(tensor)] = (ref(tensor), value, version)
        self.bound.append(entry)
        return value

    def _add_param(self, tensor: Tensor, info: TensorInfo, memory: int | None) -> Value:
        params = self.trace.params
        grad_fn = "" if info.trainable else None
        facts = (info.shape, info.dtype, info.device) if info.shape is not None else facts_of(tensor)
        value = Value(len(params), "param", -1, None, info.address, facts, grad_fn, tensor)
        params.append(value)
        self.param_values.setdefault(memory or 0, []).append(value)
        self.trace.param_versions.append(version_of(tensor))
        return value

    def _bind_param(self, tensor: Tensor, value: Value) -> None:
        self.live[id(tensor)] = entry = (ref(tensor), value, self.trace.param_versions[value.index])
        self.bound.append(entry)
        if type(tensor) is not Parameter:
            self._note_inner(tensor, value)

    def _unsettle(self, tensor: Tensor) -> None:
        """From now on look at this parameter as at any other tensor."""
        value = self.steady.pop(id(tensor), None)
        if value is not None:
            self._bind_param(tensor, value)

    def look_at_steady(self) -> None:
        """The forward pass is over: tell of parameters that were written to by something unseen."""
        for value in self.steady.values():
            if isinstance(value.kept, Tensor) and version_of(value.kept) != self.trace.param_versions[value.index]:
                self.trace.warnings.append(
                    f"the parameter {value.address} was overwritten by something that could not be seen; what used it "
                    "is logged with its first value"
                )


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


def _behaves_differently(tensor: Tensor) -> bool:
    """Is this tensor of a class that does something of its own when a torch function is called with it?"""
    override: Any = type(tensor).__torch_function__
    return type(tensor) is not Tensor and getattr(override, "__func__", _PLAIN_BEHAVIOUR) is not _PLAIN_BEHAVIOUR


def _node_of(tensor: Tensor) -> Any:
    """Where a tensor stands in the autograd graph; None for a leaf."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view made and overwritten without grad, of memory that requires it: torch won't say
        return None


def is_leaf(tensor: Tensor) -> bool:
    try:
        return tensor.is_leaf
    except RuntimeError:  # likewise
        return True


def own_memory(tensor: Tensor) -> int:
    """Cut `tensor` loose from its lazy copies; return where its memory is now, 0 if it has none."""
    try:
        return tensor.data_ptr()  # asking for the address to write to makes the memory its own
    except RuntimeError:
        return 0  # fake, sparse


def version_of(tensor: Tensor | None) -> int:
    """How often the memory of a tensor was written to, as far as that is counted."""
    try:
        return UNVERSIONED if tensor is None else tensor._version
    except RuntimeError:
        return UNVERSIONED


def _fills(saved: Tensor, memory: int) -> bool:
    """Is this all that there is in so many bytes of memory? They are negative if there is no memory of the plain kind,
    and then the tensor must not be asked for its own."""
    return memory >= 0 and saved.nbytes == memory


def _is_plain_here(tensor: Tensor) -> bool:
    """Does a tensor lie in torch's own memory, as it is?"""
    return is_plain(tensor) and not lies_outside(tensor)


def _index_of_write(write: _Write) -> int:
    return write.value.index


def _overlap(one: Layout | None, other: Layout | None) -> bool:
    """Do two layouts of the same memory have an element in common?"""
    if one is None or other is None or one.itemsize != other.itemsize:
        return True
    if one.end < other.offset or other.end < one.offset or 0 in one.size or 0 in other.size:
        return False
    for layout, within in ((one, other), (other, one)):
        if within.is_dense and (within.offset <= layout.offset <= within.end or layout.end <= within.end):
            return True  # its first or its last element
    touched = torch.zeros(max(one.end, other.end) + 1, dtype=torch.bool)
    one.of(touched).fill_(True)
    return bool(other.of(touched).any())


def _differ(saved: Tensor | None, tensor: Tensor) -> bool | None:
    """Is the tensor no longer what was saved? None if that can't be known."""
    try:
        if saved is None or saved.shape != tensor.shape or (saved.dtype, saved.device) != (tensor.dtype, tensor.device):
            return None
        now = tensor.detach()
        return not saved.equal(now) and not bool(((saved == now) | ((saved != saved) & (now != now))).all())
    except RuntimeError:
        return None  # sparse, fake, nested: not to be compared

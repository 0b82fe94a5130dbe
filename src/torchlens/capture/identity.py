"""Which value does this tensor hold?

Nothing is written on tensors. A table maps `id(tensor)` to a weak reference, the tensor's latest value and the version
of its memory. The weak reference guards against a reused id; the version tells when the memory was overwritten through
another tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import ref

from torch import Tensor
from torch.nn import Parameter

from .alias_index import AliasIndex
from .autograd_state import MOST_GRAD_FNS, is_leaf, node_of
from .exports import Exports
from .functions import ALIAS_UPDATE, Function
from .keeping import Keeper
from .model_tensors import ModelTensors, TensorsById
from .observer import Observer
from .origins import Origins
from .records import UNREAD, Facts, Trace, Value, argument_values, facts_of
from .tensor_memory import (
    UNVERSIONED,
    address_of,
    differ,
    inner_tensors,
    layout_of,
    lies_outside,
    memory_behind,
    overlap,
    own_memory,
    version_of,
)
from .unrecorded import value_of_unrecorded
from .writes import Write, Writes

#: Adds a call that no code made: (function, arguments, keyword arguments, tensor it explains, role, address).
Synthesize = Callable[[Function, tuple[Any, ...], Mapping[str, Any], Tensor, str, "str | None"], Value]

SHARED = -2  # the version of memory that code outside torch writes to as well, which counts nothing


class _Inner(NamedTuple):
    """A tensor that another one holds."""

    tensor: ref[Tensor]
    holder: Value
    name: str


class Identity:
    """Maps every tensor of a forward pass to its latest value."""

    __slots__ = (
        "_facts", "aliases", "below", "bound", "exports", "exposed", "foreign", "grad_fns_to_read", "inner", "keeper",
        "keeping", "live", "model_tensors", "observers", "origins", "shared", "synthesize", "trace", "unedited",
        "untold", "unversioned", "unwritten_params", "watchful", "writes",
    )  # fmt: skip

    def __init__(
        self,
        trace: Trace,
        tensors_by_id: TensorsById,
        keeper: Keeper,
        synthesize: Synthesize,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self.trace = trace
        self.keeping = trace.values_kept
        self.keeper, self.foreign = keeper, keeper.foreign
        self.observers = observers
        self.untold: list[tuple[Value, Tensor]] | None = [] if observers else None  # new values, to tell them of
        self.grad_fns_to_read = MOST_GRAD_FNS
        self.watchful = False  # versions do not suffice to see changes, or other modes are active
        self.synthesize = synthesize
        self.below = False  # at the dispatcher, where a tensor has no history yet
        self.live: dict[int, tuple[ref[Tensor], Value, int]] = {}
        self._facts: dict[Facts, Facts] = {}  # each once
        self.unversioned: set[int] = set()  # storages with an alias whose writes are not counted, such as x.data
        self.writes = Writes()
        self.exports = Exports(keeper, self.writes.mirrors, self.unversioned)
        self.exposed, self.shared = self.exports.exposed, self.exports.shared  # for quick access
        self.unedited: dict[int, tuple[ref[Tensor], Value]] = {}  # tensors whose value another one holds now
        self.origins: Origins | None = None  # of the tensors that no recorded call made
        self.inner: dict[int, _Inner] = {}  # tensors that wrapper tensors hold, by id and by storage
        self.aliases = AliasIndex()
        self.bound = self.aliases.pending  # every entry of `live` there ever was
        self.model_tensors = ModelTensors(tensors_by_id, trace, keeper)
        self.unwritten_params = self.model_tensors.unwritten_params  # moved to `live` when written to
        for tensor, value in self.model_tensors.other_params:
            self.bind_param(tensor, value)

    # ---- lookup ---------------------------------------------------------------------------------------------

    def value_of(self, tensor: Tensor) -> Value:
        """The value that `tensor` has now; a new one if it is unknown or was changed through another tensor."""
        entry = self.live.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return self._plain_buffer(tensor) or value_of_unrecorded(self, tensor)
        _, value, version = entry
        if version >= 0 and tensor._version != version:
            return self._changed(tensor, value)
        if version == SHARED and differ(self.exports.content(value), tensor):
            return self._changed(tensor, value)
        if (version < 0 or self.unversioned) and self.writes.since(value.index, tensor):
            return self._changed(tensor, value)
        if self.exposed and address_of(tensor) in self.exposed and differ(self.exports.content(value), tensor):
            return self._changed(tensor, value)
        return value

    def current(self, tensor: Tensor) -> Value | None:
        """The value last recorded for `tensor`, as it is."""
        entry = self.live.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else self.unwritten_params.get(id(tensor))

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
        """Record that `tensor` now holds a new value; `fresh` if nothing else shares its memory."""
        grad_fn = None
        if tensor.requires_grad:
            grad_fn = self.grad_fn_of(tensor)
        saved = facts = None
        if self.keeping:
            saved = self.keeper.keep(tensor, fresh)
        if saved is None:
            facts = self.facts_of(tensor)
        values = self.trace.values
        value = Value(len(values), role, call, position, address, facts, grad_fn, saved)
        values.append(value)
        if self.untold is not None:
            self.untold.append((value, tensor))
        if not self.keeping and (self.exposed or self.shared) and self.exports.may_change(tensor):
            self.exports.take_snapshot(tensor, value)
        self.bind(tensor, value)
        if type(tensor) is not Tensor:
            self._note_inner(tensor, value)
        return value

    def facts_of(self, tensor: Tensor) -> Facts:
        """Shape, type and device. Equal ones share one object: in a log without values, each value has such a tuple."""
        facts = facts_of(tensor)
        try:
            return self._facts.setdefault(facts, facts)
        except TypeError:  # a size is a symbol, which has no hash
            return facts

    def grad_fn_of(self, tensor: Tensor) -> str:
        if self.grad_fns_to_read <= 0:
            return "" if is_leaf(tensor) else UNREAD
        node = node_of(tensor)
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
        self.exports.add_from_outside(tensor)
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
        self.unwritten_params.pop(id(tensor), None)
        try:
            version = tensor._version
        except RuntimeError:
            version = UNVERSIONED
        if self.shared and address_of(tensor) in self.shared:
            version = SHARED
        entry = self.live[id(tensor)] = (ref(tensor), value, version)
        self.bound.append(entry)

    # ---- replacing ------------------------------------------------------------------------------------------

    def forget(self, tensor: Tensor, value: Value) -> None:
        """Another tensor will hold `value`: this one goes back to the value it had before, or counts as unedited."""
        before = self._returned_argument(tensor, value)
        if before is not None:
            self.bind(tensor, before)
        else:
            del self.live[id(tensor)]
            self.unedited[id(tensor)] = (ref(tensor), value)

    def _returned_argument(self, tensor: Tensor, value: Value) -> Value | None:
        """Some functions return their argument: what `tensor` held when it was given to the call that made `value`."""
        if value.call < 0 or self.trace.calls[value.call].function.fresh:
            return None
        given = [argument for _, argument in argument_values(self.trace.calls[value.call])]
        held = (earlier for earlier in self.aliases.values_of(tensor) if earlier in given)
        return next((param for param in given if param.role == "param" and param.kept is tensor), next(held, None))

    def keep_again(self, value: Value, tensor: Tensor) -> None:
        """A value is held by another tensor now."""
        value.grad_fn = self.grad_fn_of(tensor) if tensor.requires_grad else None
        value._facts = None
        if self.keeping:
            value.saved = self.keeper.keep(tensor)
        if not self.keeping or value.kept is None:
            value._facts = facts_of(tensor)

    # ---- memory that is handed out --------------------------------------------------------------------------

    def before_memory_access(self, function: Function, tensor: Any) -> None:
        """A call is about to hand out the memory of `tensor`, or to read more of it than `tensor` covers."""
        if function.reaches_beyond and isinstance(tensor, Tensor):
            self._keep_with_all_memory(tensor)
        else:
            self.expose(tensor)

    def _keep_with_all_memory(self, tensor: Tensor) -> None:
        """Keep the value of `tensor` as a part of a copy of all the memory behind it."""
        value, layout = self.value_of(tensor), layout_of(tensor)
        if value.saved is None or value.role == "param" or layout is None or tensor.is_conj() or tensor.is_neg():
            return
        memory = tensor.detach().as_strided((memory_behind(tensor) // layout.itemsize,), (1,), 0)
        value.saved = layout.of(memory.clone())

    def expose(self, tensor: Any) -> None:
        """The memory of `tensor` is about to be handed out."""
        address = self.keeper.guard(tensor) if isinstance(tensor, Tensor) else None
        if address is not None:
            for observer in self.observers:
                observer.before_write(tensor)
            self.exports.add(tensor, value := self.value_of(tensor), address)
            if not self.keeping:
                self.exports.take_snapshot(tensor, value)
            self.watchful = True

    def brought_in(self, tensor: Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """A tensor was made of data from outside torch. Returns the arguments, with the values that these are."""
        self.exports.add_from_outside(tensor)
        known = bool(self.exports.by_pointer)
        found = [self.exports.find_array(argument, tensor) for argument in args] if known else []
        if any(found):
            return tuple([value or argument for value, argument in zip(found, args, strict=True)])
        if self.origins is not None:
            self.origins.add_data(tensor, [*args, *kwargs.values()], known)
        return args

    def is_back(self, tensor: Tensor) -> bool:
        """Does this tensor lie in memory that another one had handed out?"""
        return lies_outside(tensor) and self.exports.find(tensor) is not None

    def constructed(self, tensor: Tensor, data: Any) -> None:
        """`torch.Tensor(data)` was called, which no torch function mode sees, with data of Python's or NumPy's."""
        if self.origins is not None and not lies_outside(tensor):
            self.origins.add_made(tensor)
            self.origins.add_data(tensor, () if data is None else data, bool(self.exports.by_pointer))

    def adopt(self, tensor: Tensor) -> None:
        """`tensor` was given the memory of a storage: that of another tensor, a copy of it, or data from elsewhere."""
        self.unwritten_params.pop(id(tensor), None)
        self.live.pop(id(tensor), None)
        if address_of(tensor) in self.exports.by_storage:
            self.note_alias(tensor)
            self.value_of(tensor)
        elif (value := self.exports.find_equal(tensor)) is not None:
            self.bind(tensor, value)
        elif self.origins is not None:
            self.origins.add_made(tensor)
            self.origins.add_data(tensor, None, bool(self.exports.by_pointer))

    # ---- writes ---------------------------------------------------------------------------------------------

    def before_write(self, tensor: Tensor) -> int | None:
        """A call is about to overwrite `tensor`. Returns the address of its storage."""
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
        for param in self.model_tensors.params_by_storage.pop(address or 0, ()):  # kept as they are, until they change
            if isinstance(param.kept, Tensor):
                self.track_param(param.kept)
            param.saved = param.saved.detach().clone() if param.saved is not None and self.keeping else None
            self.trace.param_versions[param.index] = version_of(param.saved)
        return address

    def after_write(self, tensor: Tensor, value: Value, reshapes: bool, address: int | None = None) -> None:
        """A call has overwritten `tensor`, which lies in this storage, if that is known; its value is now `value`."""
        self.writes.add(tensor, value, reshapes, address)
        entry = self.live.get(id(tensor)) if self.below else None
        if entry is not None and entry[2] >= 0:  # torch counts a write when the dispatcher is done with it
            self.live[id(tensor)] = (entry[0], value, entry[2] + 1)

    def before_swap(self, one: Tensor, other: Tensor) -> None:
        """`torch.utils.swap_tensors` is about to exchange two tensors."""
        for tensor in (one, other):
            self.value_of(tensor)
            self.before_write(tensor)

    def after_swap(self, one: Tensor, other: Tensor) -> None:
        first, second = self.current(one), self.current(other)
        assert first is not None and second is not None
        self.bind(one, second)
        self.bind(other, first)

    def look_again(self, tensor: Tensor) -> None:
        """Code that is not recorded may have written to `tensor`."""
        value = self.current(tensor)
        if value is not None and value.role != "param" and differ(self.exports.content(value), tensor):
            self._changed(tensor, value)

    def may_differ(self, tensor: Tensor, value: Value) -> bool:
        """Does `tensor` hold something else than `value`? True as well if they can't be compared."""
        return differ(self.exports.content(value), tensor) is not False

    def role_after_write(self, old: Value) -> str:
        """A buffer stays a buffer when it is overwritten."""
        return "update" if old.address in self.model_tensors.buffer_addresses else "op"

    def note_alias(self, tensor: Tensor) -> None:
        """`tensor.data` was read or assigned, or `set_` was called: writes through the other tensor are not counted."""
        address = self.keeper.guard(tensor)
        if address is not None:
            self.unversioned.add(address)
            self.watchful = True

    def _changed(self, tensor: Tensor, value: Value) -> Value:
        """The memory of `tensor` may have been overwritten through another tensor since `value` was recorded."""
        writes = self.writes.since(value.index, tensor)
        _, layout = self.writes.location(tensor)
        over = [write for write in writes if not write.reshapes and overlap(write.layout, layout)]
        if not over:
            # Either the write was elsewhere in the same memory, or none was seen: then only the value can tell.
            elsewhere = writes and not self.exports.may_change(tensor)
            if elsewhere or differ(self.exports.content(value), tensor) is False:
                self.bind(tensor, value)
                return value
            self.trace.warnings.append(
                f"a tensor of shape {tuple(value.shape)} was overwritten by code that can't be observed; "
                "its new value is logged as 'aliasupdate', without the operation that wrote it"
            )
        return self.update(tensor, value, over)

    def update(self, tensor: Tensor, value: Value, writes: list[Write]) -> Value:
        """Record the value that `tensor` has after these writes through other tensors."""
        layouts = {"layouts": (self.writes.location(tensor)[1], *(write.layout for write in writes))}
        parents = (value, *(write.value for write in writes))
        role = self.role_after_write(value)
        return self.synthesize(ALIAS_UPDATE, parents, layouts, tensor, role, value.address)

    # ---- parameters and buffers of the model ----------------------------------------------------------------

    def _plain_buffer(self, tensor: Tensor) -> Value | None:
        """A shortcut for `value_of_unrecorded`, for buffers in plain memory that have not been written to; else None.

        Each batch norm uses two of them, and their memory was examined before the run.
        """
        version, storage = self.model_tensors.plain_buffers.get(id(tensor), (UNVERSIONED, 0))
        if version == UNVERSIONED or tensor._version != version:
            return None
        if storage in self.writes.by_storage or self.writes.mirrors or (self.exposed and not self.keeping):
            return None
        info, values = self.model_tensors.by_id.buffers[id(tensor)][1], self.trace.values
        assert info.shape is not None
        facts, saved = (info.shape, info.dtype, info.device), tensor.clone() if self.keeping else None
        value = Value(len(values), "buffer", -1, None, info.address, facts, None, saved)
        values.append(value)
        if self.untold is not None:
            self.untold.append((value, tensor))
        entry = self.live[id(tensor)] = (ref(tensor), value, version)
        self.bound.append(entry)
        return value

    def bind_param(self, tensor: Tensor, value: Value) -> None:
        self.live[id(tensor)] = entry = (ref(tensor), value, self.trace.param_versions[value.index])
        self.bound.append(entry)
        if type(tensor) is not Parameter:
            self._note_inner(tensor, value)

    def track_param(self, tensor: Tensor) -> None:
        """From now on compare this parameter's version at each use, as any other tensor's."""
        value = self.unwritten_params.pop(id(tensor), None)
        if value is not None:
            self.bind_param(tensor, value)


def _fills(saved: Tensor, memory: int) -> bool:
    """Is this all that there is in so many bytes of memory? They are negative if there is no memory of the plain kind,
    and then the tensor must not be asked for its own."""
    return memory >= 0 and saved.nbytes == memory

"""The value of a tensor that no recorded call has made: the model's own, an alias, a part of another, or a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from .._torch import UninitializedTensorMixin, data_address, shares_lazily
from .autograd_state import node_of
from .functions import IMPLICIT_VIEW, UNEDITED, UNWRAP, WRAP
from .model_tensors import uninitialized_param
from .records import NO_KWARGS, MemoryLayout, Value
from .tensor_memory import address_of, covers, inner_tensors, layout_of, overlap

if TYPE_CHECKING:
    from .identity import Identity

#: What a tensor does when a torch function is called with it; a parameter turns it off, and has no function there.
_PLAIN_BEHAVIOUR = Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


def value_of_unrecorded(identity: Identity, tensor: Tensor) -> Value:
    """The value of a tensor that has none yet: of the model's own, an alias of a known one, or a source."""
    if id(tensor) in identity.unwritten_params:
        identity.track_param(tensor)
        return identity.value_of(tensor)
    reference, edited = identity.unedited.get(id(tensor), (None, None))
    if reference is not None and reference() is tensor:
        return identity.synthesize(UNEDITED, (edited,), NO_KWARGS, tensor, "op", None)
    if isinstance(tensor, UninitializedTensorMixin):
        return uninitialized_param(tensor)
    if any(id(tensor) in tensors for tensors in identity.model_tensors.by_id):
        return _first_use(identity, tensor)
    for param in list(identity.unwritten_params.values()):  # what this may share memory with
        assert isinstance(param.kept, Tensor)
        identity.track_param(param.kept)
    return _aliased(identity, tensor) or _contained(identity, tensor) or _source(identity, tensor)


def _first_use(identity: Identity, tensor: Tensor) -> Value:
    """The value of a parameter or buffer of the model that is used for the first time."""
    params, buffers = identity.model_tensors.by_id
    if id(tensor) in params:  # made by a lazy module just now; all others are known from the start
        value = identity.model_tensors.add_param(tensor, params[id(tensor)][1])
        identity.bind_param(tensor, value)
    else:
        info = buffers[id(tensor)][1]
        identity.exports.add_from_outside(tensor)
        value = identity.new_value(tensor, "buffer", address=info.address)
    writes = identity.writes.since(-1, tensor) if identity.writes.by_storage else []
    if not writes:
        return value
    # Another tensor in the same memory may have been written to before this one is first used.
    _, layout = identity.writes.location(tensor)
    over = [write for write in writes if overlap(write.layout, layout)]
    return identity.update(tensor, value, over) if over else value


def _rewritten(identity: Identity, tensor: Tensor, base: Value) -> tuple[Value, MemoryLayout] | None:
    """What was written last where `tensor` lies, if after `base`: torch may have been told not to count that write."""
    _, layout = identity.writes.location(tensor)
    if not identity.writes.by_storage or layout is None or base.role == "param":
        return None
    for write in reversed(identity.writes.since(base.index, tensor)):
        if write.layout is not None and covers(write.layout, layout):
            return write.value, write.layout
    return None


def _aliased(identity: Identity, tensor: Tensor) -> Value | None:
    """The value of a tensor that shares memory with a known one."""
    base, layout = (
        identity.aliases.find(tensor) or identity.exports.find(tensor) or _kept_as(identity, tensor) or (None, None)
    )
    if base is None:
        return None
    base, layout = _rewritten(identity, tensor, base) or (base, layout)
    same = layout == layout_of(tensor) is not None and not _behaves_differently(tensor)
    if same and base.dtype == tensor.dtype:
        identity.bind(tensor, base)
        return identity.value_of(tensor)
    layouts = {"layouts": (layout_of(tensor), layout)}
    return identity.synthesize(IMPLICIT_VIEW, (base,), layouts, tensor, "op", None)


def _contained(identity: Identity, tensor: Tensor) -> Value | None:
    """The value of a tensor that wraps other tensors, or that a known wrapper holds."""
    if inner_tensors(tensor):
        return _wrapped(identity, tensor)
    memory = address_of(tensor)
    inner = identity.inner.get(id(tensor)) or identity.inner.get(memory or 0)
    known = inner and inner.tensor()
    if inner and known is not None and (known is tensor or address_of(known) == memory is not None):
        value = identity.synthesize(UNWRAP, (inner.holder,), {"attribute": inner.name}, known, "op", None)
        return value if known is tensor else value_of_unrecorded(identity, tensor)
    return None


def _source(identity: Identity, tensor: Tensor) -> Value:
    """The value of a tensor that nothing recorded has made."""
    history = node_of(tensor) is not None
    if identity.origins is not None and (
        history or not identity.below
    ):  # constants of compiled code show themselves below
        identity.origins.add_used(tensor, bool(identity.exports.by_pointer), history)
    identity.keeper.mark_foreign(tensor)
    identity.exports.add_from_outside(tensor)
    return identity.new_value(tensor, "source")


def _wrapped(identity: Identity, tensor: Tensor) -> Value:
    """The value of a tensor that was made of others and holds them."""
    names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    held = [getattr(tensor, name) for name in names]
    parents = tuple([identity.value_of(inner) if isinstance(inner, Tensor) else inner for inner in held])
    making = {"names": tuple(names), "type": type(tensor), "context": context}
    geometry = {"size": tensor.size(), "stride": tensor.stride()}
    return identity.synthesize(WRAP, parents, making | geometry, tensor, "op", None)


def _kept_as(identity: Identity, tensor: Tensor) -> tuple[Value, MemoryLayout | None] | None:
    """The value that is kept in the same memory: what a log inside the model has kept is a lazy copy as well."""
    if not shares_lazily(tensor):
        return None
    for value in reversed(identity.trace.values):
        kept = value.kept
        if isinstance(kept, Tensor) and shares_lazily(kept) and data_address(kept) == data_address(tensor):
            return value, layout_of(kept)
    return None


def _behaves_differently(tensor: Tensor) -> bool:
    """Is this tensor of a class that does something of its own when a torch function is called with it?"""
    override: Any = type(tensor).__torch_function__
    return type(tensor) is not Tensor and getattr(override, "__func__", _PLAIN_BEHAVIOUR) is not _PLAIN_BEHAVIOUR

"""Functions that take one more dimension as they are, or nearly: quicker than in `torch.vmap`, attention and linear by
far.

All others go through `torch.vmap`, so what is here needs to be neither complete nor clever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter, functional

from .._torch import any_autocast
from ..capture.containers import rebuild
from ..capture.records import Call, Value

Logged = Callable[[Value], "Tensor | None"]


class _NotHere(Exception):
    """A call that `torch.vmap` is to compute."""


def computed_at_once(call: Call, stacked: Mapping[Value, Tensor], logged: Logged) -> list[Tensor] | None:
    """What a call gives for all cells, if there is a simple way to it. `stacked` are the arguments that differ among
    them, with one more dimension, the first."""
    function = call.function
    compute = _FUNCTIONS.get(function.name)
    if compute is None or call.written or function.foreign or function.func is None or call.rng is not None:
        return None
    if call.state[2] or any_autocast() or not all(_is_plain(tensor) for tensor in stacked.values()):
        return None
    try:
        found = compute(_Given(call, stacked, logged))
    except (_NotHere, RuntimeError, TypeError, ValueError, IndexError):
        return None  # one more dimension may be too many: `memory_format=torch.channels_last`
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, Parameter) and tensor.layout is torch.strided


class _Given:
    """A call, and how to come by its tensors."""

    def __init__(self, call: Call, stacked: Mapping[Value, Tensor], logged: Logged) -> None:
        self.call, self.func, self.stacked, self.logged = call, call.function.func, stacked, logged

    def tensor(self, value: Value) -> Tensor:
        found = self.stacked.get(value)
        if found is None:
            found = self.logged(value)
            if found is None or not _is_plain(found):
                raise _NotHere
        return found

    def restored(self, argument: Any) -> Any:
        return self.tensor(argument) if isinstance(argument, Value) else rebuild(argument, self.restored)

    @property
    def first(self) -> Tensor:
        """The first argument, which must be the only one that is stacked."""
        args = self.call.args
        if not args or self.stacked.keys() != {args[0]}:
            raise _NotHere
        return self.stacked[args[0]]

    def named(self, *names: str) -> dict[str, Any]:
        """The arguments by their names."""
        given = dict(zip(names, self.call.args, strict=False), **self.call.kwargs)
        if len(self.call.args) > len(names) or not given.keys() <= set(names):
            raise _NotHere
        return given


def _as_it_is(given: _Given) -> Any:
    """It does the same wherever in its first argument: only the last dimensions mean something to it, or none."""
    rest = [given.restored(argument) for argument in given.call.args[1:]]
    return given.func(given.first, *rest, **given.restored(dict(given.call.kwargs)))


def _element_by_element(given: _Given) -> Any:
    """Its arguments are broadcast: cells must stay in front of all other dimensions."""
    values = [argument for argument in given.call.args if isinstance(argument, Value)]
    rank = max([len(value.shape) for value in values], default=0)
    if given.call.kwargs or not all(
        value.shape for value in given.stacked
    ):  # numbers in tensors have types of less weight
        raise _NotHere

    def aligned(argument: Any) -> Any:
        if argument not in given.stacked:
            return given.tensor(argument)
        tensor = given.stacked[argument]
        return tensor.reshape(len(tensor), *[1] * (rank + 1 - tensor.dim()), *tensor.shape[1:])

    return given.func(*[aligned(each) if isinstance(each, Value) else each for each in given.call.args])


def _along(dims: tuple[str, ...], names: tuple[str, ...], given: _Given) -> Any:
    """Some of its arguments are dimensions, which may be counted from the front."""
    tensor, named = given.first, given.named("", *names)
    if not named.keys() >= set(dims) or not all(type(named[dim]) is int for dim in dims):
        raise _NotHere
    shifted = {name: each + 1 if name in dims and each >= 0 else each for name, each in named.items() if name}
    return given.func(tensor, **shifted)


def _in_another_shape(given: _Given) -> Any:
    tensor, (_, *sizes) = given.first, given.call.args
    sizes = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if given.call.kwargs or not all(type(size) is int for size in sizes):
        raise _NotHere
    return given.func(tensor, (len(tensor), *sizes))


def _permuted(given: _Given) -> Any:
    tensor, (_, *dims) = given.first, given.call.args
    dims = list(dims[0]) if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    if given.call.kwargs or not all(type(dim) is int for dim in dims):
        raise _NotHere
    return tensor.permute(0, *[dim + 1 if dim >= 0 else dim for dim in dims])


def _attention(given: _Given) -> Tensor:
    """The cells become part of the batch."""
    named = given.named("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    values, mask = [named.pop(name) for name in ("query", "key", "value")], named.pop("attn_mask", None)
    cells, samples = len(next(iter(given.stacked.values()))), values[0].shape[0]
    of_four = all(len(value.shape) == 4 and value.shape[0] == samples for value in values)
    if not of_four or named.pop("dropout_p", 0.0):
        raise _NotHere

    def folded(value: Value) -> Tensor:
        tensor = given.tensor(value)
        return (tensor if value in given.stacked else tensor.expand(cells, *tensor.shape)).flatten(0, 1)

    if mask is not None:
        as_many = len(mask.shape) == 4 and mask.shape[0] == samples
        if not as_many and (mask in given.stacked or len(mask.shape) > 3):
            raise _NotHere
        mask = folded(mask) if as_many else given.tensor(mask)
    query, key, value = map(folded, values)
    found = functional.scaled_dot_product_attention(query, key, value, mask, **named)
    return found.reshape(cells, samples, *found.shape[1:])


_AS_THEY_ARE = "linear layer_norm rms_norm gelu relu silu sigmoid tanh exp neg reciprocal contiguous clone"
_BROADCAST = "add sub rsub mul div"

_FUNCTIONS: dict[str, Callable[[_Given], Any]] = {
    **dict.fromkeys(_AS_THEY_ARE.split(), _as_it_is),
    **dict.fromkeys(_BROADCAST.split(), _element_by_element),
    "transpose": partial(_along, ("dim0", "dim1"), ("dim0", "dim1")),
    "chunk": partial(_along, ("dim",), ("chunks", "dim")),
    "view": _in_another_shape,
    "reshape": _in_another_shape,
    "permute": _permuted,
    "scaled_dot_product_attention": _attention,
}

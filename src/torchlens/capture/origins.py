"""Where do tensors come from that no recorded call made?

A constant that existed before the forward pass, and data brought in from Python or NumPy, are true sources. A
tensor that was made during the forward pass in any other way was computed by something that capture can't see, such as
a thread of another library: everything that is logged from there on is right, but what went before is missing.

The garbage collector tells which objects are new. While a capture runs it collects only its youngest
objects, and puts those that are left at the end of its middle generation (surroundings.py). A marker at the end of that
generation, put there when the pass begins, divides what was there before from what came later. It is looked for only if
a tensor of unknown origin turned up.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import chain
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from .dispatcher import UnknownTensor, user_line
from .records import Trace, facts_of
from .tensor_memory import lies_outside, memory_behind

UNSEEN = "was computed by code that can't be observed (a compiled extension, a thread of another library)"
OUTSIDE = "came from outside torch after a tensor was handed out: what was computed there is not logged"
NUMBERS = "was made of numbers that had been read from tensors: what was computed from them is not logged"
BEFORE = "was computed before the forward pass, from tensors that require a gradient"

#: How many bytes may be kept alive only because the origin of a tensor is not known yet.
_MOST_HELD = 64 * 2**20

#: Numbers for which Python has only one object each.
_SMALL_INTEGERS = range(-5, 257)

#: The legacy constructors, whose calls no mode sees, by the dtype they make.
_CONSTRUCTORS = {
    torch.bfloat16: "BFloat16Tensor", torch.bool: "BoolTensor", torch.float16: "HalfTensor",
    torch.float32: "FloatTensor", torch.float64: "DoubleTensor", torch.int8: "CharTensor", torch.int16: "ShortTensor",
    torch.int32: "IntTensor", torch.int64: "LongTensor", torch.uint8: "ByteTensor",
}  # fmt: skip


#: A function that runs, and the names that are global to it.
_Running = tuple[CodeType, dict[str, Any]]


class _Used(NamedTuple):
    """A tensor of unknown origin that an operation used."""

    tensor: Tensor
    handed_out: bool  # had any tensor been handed out of torch before?
    history: bool  # does autograd know where it comes from?
    where: tuple[str, int]
    running: list[_Running]


class Origins:
    """Finds out which tensors of unknown origin are true sources, and warns of the others."""

    def __init__(self) -> None:
        self._made: dict[int, ref[Tensor]] = {}  # from Python's data, by id
        self._numbers: dict[int, float] = {}  # that were read from tensors, by id
        self._used: list[_Used] = []
        self._held = 0  # bytes of memory behind them
        self._marker: list[Any] = []
        self._new: set[int] = set()  # tensors that came to be before the last collection, by id
        self._found: dict[UnknownTensor, None] = {}  # each once
        self._constructing: dict[tuple[str, CodeType], bool] = {}  # does a function, or one that it calls, name this?

    # ---- a change: the garbage collector tells of its collections ---------------------------------------------

    @property
    def key(self) -> tuple[str, int]:
        return "collections", id(self)

    def make(self) -> None:
        """Every tensor made from now on counts as new."""
        if self._before_collection not in gc.callbacks:
            gc.collect(0)
            self._marker = []
            gc.collect(0)  # it alone
            gc.callbacks.append(self._before_collection)

    def undo(self) -> None:
        if self._before_collection in gc.callbacks:
            gc.callbacks.remove(self._before_collection)

    def _before_collection(self, phase: str, info: dict[str, int]) -> None:
        """The garbage collector may be about to mix the middle generation with older objects."""
        if phase == "start" and info["generation"] > 0:
            self._new = self._new_tensors()

    # ---- what turns up ----------------------------------------------------------------------------------------

    def add_made(self, tensor: Tensor) -> None:
        self._made[id(tensor)] = ref(tensor)

    def is_made(self, tensor: Tensor) -> bool:
        reference = self._made.get(id(tensor))
        return reference is not None and reference() is tensor

    def add_numbers(self, read: Any) -> None:
        """These numbers were read from a tensor."""
        for number in _leaves(read):
            if type(number) is float or (type(number) is int and number not in _SMALL_INTEGERS):
                self._numbers[id(number)] = number

    def add_data(self, tensor: Tensor, data: Any, handed_out: bool) -> None:
        """A tensor was made of these data; None for a storage."""
        numbers = self._numbers
        leaves = list(_leaves(data)) if numbers or handed_out else []
        if handed_out and (data is None or any(type(leaf).__module__ == "numpy" for leaf in leaves)):
            self._add(tensor, OUTSIDE)
        elif any(numbers.get(id(leaf), leaves) is leaf for leaf in leaves):
            self._add(tensor, NUMBERS)

    def add_used(self, tensor: Tensor, handed_out: bool, history: bool) -> None:
        """An operation used this tensor of unknown origin."""
        self._used.append(_Used(tensor, handed_out, history, user_line(), _running()))
        self._held += max(memory_behind(tensor), 0)
        if self._held > _MOST_HELD:
            self._judge()

    def report(self, trace: Trace) -> None:
        """Warn about tensors of unknown origin. The forward pass is over."""
        self._judge()
        for unknown in self._found:
            trace.warnings.append(f"{unknown}; it is logged as a 'source'")
            if trace.completeness is not None and BEFORE not in unknown.why:
                trace.completeness.unknown.append(unknown)

    def _add(self, tensor: Tensor, why: str) -> None:
        self._found[UnknownTensor(tuple(facts_of(tensor)[0]), *user_line(), why)] = None

    def _judge(self) -> None:
        """Find out which of the tensors in question are new."""
        used, self._used, self._held = self._used, [], 0
        new = self._new_tensors() if used else set()
        for each in used:
            why = self._why(each, id(each.tensor) in new)
            if why is not None:
                self._found[UnknownTensor(tuple(facts_of(each.tensor)[0]), *each.where, why)] = None

    def _why(self, used: _Used, is_new: bool) -> str | None:
        """What to say about a tensor that an operation used; None if it is a true source."""
        if used.history:
            return UNSEEN if is_new else BEFORE
        if is_new and lies_outside(used.tensor):
            return OUTSIDE if used.handed_out else None
        by_right = not is_new or self.is_made(used.tensor) or self._may_be_constructed(used)
        return None if by_right else UNSEEN

    def _may_be_constructed(self, used: _Used) -> bool:
        """Does a function that ran when a tensor was first used, or one that it calls, have a constructor that makes
        such tensors?"""
        name = _CONSTRUCTORS.get(used.tensor.dtype)
        return name is not None and any(self._names(name, code, others) for code, others in used.running)

    def _names(self, name: str, code: CodeType, others: dict[str, Any]) -> bool:
        if (name, code) not in self._constructing:
            self._constructing[name, code] = any(name in near.co_names for near in _near(code, others))
        return self._constructing[name, code]

    def _new_tensors(self) -> set[int]:
        """The ids of the tensors that were made in this pass. No older tensor can have such an id while it lives."""
        middle = gc.get_objects(generation=1)
        begin = next((place for place, thing in enumerate(middle) if thing is self._marker), 0)
        new = chain(middle[begin:], gc.get_objects(generation=0))
        return self._new | {id(thing) for thing in new if issubclass(type(thing), Tensor)}


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, (list, tuple)):
        for member in data:
            yield from _leaves(member)
    else:
        yield data


def _running() -> list[_Running]:
    """The functions that run in the forward pass."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_globals))
        frame = frame.f_back
    return found


def _near(code: CodeType, names: dict[str, Any]) -> Iterator[CodeType]:
    """A function and those that it calls by name, methods among them."""
    yield code
    for name in code.co_names:
        candidates = [names.get(name), *(vars(kind).get(name) for kind in names.values() if isinstance(kind, type))]
        yield from (function.__code__ for function in candidates if isinstance(function, FunctionType))

"""What a forward pass leaves behind: flat records without behaviour.

Capture appends to these lists and does nothing else; all meaning is added later, from them alone. Records refer
to each other by position (`Value.call` is an index into `Trace.calls`), so there are no reference cycles and
a log is freed the moment it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .._torch import neg_view
from ..errors import BundleError

if TYPE_CHECKING:
    from .dispatcher import Completeness
    from .following import Connections
    from .functions import Function
    from .gradients import Gradients

#: Frames from the call outwards to the module call it ran in, flattened: code, instruction, code, instruction, ...
Site = tuple[Any, ...]

#: Shape, type and device of a tensor.
Facts = tuple[torch.Size, torch.dtype, torch.device]


def facts_of(tensor: Tensor) -> Facts:
    try:
        shape = tensor.shape
    except RuntimeError:  # a nested tensor: so many tensors, of sizes that differ
        shape = torch.Size((tensor.size(0), *[-1] * (tensor.dim() - 1)))
    return shape, tensor.dtype, tensor.device


#: The name of a grad_fn that was not looked at.
UNREAD = "?"

NO_KWARGS: Mapping[str, Any] = {}


class MemoryLayout(NamedTuple):
    """How a tensor lies in its memory."""

    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    itemsize: int
    conj: bool  # the conjugate of what lies there; of a real type, the negative

    @property
    def end(self) -> int:
        """The last element it touches."""
        return self.offset + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))

    @property
    def is_dense(self) -> bool:
        """Does it touch every element from the first to the last, each once?"""
        count = 1
        for step, n in sorted(zip(self.stride, self.size, strict=True)):
            if n != 1 and step != count:
                return False
            count *= n
        return True

    def of(self, memory: Tensor) -> Tensor:
        """The part of a flat piece of memory that lies so."""
        view = memory.as_strided(self.size, self.stride, self.offset)
        if not self.conj:
            return view
        return view.conj() if memory.is_complex() else neg_view(view) if memory.is_floating_point() else view


class Stored:
    """A tensor that is kept elsewhere, such as in a file."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        raise NotImplementedError

    def read(self) -> Tensor:
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Stored:
        return self  # what is in a file does not change


def fetched(kept: Any) -> Any:
    """The tensor itself, if it is kept elsewhere; anything else as it is."""
    return kept.read() if isinstance(kept, Stored) else kept


_NUMBERS = {int}


class Value:
    """One tensor at one moment of the forward pass. Every value but a parameter is an entry of the log.

    `role` says where it comes from: "input", "buffer", "param" and "source" (a tensor that no recorded call made,
    such as a constant kept on a module) have no call; "op" is what a call returned or wrote into, "update" a buffer
    that a call wrote into without returning it, "output" a tensor that the model returned.
    """

    __slots__ = ("_facts", "address", "call", "grad_fn", "index", "kept", "position", "role", "transformed")

    def __init__(
        self,
        index: int,
        role: str,
        call: int,
        position: int | None,
        address: str | None,
        facts: Facts | None,
        grad_fn: str | None,
        kept: Tensor | Stored | None,
    ) -> None:
        self.index = index  # index in Trace.values (of a parameter: in Trace.params)
        self.role = role
        self.call = call  # index in Trace.calls, -1 for none
        self.position = position  # position in the tuple or list that the call returned
        self.address = address  # of a buffer or parameter, in the model; of an input or output, in its container
        self._facts = facts  # shape, type and device; None if the saved tensor can tell
        self.grad_fn = grad_fn  # class name, or UNREAD; "" for a leaf that requires grad; None when none is required
        self.kept = kept
        self.transformed: Any = None  # what the user's function made of it

    @property
    def saved(self) -> Tensor | None:
        """The tensor, fetched if it is kept elsewhere; None if it is not kept."""
        tensor: Tensor | None = fetched(self.kept)
        return tensor

    @saved.setter
    def saved(self, tensor: Tensor | None) -> None:
        self.kept = tensor

    @property
    def facts(self) -> Facts:
        """Shape, type and device."""
        if self._facts is None:
            assert isinstance(self.kept, Tensor)
            self._facts = facts_of(self.kept)
        return self._facts

    @property
    def shape_and_type(self) -> tuple[torch.Size, torch.dtype]:
        """Asked of the saved tensor, if that is as it was; for prints: the device would take longest to look up."""
        if self._facts is None:
            try:
                return self.kept.shape, self.kept.dtype  # type: ignore[union-attr]
            except RuntimeError:  # a nested tensor
                pass
        return self.facts[:2]

    @property
    def shape(self) -> torch.Size:
        return self.facts[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.facts[1]

    @property
    def device(self) -> torch.device:
        return self.facts[2]

    @property
    def nbytes(self) -> int:
        """Elements times their size; 0 for a nested tensor that was not saved, whose shape does not tell."""
        kept = self.kept
        if isinstance(kept, Tensor) and (self._facts is None or kept.is_nested):
            return kept.numel() * kept.element_size()
        shape, dtype, _ = self.facts
        if not has_numbers(shape):
            return kept.nbytes if isinstance(kept, Stored) else 0
        return shape.numel() * dtype.itemsize

    def __repr__(self) -> str:
        return f"Value({self.role} {self.index}, shape={tuple(self.shape)})"


def has_numbers(shape: torch.Size) -> bool:
    """Are all of its sizes numbers? Of a nested tensor some are -1, of a jagged one a symbol."""
    return -1 not in shape and _NUMBERS.issuperset(map(type, shape))


def total_nbytes(values: Iterable[Value]) -> int:
    """The bytes of all of them, asked of the tensors themselves where these are as they were."""
    values = list(values)
    try:
        return sum([value.kept.nbytes if value._facts is None else value.nbytes for value in values])  # type: ignore
    except RuntimeError:  # a sparse tensor does not tell
        return sum([value.nbytes for value in values])


def distinct_shapes(values: Iterable[Value]) -> list[torch.Size]:
    """Each shape that one of them has, once; all of them where shapes have symbols for sizes, or are not known."""
    values = list(values)
    try:
        return list({value.kept.shape if value._facts is None else value.shape for value in values})  # type: ignore
    except (RuntimeError, TypeError):
        return [value.shape for value in values]


#: Placeholder for a tensor without a record, such as a constant among the results of a module.
NOT_RECORDED = Value(-1, "param", -1, None, None, (torch.Size(()), torch.float32, torch.device("cpu")), None, None)


class Call(NamedTuple):
    """One torch call: what was called, on which values, what came out, where and when."""

    function: Function
    args: tuple[Any, ...]  # as called, with values in place of tensors
    kwargs: Mapping[str, Any]
    outputs: tuple[Value, ...]  # returned tensors, then those written but not returned
    written: tuple[Value, ...]  # the values, among the arguments, that the call overwrote
    module_call: int  # index in Trace.module_calls
    site: Site
    time: int  # nanoseconds
    rng: Tensor | Stored | None  # the generator's state before the call, if it draws random numbers
    state: tuple[Any, ...]  # (grad enabled, inference mode, autocast)

    def __repr__(self) -> str:
        return f"Call({self.function.name} -> {list(self.outputs)})"


class ModuleCall:
    """One execution of a module."""

    __slots__ = ("entered", "exited", "module", "number", "parent", "site", "start", "stop")

    def __init__(
        self, module: int, number: int, parent: int, site: Site, start: int, entered: tuple[Value, ...]
    ) -> None:
        self.module = module  # index in Trace.modules
        self.number = number  # first call is 1
        self.parent = parent  # index in Trace.module_calls, -1 for the outermost
        self.site = site
        self.start = start  # the calls made inside are Trace.calls[start:stop]
        self.stop = start
        self.entered = entered  # values among the arguments
        self.exited: tuple[Value, ...] = ()  # values among the results, NOT_RECORDED for a tensor without one


class ModuleInfo(NamedTuple):
    """What is known of a module from the model's structure alone."""

    address: str  # "" for the model itself
    all_addresses: tuple[str, ...]  # several when the module is registered under several names
    class_name: str
    training: bool
    class_qualname: str
    bases: tuple[str, ...] = ()  # the classes that it is derived from, without nn.Module


class TensorInfo(NamedTuple):
    """A parameter or buffer of the model, used or not."""

    address: str
    all_addresses: tuple[str, ...]
    shape: torch.Size | None  # None in a lazy module that was never called
    dtype: torch.dtype
    device: torch.device
    trainable: bool

    @property
    def numel(self) -> int:
        return 0 if self.shape is None else self.shape.numel()

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


class ReadEvent(NamedTuple):
    """A tensor became a Python value: `if t:`, `t.item()`, `torch.equal(a, b)` ..."""

    function: str
    values: tuple[Value, ...]
    result: Any
    module_call: int
    call: int  # how many calls had been recorded
    site: tuple[tuple[CodeType, int], ...] | Site


class Intervention(NamedTuple):
    """An edit that was asked for."""

    site: str  # where, as the user wrote it
    edit: Any  # what; capture knows only that it prints itself


class Applied(NamedTuple):
    """One time that an edit was applied."""

    intervention: int  # index in Trace.interventions
    value: Value  # what was edited; along an edge, what one call takes from it
    call: int  # along an edge: that call, an index in Trace.calls; otherwise -1
    before: Tensor | Stored | None
    after: Tensor | Stored | None


class NotRebuilt(NamedTuple):
    """Placeholder for what the model returned, if it can't be rebuilt with other tensors in it."""

    reason: str


@dataclass
class Trace:
    """Everything that one forward pass left."""

    model_name: str
    values: list[Value] = field(default_factory=list)
    params: list[Value] = field(default_factory=list)
    param_versions: list[int] = field(default_factory=list)  # of the tensors in `params`, which are not copied
    calls: list[Call] = field(default_factory=list)
    module_calls: list[ModuleCall] = field(default_factory=list)
    modules: list[ModuleInfo] = field(default_factory=list)
    param_infos: list[TensorInfo] = field(default_factory=list)
    buffer_infos: list[TensorInfo] = field(default_factory=list)
    events: list[ReadEvent] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    interventions: list[Intervention] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # about interventions; for log.warnings, but nothing is wrong
    completeness: Completeness | None = None  # if it was asked for
    connections: Connections | None = None  # if values are to stay connected to autograd
    gradients: Gradients | None = None  # if they were asked for
    output: Any = None  # what the model returned, with the values of the output entries in place of tensors
    submodule: str | None = None  # whose call it is, such as "core:2"; None for the whole model
    grad_enabled: bool = True  # where the forward pass began, and not in inference mode
    values_kept: bool = True  # all of them, as they were
    versions: dict[str, str] | None = None  # of Python and packages, by name; None for those of this process
    listed: list[int] | None = None  # the indexes of the values that were chosen to be saved, if some were
    complete: bool = False  # False when the forward raised
    seed: int = 0
    start_time: float = 0.0
    end_time: float = 0.0
    seconds: float = 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Trace:
        from .copying import copied_trace

        new = memo[id(self)] = copied_trace(self, memo)
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickling any part of a log ends up here."""
        raise BundleError("logs can't be pickled; save them with tl.save(log, path) and load them with tl.load(path)")

    def __copy__(self) -> Trace:
        new = Trace.__new__(Trace)
        vars(new).update(vars(self))
        return new


def argument_values(call: Call) -> list[tuple[int | str, Value]]:
    """The values among a call's arguments, in order, each with the position or name of the argument it is in.

    The tensor given as `out=` is not among them: its contents do not go into the result.
    """
    found: list[tuple[int | str, Value]] = []
    for position, argument in enumerate(call.args):
        if type(argument) is Value:
            found.append((position, argument))
        elif type(argument) not in NUMBERS_AND_WORDS:
            found += [(position, value) for value in values_in(argument)]
    for name, argument in call.kwargs.items():
        if name != "out" and type(argument) not in NUMBERS_AND_WORDS:
            found += [(name, value) for value in values_in(argument)]
    return found


def values_given(call: Call) -> list[Value]:
    """As `argument_values`, without where they are, and those that are in containers after the others."""
    found = [argument for argument in call.args if type(argument) is Value]
    if len(found) < len(call.args):
        for argument in call.args:
            if type(argument) is not Value and type(argument) not in NUMBERS_AND_WORDS:
                found += values_in(argument)
    for name, argument in call.kwargs.items():
        if name != "out" and type(argument) not in NUMBERS_AND_WORDS:
            found += values_in(argument)
    return found


def values_in(argument: Any) -> list[Value]:
    """The values in an argument, which may be a nest of tuples, lists, dicts and slices."""
    if isinstance(argument, Value):
        return [argument]
    if isinstance(argument, (tuple, list)):
        return [value for member in argument if type(member) not in NUMBERS_AND_WORDS for value in values_in(member)]
    if isinstance(argument, dict):
        return values_in(list(argument.values()))
    if isinstance(argument, slice):
        return values_in((argument.start, argument.stop, argument.step))
    return []


#: What holds no values; asked for every argument.
NUMBERS_AND_WORDS = {int, float, bool, str, type(None)}

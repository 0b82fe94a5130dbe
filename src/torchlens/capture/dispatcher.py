"""See operations at torch's dispatcher, below everything that a torch function mode can see.

The tracer sees public torch calls. Whatever they do arrives here while the tracer is busy with them. An operation that
arrives at any other time was made by something that the tracer can't see (TorchScript, a C++ extension). `Fallback`
records it, where such code is known to run; `Witness` counts it, when asked to.

Inside a transform (`torch.vmap`, `torch.func.grad`, ...) the tensors that Python sees are wrappers whose values mean
something only to the transform. The dispatcher sees what is left when the transform is done with a call: operations on
real tensors. So the tracer steps aside there, and `Fallback` records those.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .._torch import (
    LIBRARY_FOLDERS,
    HigherOrderOperator,
    call_without,
    hand_operators_to,
    higher_order_kernel,
    no_torch_function,
)
from .containers import flat_tensors
from .functions import METADATA_QUERIES

if TYPE_CHECKING:
    from .calls import TorchCalls
    from .origins import Origins

#: Operations that compute nothing: other names for the same values, made by `nn.Parameter(t)`, by custom autograd
#: functions and by tensors written out as numbers; what gives a tensor that `copy.deepcopy` makes its memory; and
#: marks for the profiler.
EXPLAINED = {
    "aten.detach.default", "aten.alias.default", "aten.lift_fresh.default", "aten.view.default", "aten.view_as.default",
    "aten.set_.source_Storage_storage_offset", "profiler._record_function_enter_new.default",
    "profiler._record_function_exit._RecordFunction",
}  # fmt: skip

#: Operations that give a tensor the memory of a storage.
_ADOPTING = {"aten.set_.source_Storage", "aten.set_.source_Storage_storage_offset"}

#: Operations whose result is their argument under another name.
_RENAMED = {"aten.detach.default", "aten.alias.default", "aten.lift_fresh.default"}


@dataclass(frozen=True)
class MissedOperation:
    """An operation that ran without being logged."""

    operation: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.operation} at {self.file}:{self.line}"


@dataclass(frozen=True)
class UnknownTensor:
    """A tensor that was made during the forward pass by no recorded call, and that an operation used."""

    shape: tuple[int, ...]
    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"a tensor of shape {self.shape}, used at {self.file}:{self.line}, {self.why}"


@dataclass
class Completeness:
    """Was every operation logged? True or false, with what was missed.

    >>> checked = tl.log_forward_pass(model, x, check_completeness=True)
    >>> bool(checked.completeness), checked.completeness.missed
    (True, [])
    """

    operations: int = 0  # calls that were logged, and operations that reached the dispatcher outside of them
    missed: list[MissedOperation] = field(default_factory=list)
    unknown: list[UnknownTensor] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.missed and not self.unknown

    def __repr__(self) -> str:
        counts = [f"{len(self.missed)} missed"] * bool(self.missed)
        counts += [f"{len(self.unknown)} tensors of unknown origin"] * bool(self.unknown)
        verdict = "complete" if self else f"NOT complete, {', '.join(counts)}"
        found = "".join(f"\n\t{finding}" for finding in [*self.missed, *self.unknown][:20])
        return f"{verdict}: {self.operations} operations checked at the dispatcher{found}"


class Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that goes with a tracer. It is put on torch's stack as it is, not entered as a context: what
    torch does there concerns compilation only."""

    supports_higher_order_operators = True

    def __init__(self, tracer: TorchCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer = tracer
        hand_operators_to(type(self))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled while a capture runs, and importing the code that torch would need here takes seconds."""
        return False


class Fallback(Watcher):  # type: ignore[no-untyped-call]
    """While active, records the operations that the tracer can't see, as what they are at the dispatcher."""

    def __init__(self, tracer: TorchCalls, derives: bool = False) -> None:
        super().__init__(tracer)
        self.derives = derives  # is it here for a transform that takes derivatives?

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.tracer.retired:
            return func(*args, **(kwargs or {}))
        name = str(func)
        with no_torch_function():
            if not self.tracer.busy and name in _RENAMED:
                return self.tracer.rename(args[0], func(*args, **(kwargs or {})))
            if not self.tracer.busy and name in _ADOPTING:
                return self.tracer.adopt(func, args, kwargs or {})
            if not self.tracer.busy and not name.startswith("profiler."):
                return self.tracer.record(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))


class Witness(Watcher):  # type: ignore[no-untyped-call]
    """While active, checks that every operation of this thread falls inside a call that the tracer records.

    It is off during calls that are recorded: what happens inside is accounted for, and some of torch's functions
    (`cross_entropy_loss`) compute differently, in the last digit, when a dispatch mode is on.
    """

    def __init__(self, tracer: TorchCalls, found: Completeness, origins: Origins) -> None:
        super().__init__(tracer)
        self.found, self.origins = found, origins

    def aside(self, func: Any) -> Any:
        """The function, without the witness while it runs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self.found.operations += 1
            return call_without(self, func, args, kwargs)

        return run

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.tracer.retired:
            return func(*args, **kwargs)
        if isinstance(func, HigherOrderOperator) and not self.tracer.busy:  # the operations in it are what counts
            return (higher_order_kernel(func) or func)(*args, **kwargs)
        self.found.operations += 1
        with no_torch_function():
            result = func(*args, **kwargs)
        if not self.tracer.busy and not self.tracer.progress.ended:
            self._check(str(func), flat_tensors([*args, *kwargs.values()]), result)
        return result

    def _check(self, name: str, used: list[Tensor], result: Any) -> None:
        """An operation ran while no recorded call did."""
        from_data = all(self.origins.is_made(tensor) for tensor in used) or name == "aten.lift_fresh.default"
        if from_data and isinstance(result, Tensor):  # made from Python's data: a source, and in the log as such
            self.origins.add_made(result)
        elif used and name not in EXPLAINED and name.split(".")[1] not in METADATA_QUERIES:
            self.found.missed.append(MissedOperation(name, *user_line()))


def user_line() -> tuple[str, int]:
    """The innermost line of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARY_FOLDERS):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("unknown", 0)

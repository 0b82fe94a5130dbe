"""A second pair of eyes: see what happens at the dispatcher, below everything that Python can see.

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

from torch.utils._python_dispatch import TorchDispatchMode

from .._torch import LIBRARY_FOLDERS, HigherOrderOperator, higher_order_kernel, no_torch_function
from .containers import flat_tensors

if TYPE_CHECKING:
    from .tracer import Tracer

#: Operations that compute nothing: other names for the same values, made by `nn.Parameter(t)`, by custom autograd
#: functions and by tensors written out as numbers; what gives a tensor that `copy.deepcopy` makes its memory; and
#: marks for the profiler.
EXPLAINED = {
    "aten.detach.default", "aten.alias.default", "aten.lift_fresh.default", "aten.view.default", "aten.view_as.default",
    "aten.set_.source_Storage_storage_offset", "profiler._record_function_enter_new.default",
    "profiler._record_function_exit._RecordFunction",
}  # fmt: skip

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


@dataclass
class Completeness:
    """Was every operation logged? True or false, with what was missed.

    >>> checked = tl.log_forward_pass(model, x, check_completeness=True)
    >>> bool(checked.completeness), checked.completeness.missed
    (True, [])
    """

    operations: int = 0  # seen at the dispatcher
    missed: list[MissedOperation] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.missed

    def __repr__(self) -> str:
        verdict = "complete" if self else f"NOT complete, {len(self.missed)} missed"
        missed = "".join(f"\n\t{operation}" for operation in self.missed[:20])
        return f"{verdict}: {self.operations} operations seen at the dispatcher{missed}"


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    supports_higher_order_operators = True

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer = tracer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled while a capture runs; torch would take seconds to import what protects from it."""
        return False


class Fallback(_Watcher):
    """While active, records the operations that the tracer can't see, as what they are at the dispatcher."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func)
        with no_torch_function():
            if not self.tracer.busy and name in _RENAMED:
                return self.tracer.rename(args[0], func(*args, **(kwargs or {})))
            if not self.tracer.busy and not name.startswith("profiler."):
                return self.tracer.record(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))


class Witness(_Watcher):
    """While active, checks that every operation of this thread falls inside a call that the tracer records."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer)
        self.found = Completeness()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator) and not self.tracer.busy:  # the operations in it are what counts
            return (higher_order_kernel(func) or func)(*args, **kwargs)
        self.found.operations += 1
        # What takes no tensor makes one from Python's data: a source, and in the log as such.
        if not self.tracer.busy and str(func) not in EXPLAINED and flat_tensors([*args, *kwargs.values()]):
            self.found.missed.append(MissedOperation(str(func), *_user_line()))
        with no_torch_function():
            return func(*args, **kwargs)


def _user_line() -> tuple[str, int]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARY_FOLDERS):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("unknown", 0)

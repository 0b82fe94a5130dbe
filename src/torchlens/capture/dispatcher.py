"""A second pair of eyes: see what happens at the dispatcher, below everything that Python can see.

The tracer sees public torch calls. Whatever they do arrives here while the tracer is busy with them. An operation that
arrives at any other time was made by something that the tracer can't see (TorchScript, a C++ extension). `Fallback`
records it, where such code is known to run; `Witness` counts it, when asked to.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from .._torch import LIBRARY_FOLDERS, call_without, no_torch_function
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

    operations: int = 0  # calls that were logged, and operations that reached the dispatcher outside of them
    missed: list[MissedOperation] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.missed

    def __repr__(self) -> str:
        verdict = "complete" if self else f"NOT complete, {len(self.missed)} missed"
        missed = "".join(f"\n\t{operation}" for operation in self.missed[:20])
        return f"{verdict}: {self.operations} operations checked at the dispatcher{missed}"


class Fallback(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, records the operations that the tracer can't see, as what they are at the dispatcher."""

    supports_higher_order_operators = True

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer = tracer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with no_torch_function():
            if not self.tracer.busy and str(func) not in EXPLAINED:
                return self.tracer.record(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))


class Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, checks that every operation of this thread falls inside a call that the tracer records.

    It steps aside for the calls that are recorded: what happens inside is accounted for, and some of torch's functions
    (`cross_entropy_loss`) compute differently, in the last digit, when a dispatch mode is on.
    """

    supports_higher_order_operators = True

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer = tracer
        self.found = Completeness()

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

"""The protocol through which other parts of the package take part in a capture.

Capture tells observers what happens, as it happens, and uses what they answer. It knows nothing else about them:
choosing values to keep, following autograd, fastlog and interventions are all observers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .keeping import Keeper
from .records import ModuleCall, Trace, Value

if TYPE_CHECKING:
    from .functions import Function

#: The arguments and keyword arguments of a call.
Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class Observer:
    """What capture calls while a model runs. A subclass overrides what it wants to be told.

        the run begins ............................ begin(trace, keeper)
        a tensor that the model is called with .... value(value, tensor, -1)          -> tensor or None
          a module is called ...................... module_enter(call, place, args, kwargs)
            a torch function is called
              its arguments are known ............. before_call(function, args, ...)  -> arguments or None
              it will overwrite a tensor .......... before_write(tensor)
              it has run; for each result ......... value(value, tensor, module_call) -> tensor or None
          the module returns ...................... module_exit(call, returned)       -> tensors or None
        a tensor that the model returned .......... value(value, tensor, -1)          -> tensor or None

    None leaves everything as it is; a tensor takes the place of the one that was shown, for the model and in the log.
    If the call overwrote that one, the answer is written into it, so that it reaches every alias. What no call made
    (parameters, buffers, constants) and what stands for a change through an alias is changed in `before_call` only:
    the model has it without asking for it. Several observers are asked in their order, each with what the one before it
    answered; `replaced` tells the others. All run with torch functions disabled: what they compute is no part of the
    model. What they raise, the model's forward raises.
    """

    only_modules: bool = False  # is it told of nothing but module calls? Looked at when it has begun
    modules_asked: Collection[int] | None = None  # the modules whose calls it must be told of; None for all
    unreachable: str | None = None  # why the tensors that it is told of must not be changed, if they must not

    def begin(self, trace: Trace, keeper: Keeper) -> None:
        """A forward pass begins. `keeper` keeps what tensors hold without copying them."""

    def asks_of(self, function: Function) -> bool:
        """Must it be told of calls of this function? Asked once for each; it may be told of others, too."""
        return True

    def value(self, value: Value, tensor: Tensor, module_call: int) -> Tensor | None:
        """A value was made, in the module call at this place (-1: outside of all). `tensor` holds it now.

        The call that made it, if there is one, is already recorded. Parameters are not shown.
        """
        return None

    def before_call(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], stored: Arguments
    ) -> Arguments | None:
        """A torch function is about to be called; `stored` are the arguments with values in place of tensors."""
        return None

    def before_write(self, tensor: Tensor) -> None:
        """The memory of `tensor` is about to be overwritten, or handed out to code that may overwrite it."""

    def module_enter(self, call: ModuleCall, place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A module call begins; it is at this place in `Trace.module_calls`."""

    def replaced(self, value: Value, tensor: Tensor) -> None:
        """A module returned a tensor that held this value, and another observer put this one in its place."""

    def moved(self, value: Value, new: Value) -> None:
        """Others have what a module returned, with this value: what it was replaced by is a value of its own."""

    def module_exit(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> list[Tensor] | None:
        """A module call has returned these tensors. It still counts as running. Not told if it raised."""
        return None

"""Decide, while the model runs, which values to keep.

Modules, types and most predicates can be decided at once. A final label or a number can't be, since only the whole
graph has them: values that may turn out to be selected are kept until the graph is known, and then released.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from ..selectors import (
    ASK,
    NO,
    YES,
    Answer,
    Matcher,
    Modules,
    Predicate,
    Result,
    Seen,
    Selection,
    compile,
    selector_text,
)
from .context import AskLater, OpInProgress
from .keeping import Keeper, Transform, ValueSink
from .naming import layer_type_of
from .observer import Observer
from .records import ModuleCall, Trace, Value


class Failure(NamedTuple):
    """The user's function raised on a value. The forward pass went on."""

    what: str
    value: Value
    raised: Exception


class Chooser(Observer):
    """Keeps the values that a selection wants, or may want; with no selection, all of them."""

    def __init__(self, selection: Selection | None, transform: Transform | None, sink: ValueSink | None = None) -> None:
        self.selection = selection
        self.matcher: Matcher | None = None
        self.transform = transform
        self.sink = sink
        self.failure: Failure | None = None  # the first
        self.chosen: dict[Predicate, set[int]] = {}  # by each predicate: indexes of values
        self.undecided: dict[Predicate, dict[int, OpInProgress]] = {}  # to be asked again when the graph is known
        self._raw: set[int] = set()  # kept, not yet transformed or written
        self._types: dict[str, Answer] = {}  # where the type decides
        self._returned: dict[int, list[Result]] = {}  # by value: the module calls that returned it

    # ---- what capture tells ---------------------------------------------------------------------------------

    def begin(self, trace: Trace, keeper: Keeper) -> None:
        self.trace, self.keeper = trace, keeper
        if self.selection is not None:
            self.matcher = compile(self.selection, Modules(trace.modules), self.selection.argument)
            for predicate in self.matcher.predicates:
                self.chosen[predicate], self.undecided[predicate] = set(), {}

    def value(self, value: Value, tensor: Tensor, module_call: int) -> None:
        wanted = YES if self.matcher is None else self._wanted(value, module_call)
        if wanted:
            self._keep(value, tensor, wanted == YES)

    def replaced(self, value: Value, tensor: Tensor) -> None:
        if value.kept is not None or value.transformed is not None:
            finished = value.index not in self._raw
            value.kept = value.transformed = None
            self._raw.discard(value.index)
            self._keep(value, tensor, finished)

    def module_exit(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> None:
        if self.matcher is None or call.module not in self.matcher.modules_asked:
            return
        for position, (value, tensor) in enumerate(returned):
            if value.role == "param":
                continue
            calls = self._returned.setdefault(value.index, [])
            calls.append((call.module, call.number, position))
            wanted = self._answer(layer_type_of(value, self.trace.calls), calls, partial(self._answered, value.index))
            if wanted:
                self._keep(value, tensor, wanted == YES)

    # ---- decisions ------------------------------------------------------------------------------------------

    def _wanted(self, value: Value, module_call: int) -> Answer:
        layer_type = layer_type_of(value, self.trace.calls)
        if self.chosen:
            for predicate in self.chosen:
                self._ask(predicate, value, module_call)
            return self._answer(layer_type, [], partial(self._answered, value.index))
        wanted = self._types.get(layer_type)
        if wanted is None:
            wanted = self._types[layer_type] = self._answer(layer_type, [], lambda predicate: NO)
        return wanted

    def _answer(self, layer_type: str, returned: list[Result], asked: Callable[[Predicate], Answer]) -> Answer:
        """Is a value selected? Not yet, if only as the result of a module call that has not returned."""
        assert self.matcher is not None
        seen = Seen(layer_type, returned=returned, asked=asked)
        so_far = self.matcher.answer(seen)
        return so_far and min(so_far, self.matcher.answer(seen._replace(not_returned=ASK)))

    def _ask(self, predicate: Predicate, value: Value, module_call: int) -> None:
        record = OpInProgress(self.trace, value, module_call)
        try:
            if predicate(record):
                self.chosen[predicate].add(value.index)
        except AskLater:
            self.undecided[predicate][value.index] = record
        except Exception as raised:
            self._failed(f"the predicate {selector_text(predicate)}", value, raised)

    def _answered(self, index: int, predicate: Predicate) -> Answer:
        return YES if index in self.chosen[predicate] else ASK if index in self.undecided[predicate] else NO

    # ---- keeping --------------------------------------------------------------------------------------------

    def _keep(self, value: Value, tensor: Tensor, certain: bool) -> None:
        if value.kept is None and value.transformed is None:
            value.saved = self.keeper.keep(tensor)
            self._raw.add(value.index)
        if certain:
            self.finish(value)

    def finish(self, value: Value) -> None:
        """Transform a kept value as the options say, once, and store it in memory or in the sink."""
        if (self.transform is None and self.sink is None) or value.index not in self._raw:
            return
        self._raw.remove(value.index)
        try:
            if self.transform is not None:
                self.transform.apply(value)
        except Exception as raised:
            self._failed("activation_postfunc", value, raised)
        if self.sink is not None:
            self.sink.put(value)

    def _failed(self, what: str, value: Value, raised: Exception) -> None:
        self.failure = self.failure or Failure(what, value, raised)

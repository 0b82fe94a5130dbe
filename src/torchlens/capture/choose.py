"""Decide, while the model runs, which values to keep.

Modules, types and most predicates can be decided at once. A final label or a number can't be, since only the whole
graph has them: what may turn out to be meant is kept until the graph is there, and then let go.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..selectors import Selection, Selector, described, is_certain, may_be_in_labels_of, may_be_label, split_pass
from .context import AskLater, OpInProgress
from .keeping import Keeper, Sink, Transform
from .naming import layer_type_of
from .records import ModuleCall, Trace, Value

#: How sure it is that a value is wanted.
NO, PERHAPS, YES = 0, 1, 2


class Failure(NamedTuple):
    """A function of the user's raised when it was given a value. The forward pass went on."""

    what: str
    value: Value
    raised: Exception


class Chooser:
    """Keeps the values that a selection wants, or may want; with no selection, all of them."""

    def __init__(
        self,
        trace: Trace,
        keeper: Keeper,
        selection: Selection | None,
        transform: Transform | None,
        sink: Sink | None = None,
    ) -> None:
        self.trace = trace
        self.keeper = keeper
        self.selection = selection
        self.transform = transform
        self.sink = sink
        self.failure: Failure | None = None  # the first
        self.everything = YES if selection is None else NO
        self.parts: list[str] = []  # of labels
        self.calls_of: dict[int, set[int | None]] = {}  # the wanted calls of each module; None for all
        self.chosen: dict[Selector, set[int]] = {}  # by each predicate: indexes of values
        self.undecided: dict[Selector, dict[int, OpInProgress]] = {}  # to be asked again when the graph is known
        self._raw: set[int] = set()  # kept, not yet transformed or written
        self._types: dict[str, int] = {}
        numbers = {a: n for n, info in reversed(list(enumerate(trace.modules))) for a in info.all_addresses}
        for selector in selection.selectors if selection else ():
            self._add(selector, numbers)

    def _add(self, selector: Selector, numbers: dict[str, int]) -> None:
        if isinstance(selector, int):
            self.everything = max(self.everything, PERHAPS)
        elif isinstance(selector, str):
            name, number = split_pass(selector)
            module = numbers.get("" if name == "self" else name)
            if module is not None:
                self.calls_of.setdefault(module, set()).add(number)
            if module is None or may_be_label(name):
                self.parts.append(name)
        else:
            self.chosen[selector] = set()
            self.undecided[selector] = {}

    # ---- what the tracer reports ----------------------------------------------------------------------------

    def consider(self, new: list[tuple[Value, Tensor]], module_call: int) -> None:
        """New values have come to be."""
        for value, tensor in new:
            wanted = max(self.everything, self._type_wanted(value))
            for predicate in self.chosen:
                wanted = max(wanted, self._asked(predicate, value, module_call))
            if wanted:
                self._keep(value, tensor, wanted == YES)
        new.clear()

    def module_left(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> None:
        """A module call has ended."""
        passes = self.calls_of.get(call.module, ())
        if call.number in passes or None in passes:
            for value, tensor in returned:
                if value.role != "param":
                    self._keep(value, tensor, True)

    # ---- decisions ------------------------------------------------------------------------------------------

    def _type_wanted(self, value: Value) -> int:
        kind = layer_type_of(value, self.trace.calls)
        wanted = self._types.get(kind)
        if wanted is None:
            possible = [part for part in self.parts if may_be_in_labels_of(part, kind)]
            certain = any(is_certain(part) for part in possible)
            wanted = self._types[kind] = YES if certain else PERHAPS if possible else NO
        return wanted

    def _asked(self, predicate: Selector, value: Value, module_call: int) -> int:
        record = OpInProgress(self.trace, value, module_call)
        try:
            if predicate(record):  # type: ignore[operator]
                self.chosen[predicate].add(value.index)
                return YES
        except AskLater:
            self.undecided[predicate][value.index] = record
            return PERHAPS
        except Exception as raised:
            self._failed(f"the predicate {described(predicate)}", value, raised)
        return NO

    # ---- keeping --------------------------------------------------------------------------------------------

    def _keep(self, value: Value, tensor: Tensor, certain: bool) -> None:
        if value.kept is None and value.transformed is None:
            value.saved = self.keeper.keep(tensor)
            self._raw.add(value.index)
        if certain:
            self.finish(value)

    def finish(self, value: Value) -> None:
        """Make of a kept value what is wanted of it, once, and put it where it is wanted."""
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

"""Which events are wanted: selectors, sorted by what it takes to decide them.

Parts of type names are decided once for each type, modules once for each module; labels and numbers need the event,
predicates its context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError, LayerNotFoundError, near
from ..selectors import Selection, Selector, described, is_certain, may_be_in_labels_of, may_be_label, split_pass
from .context import RecordContext
from .events import Event, Frame, History
from .spec import AS_IT_IS, CaptureSpec, as_spec

Predicate = Callable[[RecordContext], Any]


class Rule:
    """What one argument, such as `keep_op`, chooses."""

    def __init__(self, argument: str, wanted: Any, addresses: Mapping[str, str], *, modules_only: bool = False) -> None:
        self.argument = argument
        self.everything: CaptureSpec | None = None
        self.parts: list[str] = []  # of labels; decided by the type, if they are certain
        self.numbers: set[int] = set()
        self.calls_of: dict[str, set[int | None]] = {}  # wanted calls of modules, by address; None for all
        self.predicates: list[Predicate] = []
        self.named: dict[Any, Any] = {}  # the selectors that must choose something, by what is known here as
        self.matched: set[Any] = set()
        self._possible: dict[str, list[str]] = {}  # the parts that labels of a type may have
        if wanted is None or wanted is False:
            return
        if wanted is True or isinstance(wanted, CaptureSpec) or (isinstance(wanted, str) and wanted == "all"):
            self.everything = as_spec(wanted)
            return
        for selector in Selection.checked(wanted, argument).selectors:
            self._add(selector, addresses, modules_only)

    def _add(self, selector: Selector, addresses: Mapping[str, str], modules_only: bool) -> None:
        if callable(selector):
            self.predicates.append(selector)
        elif isinstance(selector, int):
            if selector < 0 or modules_only:
                what = "a module" if modules_only else "an operation from the end"
                raise ArgumentError(f"{self.argument}: {selector} can't choose {what} while the model runs")
            self.numbers.add(selector)
            self.named[selector] = selector
        else:
            self._add_name(selector, addresses, modules_only)

    def _add_name(self, selector: str, addresses: Mapping[str, str], modules_only: bool) -> None:
        name, number = split_pass(selector)
        address = addresses.get(name)
        if address is not None:
            self.calls_of.setdefault(address, set()).add(number)
            self.named[address, number] = selector
        elif modules_only:
            raise LayerNotFoundError(
                f"{self.argument}: the model has no module {name!r}{near(name, addresses)}; "
                "a function of the context chooses by module_type"
            )
        elif number is not None and may_be_label(name):
            raise ArgumentError(
                f"{self.argument}: {selector!r} is a pass of a layer, which only a whole log knows; "
                "log_forward_pass(..., layers_to_save=...) takes it, and here a module's call such as 'fc:2'"
            )
        else:
            self.parts.append(name)
            self.named[name] = selector

    @property
    def is_empty(self) -> bool:
        return not (self.everything or self.parts or self.numbers or self.calls_of or self.predicates)

    @property
    def asks_each(self) -> bool:
        """Must every operation be looked at?"""
        return bool(self.numbers or self.predicates)

    @property
    def names_some(self) -> bool:
        """Does it choose by anything that a type does not decide?"""
        return bool(self.numbers) or not all(is_certain(part) for part in self.parts)

    def always(self, layer_type: str) -> CaptureSpec | None:
        """How to keep all operations of this type; None if the type does not decide."""
        if self.everything is not None:
            return self.everything
        found = [part for part in self.parts if is_certain(part) and may_be_in_labels_of(part, layer_type)]
        self.matched.update(found)
        return AS_IT_IS if found else None

    def may_want(self, layer_type: str) -> bool:
        return self.asks_each or any(may_be_in_labels_of(part, layer_type) for part in self.parts)

    def names(self, event: Event) -> bool:
        """Is the operation chosen by its label or number?"""
        assert event.name is not None
        layer_type, number = event.name[0].layer_type, event.name[2]
        found: list[Any] = [number] if number in self.numbers else []
        possible = self._possible.get(layer_type)
        if possible is None:
            possible = [part for part in self.parts if may_be_in_labels_of(part, layer_type)]
            self._possible[layer_type] = possible
        found += [part for part in possible if _fits(part, event.label)]
        self.matched.update(found)
        return bool(found)

    def calls(self, frame: Frame) -> bool:
        """Is this module call chosen?"""
        if frame.address not in self.calls_of:
            return False
        numbers = self.calls_of[frame.address]
        found = [number for number in (None, frame.number) if number in numbers]
        self.matched.update((frame.address, number) for number in found)
        return bool(found)

    def asked(self, event: Event, history: History) -> Any:
        """The first answer of a predicate that is not None or False; None or False if there is none."""
        answer: Any = False
        for predicate in self.predicates:
            given = predicate(RecordContext(event, history))
            if given is False:
                continue
            if self.checked(given, predicate, event):
                return given
            answer = None if given is None else answer
        return answer

    def checked(self, given: Any, predicate: Predicate, event: Event) -> Any:
        """What a predicate has answered, if it is an answer."""
        if given is not None and not isinstance(given, (bool, CaptureSpec)):
            raise ArgumentError(
                f"{self.argument}: the predicate {described(predicate)} returned {given!r} for {event.label}; "
                "True, False, None (the default) or a CaptureSpec can be returned"
            )
        return given

    def unmatched(self) -> list[Any]:
        """The selectors by name or number that chose nothing."""
        return [selector for key, selector in self.named.items() if key not in self.matched]


def _fits(part: str, label: str) -> bool:
    """Does a label have this part? Whole labels, short or not, fit nothing else: `relu_1` is not `relu_10`."""
    if may_be_label(part):
        return label == part or label.rpartition("_")[0] == part
    return part in label


class Rules:
    """Everything that a user wants of a run."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        keep_op: Any = None,
        keep_module: Any = None,
        default_op: bool | CaptureSpec = False,
        default_module: bool | CaptureSpec = False,
        stop_after: Any = None,
        train_mode: bool = False,
    ) -> None:
        self.op = Rule("keep_op", keep_op, addresses)
        self.module = Rule("keep_module", keep_module, addresses, modules_only=True)
        self.stop = Rule("stop_after", stop_after, addresses)
        self.default_op = _default(default_op, "default_op")
        self.default_module = _default(default_module, "default_module")
        self.train_mode = train_mode
        self.names_some = self.op.names_some
        self.lone = self.op.predicates[0] if len(self.op.predicates) == 1 else None
        if self.op.is_empty and self.default_op is not None:
            self.op.everything = self.default_op
        if self.module.is_empty and self.default_module is not None:
            self.module.everything = self.default_module
        if self.op.is_empty and self.module.is_empty:
            raise ArgumentError(
                "nothing is chosen: keep_op and keep_module take a type such as 'relu', a module address, a function "
                "of a RecordContext, a list of these, or True for everything"
            )
        if self.stop.everything is not None:
            raise ArgumentError("stop_after is a selector of the event after which to stop, not everything")

    @property
    def remembers(self) -> bool:
        """Are there predicates, which may look back?"""
        return bool(self.op.predicates or self.module.predicates or self.stop.predicates)

    @property
    def all_rules(self) -> tuple[Rule, Rule, Rule]:
        return self.op, self.module, self.stop

    def promoted(self, spec: CaptureSpec | None) -> CaptureSpec | None:
        """In training, what is kept stays connected to autograd."""
        return spec.with_grad() if spec is not None and self.train_mode else spec

    def spec_for_op(self, event: Event, history: History) -> CaptureSpec | None:
        """How to keep an operation, an input or a buffer."""
        assert event.name is not None
        named = self.names_some and self.op.names(event)
        decided: CaptureSpec | None = event.name[0].spec
        if decided is not None or named:
            return decided or self.promoted(AS_IT_IS)
        if self.lone is not None:  # as `asked`, in short
            answer = self.lone(RecordContext(event, history))
            if answer is not False:
                self.op.checked(answer, self.lone, event)
        elif self.op.predicates:
            answer = self.op.asked(event, history)
        else:
            return None
        if answer is False:
            return None
        return self.promoted(self.default_op if answer is None else as_spec(answer))

    def spec_for_module(self, event: Event, history: History) -> CaptureSpec | None:
        assert event.frame is not None
        if self.module.everything is not None:
            return self.promoted(self.module.everything)
        if event.kind == "module_exit" and (self.op.calls(event.frame) or self.module.calls(event.frame)):
            return self.promoted(AS_IT_IS)
        if not self.module.predicates:
            return None
        answer = self.module.asked(event, history)
        return self.promoted(self.default_module if answer is None else as_spec(answer))

    def stops(self, event: Event, history: History) -> bool:
        """Has everything happened that the run is to stop after?"""
        stop = self.stop
        if event.name is not None:
            stop.names(event)
        elif event.kind == "module_exit":
            assert event.frame is not None
            stop.calls(event.frame)
        for predicate in stop.predicates:
            if predicate not in stop.matched and predicate(RecordContext(event, history)):
                stop.matched.add(predicate)
        return not stop.unmatched() and stop.matched.issuperset(stop.predicates)

    def asks_module(self, address: str) -> bool:
        """May something happen because of a call of this module?"""
        if self.module.everything is not None or self.module.predicates or self.stop.predicates:
            return True
        return any(address in rule.calls_of for rule in self.all_rules)


def _default(given: Any, argument: str) -> CaptureSpec | None:
    if not isinstance(given, (bool, CaptureSpec)):
        raise ArgumentError(f"{argument} is True, False or a CaptureSpec, not {given!r}")
    return as_spec(given)

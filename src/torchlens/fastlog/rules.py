"""Which events to keep: selectors, sorted by what is needed to decide them.

Parts of type names are decided once for each type, and modules once for each module. Labels and numbers need the event,
predicates its context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..errors import ArgumentError, LayerNotFoundError
from ..selectors import (
    NO,
    YES,
    Answer,
    Kind,
    Matcher,
    ModuleTable,
    Named,
    Result,
    Returned,
    Seen,
    Selection,
    Selector,
    Word,
    compile,
    selector_text,
)
from .events import Event, Frame, History, Name, event_label
from .record_context import RecordContext
from .spec import AS_IT_IS, CaptureSpec, as_spec

ContextPredicate = Callable[[RecordContext], Any]


class Rule:
    """What one argument, such as `keep_op`, chooses."""

    def __init__(self, argument: str, wanted: Any, modules: ModuleTable, *, modules_only: bool = False) -> None:
        self.argument = argument
        self.modules_only = modules_only
        self.everything: CaptureSpec | None = None
        matcher = Matcher([], argument)
        if wanted is True or isinstance(wanted, CaptureSpec) or (isinstance(wanted, str) and wanted == "all"):
            self.everything = as_spec(wanted)
        elif wanted is not None and wanted is not False:
            matcher = compile(Selection.checked(wanted, argument), modules, argument, modules_only=modules_only)
        alone = {kind: kind.predicates()[0] for kind in matcher.kinds if kind.said in kind.predicates()}
        self.predicates: list[ContextPredicate] = list(alone.values())  # what they return says how to keep a value
        self.kinds = [kind for kind in matcher.kinds if kind not in alone]
        self.modules_asked: set[int] = set()  # whose calls matter
        self.matched: set[Any] = set()  # the kinds and predicates that have chosen something
        self._unsure: dict[str, list[Kind]] = {}  # the kinds for which a type does not decide
        self._returned: dict[int, list[Result]] = {}  # the module calls that returned each value
        self._namesakes = {kind: Namesakes(kind) for kind in self.kinds if isinstance(kind, Named) and kind.is_label}
        for kind in self.kinds:
            if modules_only:
                self._add_modules(kind, len(modules.infos))
            else:
                self._add_operations(kind)

    def _add_modules(self, kind: Kind, total: int) -> None:
        numbers = set(range(total)) if kind.predicates() else kind.modules(total)
        if not numbers:
            raise LayerNotFoundError(f"{self.argument}: {selector_text(kind.said)}: the model has no such module")
        self.modules_asked |= numbers

    def _add_operations(self, kind: Kind) -> None:
        self.modules_asked |= kind.modules_asked()
        if kind.needs_graph:
            raise ArgumentError(
                f"{self.argument}: {selector_text(kind.said)} can be resolved only after the run, when the whole graph "
                "is known; use log_forward_pass(..., layers_to_save=...), or name a module call such as 'fc:2'"
            )

    @property
    def is_empty(self) -> bool:
        return not (self.everything or self.kinds or self.predicates)

    @property
    def names_some(self) -> bool:
        """Does it choose by anything other than the type?"""
        return bool(self._namesakes) or not all(kind.by_type for kind in self.kinds)

    def begin(self) -> None:
        """A new run begins."""
        self._returned.clear()
        for namesakes in self._namesakes.values():
            namesakes.clear()

    # ---- operations -----------------------------------------------------------------------------------------

    def always(self, layer_type: str) -> CaptureSpec | None:
        """How to keep all operations of this type; None if the type does not decide."""
        if self.everything is not None:
            return self.everything
        found = [kind for kind in self.kinds if kind.answer(Seen(layer_type)) == YES]
        self.matched.update(found)
        return AS_IT_IS if found else None

    def unsure(self, layer_type: str) -> list[Kind]:
        """The kinds that may mean an operation of this type, or may not."""
        found = self._unsure.get(layer_type)
        if found is None:
            found = [kind for kind in self.kinds if kind.answer(Seen(layer_type)) not in (NO, YES)]
            found += [kind for kind, namesakes in self._namesakes.items() if namesakes.word.of_type(layer_type)]
            self._unsure[layer_type] = found
        return found

    def may_want(self, layer_type: str) -> bool:
        return bool(self.predicates or self.unsure(layer_type) or self.always(layer_type))

    def names(self, event: Event, history: History, path: str | None = None) -> bool:
        """Is the operation chosen by its label, its number or, if it is an output, its path?"""
        assert event.name is not None
        tally, _, number = event.name
        kinds = self.unsure(tally.layer_type)
        if not kinds:
            return False
        asked = partial(self._answer_of, event, history)
        seen = Seen(tally.layer_type, event.label, number, path=path, asked=asked)
        found = [kind for kind in kinds if kind.answer(seen) == YES]
        for namesakes in self._namesakes.values():
            if namesakes.word.fits(event.label):
                namesakes.layers.add(number)
        self.matched.update(found)
        return bool(found)

    def _answer_of(self, event: Event, history: History, predicate: ContextPredicate) -> Answer:
        """Of a predicate in a combination."""
        given = predicate(RecordContext(event, history))
        if given is not None and not isinstance(given, bool):
            raise ArgumentError(
                f"{self.argument}: in a combination the predicate {selector_text(predicate)} must return True or "
                f"False, but returned {given!r} for {event.label}"
            )
        return YES if given else NO

    # ---- module calls ---------------------------------------------------------------------------------------

    def returned(self, event: Event, position: int, name: Name | None, history: History) -> bool:
        """Is this tensor of what a module call returned chosen?"""
        frame = event.frame
        assert frame is not None
        if frame.module not in self.modules_asked:
            return False
        call, asked = (frame.module, frame.number, position), partial(self._answer_of, event, history)
        if name is None or self.modules_only:
            seen = Seen(None, returned=[call], asked=asked)
        else:
            calls = self._returned.setdefault(name[2], [])
            calls.append(call)
            seen = Seen(name[0].layer_type, event_label(name), name[2], calls, asked=asked)
        found = [kind for kind in self.kinds if kind.answer(seen) == YES]
        for kind in found:
            if kind in self._namesakes and name is not None:
                self._namesakes[kind].results.add(name[2])
        self.matched.update(found)
        return bool(found)

    def calls(self, frame: Frame) -> bool:
        """Is this module call chosen?"""
        seen = Seen(None, returned=[(frame.module, frame.number, None)])
        found = [kind for kind in self.kinds if kind.answer(seen) == YES]
        self.matched.update(found)
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

    def checked(self, given: Any, predicate: ContextPredicate, event: Event) -> Any:
        """The answer of a predicate, if it is a valid one; raises if not."""
        if given is not None and not isinstance(given, (bool, CaptureSpec)):
            raise ArgumentError(
                f"{self.argument}: the predicate {selector_text(predicate)} returned {given!r} for {event.label}; "
                "it must return True, False, None (for the default) or a CaptureSpec"
            )
        return given

    def unmatched(self) -> list[Selector]:
        """The selectors, but for predicates, that chose nothing."""
        return [kind.said for kind in self.kinds if kind not in self.matched]

    def check_names(self) -> None:
        """After a whole run: a name that means a module and a layer is an error."""
        for kind, namesakes in self._namesakes.items():
            if namesakes.layers and namesakes.layers != namesakes.results:
                raise LayerNotFoundError(
                    f"{self.argument}: {kind.said!r} is the module {'self.' + str(kind.said)!r} and the layer number "
                    f"{min(namesakes.layers)}; ask for one by that name or number"
                )


class Namesakes:
    """The values that a name means as a label, and those that it means as a module."""

    def __init__(self, kind: Named) -> None:
        self.word = Word(str(kind.said))
        self.layers: set[int] = set()
        self.results: set[int] = set()

    def clear(self) -> None:
        self.layers.clear()
        self.results.clear()


class Rules:
    """Everything that a user wants of a run."""

    def __init__(
        self,
        modules: ModuleTable,
        *,
        keep_op: Any = None,
        keep_module: Any = None,
        default_op: bool | CaptureSpec = False,
        default_module: bool | CaptureSpec = False,
        stop_after: Any = None,
        train_mode: bool = False,
        postfunc: Any = None,
        may_be_empty: bool = False,
    ) -> None:
        self.op = Rule("keep_op", keep_op, modules)
        self.module = Rule("keep_module", keep_module, modules, modules_only=True)
        self.stop = Rule("stop_after", stop_after, modules)
        self.default_op = _default(default_op, "default_op")
        self.default_module = _default(default_module, "default_module")
        self.train_mode = train_mode
        self.postfunc = CaptureSpec(postfunc=postfunc).postfunc
        self.names_some = self.op.names_some
        self.lone = self.op.predicates[0] if len(self.op.predicates) == 1 else None
        if self.op.is_empty and self.default_op is not None:
            self.op.everything = self.default_op
        if self.module.is_empty and self.default_module is not None:
            self.module.everything = self.default_module
        if self.op.is_empty and self.module.is_empty and not may_be_empty:
            raise ArgumentError(
                "nothing is chosen: keep_op and keep_module take a type such as 'relu', a module address, a function "
                "of a RecordContext, a list of these, or True for everything"
            )
        if self.stop.everything is not None:
            raise ArgumentError("stop_after must select the event after which to stop, not everything")
        every = self.module.everything is not None or self.module.predicates or self.stop.predicates
        self._asks_all_modules = bool(every)
        self._modules_asked = set().union(*[rule.modules_asked for rule in self.all_rules])

    @property
    def remembers(self) -> bool:
        """Are there predicates, which may look back?"""
        return bool(self.op.predicates or self.module.predicates or self.stop.predicates)

    @property
    def all_rules(self) -> tuple[Rule, Rule, Rule]:
        return self.op, self.module, self.stop

    def promoted(self, spec: CaptureSpec | None) -> CaptureSpec | None:
        """The spec with the common `postfunc`; in training mode, connected to autograd."""
        if spec is not None and self.postfunc is not None and spec.save_activation and spec.postfunc is None:
            spec = replace(spec, postfunc=self.postfunc)
        return spec.with_grad() if spec is not None and self.train_mode else spec

    def spec_for_op(self, event: Event, history: History) -> CaptureSpec | None:
        """How to keep an operation, an input or a buffer."""
        assert event.name is not None
        named = self.names_some and self.op.names(event, history)
        decided: CaptureSpec | None = event.name[0].spec
        if decided is not None or named:
            return decided or self.promoted(AS_IT_IS)
        return self.spec_answered(self.op.asked(event, history)) if self.op.predicates else None

    def spec_answered(self, answer: Any) -> CaptureSpec | None:
        """How to keep an operation, by what a predicate says of it."""
        if answer is False:
            return None
        return self.promoted(self.default_op if answer is None else as_spec(answer))

    def specs_for_module(
        self, event: Event, history: History, names: Sequence[Name | None]
    ) -> list[CaptureSpec | None]:
        """How to keep each tensor of a module call: those that it was given, or those that it returned."""
        if self.module.everything is not None:
            return [self.promoted(self.module.everything)] * len(names)
        specs: list[CaptureSpec | None] = [None] * len(names)
        if event.kind == "module_exit":
            for position, name in enumerate(names):
                ways = [rule.returned(event, position, name, history) for rule in (self.op, self.module)]
                specs[position] = self.promoted(AS_IT_IS) if any(ways) else None
        if not self.module.predicates or None not in specs:
            return specs
        answer = self.module.asked(event, history)
        asked = self.promoted(self.default_module if answer is None else as_spec(answer))
        return [spec or asked for spec in specs]

    def stops(self, event: Event, history: History, names: Sequence[Name | None]) -> bool:
        """Has everything happened that the run is to stop after?"""
        stop = self.stop
        if event.name is not None:
            stop.matched.update(kind for kind in stop.kinds if kind.answer(Seen(event.name[0].layer_type)) == YES)
            stop.names(event, history)
        elif event.kind == "module_exit":
            assert event.frame is not None
            stop.calls(event.frame)
            for position, name in enumerate(names):
                stop.returned(event, position, name, history)
        for predicate in stop.predicates:
            if predicate not in stop.matched and predicate(RecordContext(event, history)):
                stop.matched.add(predicate)
        return not stop.unmatched() and stop.matched.issuperset(stop.predicates)

    def asks_module(self, number: int) -> bool:
        """May something happen because of a call of this module?"""
        return self._asks_all_modules or number in self._modules_asked

    def asks_calls(self) -> bool:
        """May something depend on a torch call, or must the calls be watched for what is kept to stay what it is?"""
        if not self.op.is_empty or self.remembers or self.train_mode:
            return True
        every = self.module.everything
        return (every is not None and every.keep_grad) or not all(
            isinstance(kind, Returned) for kind in self.stop.kinds
        )

    def asks_outputs(self) -> bool:
        """May something that the model returned be meant by its path or its label?"""
        return any(kind.answer(Seen("output")) != NO for kind in (*self.op.kinds, *self.stop.kinds))


def _default(given: Any, argument: str) -> CaptureSpec | None:
    if not isinstance(given, (bool, CaptureSpec)):
        raise ArgumentError(f"{argument} must be True, False or a CaptureSpec, not {given!r}")
    return as_spec(given)

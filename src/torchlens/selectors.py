"""One language for choosing operations: what to save, to draw, to look up, to edit.

A selector is

    "conv2d_3_7", "conv2d_3", "conv2d_3_7:2"    a label, short or with a pass
    "features.6", "fc:2", "attn[1]"             a module: what it returned; one call of it; one tensor of several
    "h.*.attn", re.compile("conv|relu")         a pattern of module addresses and labels
    nn.Conv2d                                   a class: what modules of this class returned
    7, -5                                       a number, counted over the whole graph
    "logits", "[0]['mask']"                     a path in what the model returned
    "conv"                                      part of a label: every layer that has it
    lambda op: op.tensor_shape[0] > 1           a predicate, asked for every operation
    tl.all_of(...), tl.any_of(...), ~tl.any_of(...)

or a list of selectors, which chooses what any of them does.

    Selection.checked(given)     what the user gave, of the right types        when the function is called
    compile(selection, modules)  a Matcher, which has a `Kind` for each        when the model's modules are known
    Matcher.answer(seen)         YES, NO, or ASK when the graph is known       while the model runs
    Matcher.places(graph)        the entries that are meant                    when the graph is known

A new kind of selector is a new subclass of `Kind` and a line in `_kind_of`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from .errors import ArgumentError, LayerNotFoundError, near

Predicate = Callable[[Any], Any]

# ---- what users write -----------------------------------------------------------------------------------------


class Combination:
    """Several selectors as one: what `all_of`, `any_of` and `~` return."""

    def __init__(self, word: str, members: tuple[Selector, ...]) -> None:
        self.word = word
        self.members = members

    def __invert__(self) -> Combination:
        return self.members[0] if self.word == "~" else Combination("~", (self,))  # type: ignore[return-value]

    def __repr__(self) -> str:
        if self.word == "~":
            return f"~{self.members[0]!r}"
        return f"tl.{self.word}({', '.join(selector_text(member) for member in self.members)})"


Selector = str | int | type | re.Pattern[str] | Predicate | Combination


def all_of(*selectors: Selector) -> Combination:
    """The operations that every one of these selectors chooses.

    >>> [op.label for op in log.select(tl.all_of("relu", ~tl.any_of("relu_module")))]
    ['relu_2_4']
    """
    return _combination("all_of", selectors)


def any_of(*selectors: Selector) -> Combination:
    """The operations that at least one of these selectors chooses; `~any_of(...)` are all the others.

    >>> [op.label for op in log.select(tl.any_of("fc", "relu"))]
    ['relu_1_2', 'linear_1_3', 'relu_2_4']
    """
    return _combination("any_of", selectors)


def _combination(word: str, selectors: tuple[Selector, ...]) -> Combination:
    members = Selection.checked(selectors, f"tl.{word}").selectors
    if not members:
        raise ArgumentError(f"tl.{word}() needs at least one selector")
    return Combination(word, members)


@dataclass(frozen=True)
class Selection:
    """Selectors, checked: of the right types, none of them empty."""

    selectors: tuple[Selector, ...]
    argument: str = "selector"  # that they were given as

    @classmethod
    def checked(cls, wanted: Any, argument: str) -> Selection:
        """A selection from what a user gave as `argument`: one selector, or a list, tuple or set of them."""
        given = wanted if is_several(wanted) else [wanted]
        return cls(tuple([_checked(selector, argument) for selector in given]), argument)


def is_several(wanted: Any) -> bool:
    """Is this a list, tuple or set of selectors, rather than one?"""
    return isinstance(wanted, Iterable) and not isinstance(wanted, (str, type)) and not callable(wanted)


def is_selector(thing: Any) -> bool:
    try:
        _checked(thing, "")
    except ArgumentError:
        return isinstance(thing, str)
    return True


#: Of no selectors.
NOTHING = Selection(())


def _checked(selector: Any, argument: str) -> Selector:
    if isinstance(selector, str):
        if not selector.strip():
            raise ArgumentError(f"{argument}: an empty string chooses nothing")
        return selector.strip()
    if isinstance(selector, (Combination, re.Pattern)):
        return selector
    if hasattr(selector, "__index__") and not isinstance(selector, (bool, type)):
        return int(selector.__index__())
    if hasattr(selector, "named_modules") and not isinstance(selector, type):
        raise ArgumentError(f"{argument}: a module is chosen by its address or its class, not by the module itself")
    if callable(selector):  # a class or a predicate
        return selector  # type: ignore[no-any-return]
    raise ArgumentError(
        f"{argument}: {selector!r} can't choose anything; labels, module addresses, patterns, module classes, "
        "numbers and functions can"
    )


def selector_text(selector: Any) -> str:
    """A selector for error messages: a function by its name and line, a class by its name."""
    if isinstance(selector, type):
        return f"the class {selector.__name__}"
    code = getattr(selector, "__code__", None)
    if code is None:
        return repr(selector)
    return f"{selector.__name__} ({code.co_filename}:{code.co_firstlineno})"


# ---- what a selector is asked with ----------------------------------------------------------------------------


class Answer(IntEnum):
    """Is a value meant? `ASK` again when more is known."""

    NO = 0
    ASK = 1
    YES = 2


NO, ASK, YES = Answer


def _unknown(predicate: Predicate) -> Answer:
    return ASK


#: A tensor that a module call returned: module, number of the call, position among its tensors (None for any).
Result = tuple[int, int, int | None]


class Seen(NamedTuple):
    """What is known of a value while the model runs."""

    layer_type: str | None  # None where only the module counts
    label: str | None = None  # None if it is not known yet
    number: int | None = None  # among the values of the graph
    returned: Sequence[Result] = ()  # the results of module calls that it was among
    not_returned: Answer = NO  # by any other call: ASK if one may still come
    path: str | None = None  # in what the model returned
    asked: Callable[[Predicate], Answer] = _unknown


class ModuleLike(Protocol):
    """What a selector can ask of a module; `capture.records.ModuleInfo` is one."""

    @property
    def address(self) -> str: ...
    @property
    def all_addresses(self) -> tuple[str, ...]: ...
    @property
    def class_name(self) -> str: ...
    @property
    def class_qualname(self) -> str: ...
    @property
    def bases(self) -> tuple[str, ...]: ...


class ModuleTable(Protocol):
    """The modules of a model; `graph.ModuleTree` is one, `Modules` another."""

    @property
    def infos(self) -> Sequence[ModuleLike]: ...
    @property
    def numbers(self) -> Mapping[str, int]: ...


class Modules:
    """The modules of a model before it has run."""

    def __init__(self, infos: Sequence[ModuleLike]) -> None:
        self.infos = infos

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of the module at each address; the model itself is at ""."""
        return {a: number for number, info in reversed(list(enumerate(self.infos))) for a in info.all_addresses}


class KnownGraph(Protocol):
    """What a selector can ask of a graph; `graph.Graph` is one. Entries are known by their places."""

    trace: Any
    entries: Any

    @property
    def layers(self) -> Any: ...  # the layer of each entry
    @property
    def parents(self) -> Any: ...
    @property
    def layer_labels(self) -> Sequence[str]: ...
    @property
    def layer_entries(self) -> Sequence[list[int]]: ...
    @property
    def layer_numbers(self) -> Mapping[str, int]: ...
    @property
    def modules(self) -> Any: ...


#: The places of the entries that a predicate chooses.
Asked = Callable[[Predicate], Collection[int]]


# ---- kinds ----------------------------------------------------------------------------------------------------


class Kind:
    """One selector, ready to be asked. `said` is what the user wrote."""

    needs_graph = False  # can it be decided only when the graph is known, even by one who counts labels?
    of_modules = False  # does it say what modules returned?
    by_type = False  # does the type of an operation always decide?

    def __init__(self, said: Selector) -> None:
        self.said = said

    def answer(self, seen: Seen) -> Answer:
        """Is this value meant?"""
        raise NotImplementedError

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        """The entries that are meant; empty if there are none."""
        raise NotImplementedError

    def modules(self, total: int) -> set[int]:
        """The modules that are meant, by their numbers below `total`, where modules are chosen and not values."""
        raise ArgumentError(f"{selector_text(self.said)} can't choose a module; addresses, patterns and classes can")

    def single(self, graph: KnownGraph, asked: Asked) -> tuple[set[int], str | None]:
        """The entries that are meant where one is wanted, and what is to be said about that."""
        return self.places(graph, asked), None

    def nothing(self, graph: KnownGraph) -> str:
        """Why nothing is meant."""
        return f"nothing is chosen by {selector_text(self.said)}"

    def several(self, labels: Sequence[str]) -> str:
        """Why it can't be one."""
        listed = _listed(labels)
        return (
            f"{selector_text(self.said)} means {len(labels)} layers: {listed}; ask for one of them, or log.select(...)"
        )

    def predicates(self) -> list[Predicate]:
        return []

    def modules_asked(self) -> set[int]:
        """The modules whose calls it must see."""
        return set()


class Number(Kind):
    """The entry with this number; negative numbers count from the end."""

    def __init__(self, said: int) -> None:
        super().__init__(said)
        self.number = said
        self.needs_graph = said < 0

    def answer(self, seen: Seen) -> Answer:
        return ASK if seen.number is None else YES if seen.number == self.number else NO

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return {numbered(self.number, len(graph.entries))}


class Asking(Kind):
    """The operations for which a function of the user's returns something true."""

    def __init__(self, said: Predicate) -> None:
        super().__init__(said)
        self.predicate = said

    def answer(self, seen: Seen) -> Answer:
        return seen.asked(self.predicate)

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set(asked(self.predicate))

    def predicates(self) -> list[Predicate]:
        return [self.predicate]


class Returned(Kind):
    """What modules returned: all calls or one, all tensors or one."""

    of_modules = True
    by_type = True

    def __init__(self, said: Selector, numbers: Iterable[int], call: int | None = None, index: int | None = None):
        super().__init__(said)
        self.numbers = frozenset(numbers)
        self.call = call
        self.index = index

    def answer(self, seen: Seen) -> Answer:
        return YES if any(self.fits(*returned) for returned in seen.returned) else seen.not_returned

    def fits(self, module: int, call: int, position: int | None) -> bool:
        """Is this tensor of this module call meant?"""
        return (
            module in self.numbers
            and self.call in (None, call)
            and (position is None or self.index in (None, position))
        )

    def modules(self, total: int) -> set[int]:
        return set(self.numbers)

    def modules_asked(self) -> set[int]:
        return set(self.numbers)

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return {place for call in self.calls(graph) for place in self._outputs(graph, call)}

    def calls(self, graph: KnownGraph) -> list[int]:
        """The calls that are meant."""
        tree = graph.modules
        calls = [call for number in self.numbers for call in tree.calls_of[number]]
        return [call for call in calls if self.call in (None, tree.calls[call].number)]

    def _outputs(self, graph: KnownGraph, call: int) -> dict[int, int]:
        """The entries that a call returned, each with its first position."""
        found: dict[int, int] = {}
        for position, value in enumerate(graph.modules.calls[call].exited):
            if self.index in (None, position):
                for place in graph.modules.places((value,)):
                    found.setdefault(place, position)
        return found

    def nothing(self, graph: KnownGraph) -> str:
        tree = graph.modules
        called = max((tree.call_counts[number] for number in self.numbers), default=0)
        if not self.numbers:
            return f"{selector_text(self.said)}: the model has no such module"
        if self.call is not None and called and not 0 < self.call <= called:
            counted = ", and calls are counted from 1" if self.call < 1 else ""
            return f"no call {self.said!r}: the module was called {_times(called)}{counted}"
        if not called:
            return f"{self._name} was never called; its submodules may have been"
        if self.index is not None and self.calls(graph):
            most = max(len(tree.calls[call].exited) for call in self.calls(graph))
            if self.index < most:
                return f"{self.said!r} is no tensor of the graph, but a parameter or a constant"
            return f"{self.said!r}: the module returned {most} tensor{'s' * (most != 1)}, counted from 0"
        return f"{self._name} returned no tensor of the graph"

    def several(self, labels: Sequence[str]) -> str:
        if len(self.numbers) == 1 and isinstance(self.said, str):
            one = self.said + (":1" if self.call is None else "[0]")
            return f"{self._name} returned {len(labels)} layers: {_listed(labels)}; ask for one: {one!r}"
        return super().several(labels)

    @property
    def _name(self) -> str:
        return f"module {self.said!r}" if isinstance(self.said, str) else selector_text(self.said)

    def single(self, graph: KnownGraph, asked: Asked) -> tuple[set[int], str | None]:
        """The first tensor of each call, where a call returned several."""
        outputs = [self._outputs(graph, call) for call in self.calls(graph)]
        most = max(outputs, key=len, default={})
        if len(most) < 2:
            return self.places(graph, asked), None
        return {next(iter(places)) for places in outputs if places}, self.first_of(sorted(most.values()))

    def first_of(self, positions: Sequence[int]) -> str:
        """What to tell who asked for one tensor of a module that returned several, and gets the first."""
        address = self.said if isinstance(self.said, str) else "address"
        each = ", ".join(repr(f"{address}[{index}]") for index in positions[:4]) + " ..." * (len(positions) > 4)
        return f"{self._name} returned {len(positions)} tensors, and this is the first; each has a name: {each}"

    @property
    def is_one_module(self) -> bool:
        """Is one module meant, and surely no layer?"""
        return len(self.numbers) == 1


class Named(Returned):
    """What the module at one address returned. If a layer or an output has the same name, that is an error."""

    @property
    def is_label(self) -> bool:
        """Could it be a label just as well?"""
        return self.index is None and may_be_label(split_pass(str(self.said))[0])

    @property
    def is_one_module(self) -> bool:
        return not self.is_label

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        found = super().places(graph, asked)
        assert isinstance(self.said, str)
        other = Word(self.said).exactly(graph)
        if other and other != found and not (found and self._is_returned(graph, other, found)):
            place = min(other)
            label, path = graph.layer_labels[graph.layers[place]], graph.entries[place].address
            what = f"the output {path!r}" if graph.entries[place].role == "output" else f"the layer {label!r}"
            raise LayerNotFoundError(
                f"{self.said!r} is the module {'self.' + self.said!r} and {what}; ask for one by that name"
            )
        return found

    def single(self, graph: KnownGraph, asked: Asked) -> tuple[set[int], str | None]:
        self.places(graph, asked)
        return super().single(graph, asked)

    @staticmethod
    def _is_returned(graph: KnownGraph, outputs: set[int], found: set[int]) -> bool:
        """Are these outputs of the model what the module returned?"""
        return all(graph.entries[p].role == "output" and found.issuperset(graph.parents[p]) for p in outputs)


class Word(Kind):
    """A label, an output of the model, or part of a label: what it is, only the graph knows for sure."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.name = said
        self.stem, self.call = split_pass(said)
        self.is_label = may_be_label(self.stem)
        self.needs_graph = self.is_label and self.call is not None
        self.steps = steps_of(said)
        self.is_path = said.startswith((".", "["))
        self.by_type = self.is_part and "_" not in said

    # ---- while the model runs ---------------------------------------------------------------------------------

    def answer(self, seen: Seen) -> Answer:
        if seen.path is not None and self.leads_to(seen.path):
            return YES
        if seen.layer_type is None:
            return NO
        if self.is_path:
            return ASK if seen.layer_type == "output" and seen.path is None else NO
        return self.of_type(seen.layer_type) if seen.label is None else YES if self.fits(seen.label) else NO

    def of_type(self, layer_type: str) -> Answer:
        """Are the operations of this type meant?"""
        if layer_type == "output":  # which path it has is not known yet
            return YES if self.is_part and self.name in layer_type else ASK
        if self.is_label:
            return ASK if self.stem.partition("_")[0] == layer_type else NO
        if self.is_part and "_" not in self.name:
            return YES if self.name in layer_type else NO
        return ASK if self.is_part and layer_type.endswith(self.name.partition("_")[0]) else NO

    @property
    def is_part(self) -> bool:
        """Can it be a part of a label? Digits alone can't, nor can a whole label be part of another."""
        return not self.is_label and not self.name.isdecimal()

    def fits(self, label: str) -> bool:
        if self.is_label:
            return self.stem in (label, label.rpartition("_")[0])
        return self.is_part and self.name in label

    def leads_to(self, path: str) -> bool:
        """Does it name an output at this path, or what that is in?"""
        steps = steps_of(path)
        return bool(steps and self.steps) and steps[: len(self.steps or ())] == self.steps  # type: ignore[index]

    # ---- when the graph is known ------------------------------------------------------------------------------

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        exactly = self.exactly(graph)
        if exactly or not self.is_part or self.is_path:
            return exactly
        layers = [layer for layer, label in enumerate(graph.layer_labels) if self.name in label]
        return {place for layer in layers for place in graph.layer_entries[layer]}

    def exactly(self, graph: KnownGraph) -> set[int]:
        """The entries of the layer, or the outputs, with this very name."""
        layer = graph.layer_numbers.get(self.stem)
        entries = [] if layer is None else graph.layer_entries[layer]
        if self.call is not None:
            entries = entries[self.call - 1 : self.call] if self.call else []
        outputs = {place for place in self._outputs(graph) if self.leads_to(graph.entries[place].address or "")}
        if entries and outputs:
            raise LayerNotFoundError(
                f"{self.name!r} is the layer {graph.layer_labels[graph.layers[entries[0]]]!r} and the output "
                f"{graph.entries[min(outputs)].address!r}; ask for one by that name"
            )
        if outputs and self.is_part and not self.is_path:
            self._refuse_both(graph, outputs)
        return outputs or set(entries)

    @staticmethod
    def _outputs(graph: KnownGraph) -> Iterable[int]:
        """The places of the model's outputs, which come last."""
        for place in range(len(graph.entries) - 1, -1, -1):
            if graph.entries[place].role != "output":
                return
            yield place

    def _refuse_both(self, graph: KnownGraph, outputs: set[int]) -> None:
        labels = [label for label in graph.layer_labels if self.name in label]
        if (
            labels
            and {place for label in labels for place in graph.layer_entries[graph.layer_numbers[label]]} != outputs
        ):
            path = graph.entries[min(outputs)].address
            raise LayerNotFoundError(
                f"{self.name!r} is the output {path!r} and part of the label {labels[0]!r}; ask for the output by "
                f"{path!r}, for the layers by {'*' + self.name + '*'!r}"
            )

    def nothing(self, graph: KnownGraph) -> str:
        layer = graph.layer_numbers.get(self.stem)
        if layer is not None:
            total = len(graph.layer_entries[layer])
            return f"no pass {self.name!r}: {self.stem} has {total}"
        tensors = (("parameter", "params", graph.trace.param_infos), ("buffer", "buffers", graph.trace.buffer_infos))
        for kind, where, infos in tensors:
            if any(self.name in info.all_addresses for info in infos):
                return f"no layer or module {self.name!r}; it is a {kind}: log.{where}[{self.name!r}]"
        if self.name.isdecimal():
            return f"no layer or module {self.name!r}; a number is written without quotes: {int(self.name)}"
        hint = near_names(self.stem, graph) or "; print the log to see the names"
        return f"no layer or module {self.name!r}{hint}"

    def several(self, labels: Sequence[str]) -> str:
        return f"{self.name!r} is part of several names: {_listed(labels)}; ask for one of them, or log.select(...)"


class Like(Kind):
    """The layers whose label, in full or short, a pattern fits."""

    def __init__(self, said: Selector, fits: Callable[[str], Any], start: str, every: bool, call: int | None) -> None:
        super().__init__(said)
        self.needs_graph = call is not None
        self._fits = fits
        self._start = start  # of each label that fits
        self._every = every  # does what fits the beginning of a label fit all of it?
        self._call = call

    def answer(self, seen: Seen) -> Answer:
        if seen.layer_type is None:
            return NO
        if seen.label is not None and self._call is None:
            return YES if self.fits(seen.label) else NO
        beginning = f"{seen.layer_type}_"
        if not beginning.startswith(self._start[: len(beginning)]):
            return NO
        return YES if self._every and self._call is None and self._fits(beginning) else ASK

    def fits(self, label: str) -> bool:
        return bool(self._fits(label) or self._fits(label.rpartition("_")[0]))

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        layers = [
            entries for entries, name in zip(graph.layer_entries, graph.layer_labels, strict=True) if self.fits(name)
        ]
        passes = slice(None) if self._call is None else slice(self._call - 1, self._call)
        return {place for entries in layers for place in entries[passes]}

    def modules(self, total: int) -> set[int]:
        return set()


class AnyOf(Kind):
    """What at least one of several kinds means."""

    def __init__(self, said: Selector, members: Sequence[Kind]) -> None:
        super().__init__(said)
        self.members = members
        self.of_modules = any(member.of_modules for member in members)
        self.needs_graph = any(member.needs_graph for member in members)
        self.by_type = all(member.by_type for member in members)

    def answer(self, seen: Seen) -> Answer:
        return max([member.answer(seen) for member in self.members])

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set().union(*[member.places(graph, asked) for member in self.members])

    def modules(self, total: int) -> set[int]:
        return set().union(*[member.modules(total) for member in self.members])

    def predicates(self) -> list[Predicate]:
        return [predicate for member in self.members for predicate in member.predicates()]

    def modules_asked(self) -> set[int]:
        return set().union(*[member.modules_asked() for member in self.members])


class AllOf(AnyOf):
    """What every one of several kinds means."""

    def answer(self, seen: Seen) -> Answer:
        return min([member.answer(seen) for member in self.members])

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set.intersection(*[member.places(graph, asked) for member in self.members])

    def modules(self, total: int) -> set[int]:
        return set.intersection(*[member.modules(total) for member in self.members])


class NoneOf(AnyOf):
    """What no one of several kinds means."""

    def __init__(self, said: Selector, members: Sequence[Kind]) -> None:
        super().__init__(said, members)
        self.needs_graph = self.needs_graph or self.of_modules  # a module may still return it

    def answer(self, seen: Seen) -> Answer:
        return Answer(YES - super().answer(seen))

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        return set(range(len(graph.entries))) - super().places(graph, asked)

    def modules(self, total: int) -> set[int]:
        return set(range(total)) - super().modules(total)


# ---- from selectors to kinds ----------------------------------------------------------------------------------


class Matcher:
    """Selectors that know the model's modules: what `compile` returns."""

    def __init__(self, kinds: Sequence[Kind], argument: str) -> None:
        self.kinds = kinds
        self.argument = argument
        self.predicates = list(dict.fromkeys(predicate for kind in kinds for predicate in kind.predicates()))
        self.modules_asked = set().union(*[kind.modules_asked() for kind in kinds])

    def answer(self, seen: Seen) -> Answer:
        """Is this value meant by any of the selectors?"""
        return max([kind.answer(seen) for kind in self.kinds], default=NO)

    def places(self, graph: KnownGraph, asked: Asked) -> list[int]:
        """The entries that are meant, in order. A selector that means nothing is an error."""
        chosen: set[int] = set()
        for kind in self.kinds:
            found = kind.places(graph, asked)
            if not found:
                raise LayerNotFoundError(f"{self.argument}: {kind.nothing(graph)}")
            chosen |= found
        return sorted(chosen)


def compile(selection: Selection, modules: ModuleTable, argument: str, *, modules_only: bool = False) -> Matcher:
    """Selectors, as the user gave them in `argument`, for a model with these modules."""
    return Matcher([_kind_of(each, modules, argument, modules_only) for each in selection.selectors], argument)


def modules_chosen(selection: Selection, modules: ModuleTable, argument: str) -> set[int]:
    """The modules that selectors mean, by their numbers. A selector that means none is an error."""
    chosen: set[int] = set()
    for kind in compile(selection, modules, argument, modules_only=True).kinds:
        found = kind.modules(len(modules.infos))
        if not found:
            raise LayerNotFoundError(f"{argument}: {selector_text(kind.said)}: the model has no such module")
        chosen |= found
    return chosen


def _kind_of(selector: Selector, modules: ModuleTable, argument: str, modules_only: bool) -> Kind:
    if isinstance(selector, str):
        return _kind_of_name(selector, modules, argument, modules_only)
    if isinstance(selector, Combination):
        kind = {"all_of": AllOf, "any_of": AnyOf, "~": NoneOf}[selector.word]
        return kind(selector, [_kind_of(member, modules, argument, modules_only) for member in selector.members])
    if isinstance(selector, re.Pattern):
        found = Returned(selector, _numbers_like(selector.search, modules))
        return AnyOf(selector, [found, Like(selector, selector.search, "", every=False, call=None)])
    if isinstance(selector, type):
        return Returned(selector, [n for n, info in enumerate(modules.infos) if _is_a(info, selector)])
    if isinstance(selector, int):
        return Number(selector)
    return Asking(selector)


#: A name, the call of a module or pass of a layer, the position among the tensors that were returned.
_NAME = re.compile(r"(?P<stem>.+?)(?::(?P<call>\d+))?(?:\[(?P<index>\d+)\])?", re.DOTALL)


def _kind_of_name(said: str, modules: ModuleTable, argument: str, modules_only: bool) -> Kind:
    parts = _NAME.fullmatch(said)
    assert parts is not None  # it is not empty
    stem = parts["stem"]
    call, index = (int(number) if number is not None else None for number in parts.group("call", "index"))
    numbers = modules.numbers
    if stem == "self" and stem not in numbers:
        return Returned(said, [numbers[""]], call, index)
    if stem in numbers:
        return Named(said, [numbers[stem]], call, index)
    if stem.startswith("self.") and stem[5:] in numbers:
        return Returned(said, [numbers[stem[5:]]], call, index)
    if "*" in stem or "?" in stem:
        fits = glob(stem)
        found = Returned(said, _numbers_like(fits, modules), call, index)
        like = Like(said, fits, re.split("[*?]", stem)[0], stem.endswith("*"), call)
        return found if index is not None else AnyOf(said, [found, like])
    if modules_only:
        hint = near(stem, filter(None, numbers)) or "; print the model to see its modules"
        raise LayerNotFoundError(f"{argument}: the model has no module {stem!r}{hint}")
    return Word(said)


def glob(pattern: str) -> Callable[[str], Any]:
    """`*` stands for any letters but dots, `**` for any letters at all, `?` for one letter."""
    wild = {"**": ".*", "*": r"[^.]*", "?": r"[^.]"}
    parts = [wild.get(part) or re.escape(part) for part in re.split(r"(\*\*|\*|\?)", pattern)]
    return re.compile("".join(parts), re.DOTALL).fullmatch


def _numbers_like(fits: Callable[[str], Any], modules: ModuleTable) -> list[int]:
    """The modules with an address that fits; the model itself has none."""
    return [
        n for n, info in enumerate(modules.infos) if any(address and fits(address) for address in info.all_addresses)
    ]


def _is_a(info: ModuleLike, wanted: type) -> bool:
    """Is a module of this class, or of one derived from it? Classes are known by name: a log may be from elsewhere."""
    name = qualified(wanted)
    return name in (info.class_qualname, *info.bases) or name == "torch.nn.modules.module.Module"


def qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# ---- names ----------------------------------------------------------------------------------------------------

_LABEL = re.compile(r"[a-z0-9]+_\d+(_\d+)?")
_STEP = re.compile(
    r"""\.?(?P<name>[^.\[\]'"]+)|\[(?P<index>-?\d+)\]|\[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]""", re.DOTALL
)


def split_pass(name: str) -> tuple[str, int | None]:
    """`fc:2` is the second pass of `fc`."""
    stem, _, number = name.rpartition(":")
    return (stem, int(number)) if stem and number.isdecimal() else (name, None)


def may_be_label(name: str) -> bool:
    """Does a name have the form of a label, `conv2d_3_7` or `conv2d_3`?"""
    return _LABEL.fullmatch(name) is not None


def steps_of(path: str) -> tuple[str, ...] | None:
    """`logits`, `.logits` and `['logits']` are one step, `past[0][1]` three; None for what is no path."""
    steps, end = [], 0
    while end < len(path):
        step = _STEP.match(path, end)
        if step is None:
            return None
        steps.append(step["name"] or step["index"] or step["key"] or "")
        end = step.end()
    return tuple(steps)


def numbered(number: int, total: int) -> int:
    """The place with this number among `total`; negative numbers count from the end."""
    if not -total <= number < total:
        raise LayerNotFoundError(f"no operation {number}: the log has {total}, numbered 0 to {total - 1}")
    return number % total


def near_names(name: str, graph: KnownGraph) -> str:
    """A phrase with the labels and addresses nearest to a name, each layer once."""
    short = may_be_label(name.lower()) and name.count("_") == 1
    labels = [label.rpartition("_")[0] if short else label for label in graph.layer_labels]
    addresses = [address for info in graph.modules.infos for address in info.all_addresses if address]
    return near(name, [*addresses, *labels])


def _listed(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
    return ", ".join(labels[:6]) + more


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"

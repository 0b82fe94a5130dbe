"""From selectors to kinds, once the modules of the model are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import LayerNotFoundError, near
from .kinds import AllOf, AnyOf, Asking, Kind, NoneOf, Number
from .label_kinds import Like, Word
from .module_kinds import Named, Returned
from .seen import NO, Answer, Asked, KnownGraph, ModuleLike, ModuleTable, Seen
from .selection import Combination, Selection, Selector, selector_text


class Matcher:
    """Selectors that know the model's modules: what `compile` returns."""

    def __init__(self, kinds: Sequence[Kind], argument: str) -> None:
        self.kinds = kinds
        self.argument = argument
        self.predicates = list(dict.fromkeys(predicate for kind in kinds for predicate in kind.predicates()))
        self.modules_asked = set().union(*[kind.modules_asked() for kind in kinds])

    def answer(self, seen: Seen) -> Answer:
        """Does any of the selectors match this value?"""
        return max([kind.answer(seen) for kind in self.kinds], default=NO)

    def places(self, graph: KnownGraph, asked: Asked) -> list[int]:
        """The entries that they match, in order. A selector that matches nothing is an error."""
        chosen: set[int] = set()
        for kind in self.kinds:
            found = kind.places(graph, asked)
            if not found:
                raise LayerNotFoundError(f"{self.argument}: {kind.nothing(graph)}")
            chosen |= found
        return sorted(chosen)


def compile(selection: Selection, modules: ModuleTable, argument: str, *, modules_only: bool = False) -> Matcher:
    """Selectors, as the user gave them in `argument`, for a model with these modules."""
    return Matcher([kind_of(each, modules, argument, modules_only) for each in selection.selectors], argument)


def modules_chosen(selection: Selection, modules: ModuleTable, argument: str) -> set[int]:
    """The modules that selectors match, by their numbers. A selector that matches none is an error."""
    chosen: set[int] = set()
    for kind in compile(selection, modules, argument, modules_only=True).kinds:
        found = kind.modules(len(modules.infos))
        if not found:
            raise LayerNotFoundError(f"{argument}: {selector_text(kind.said)}: the model has no such module")
        chosen |= found
    return chosen


def kind_of(selector: Selector, modules: ModuleTable, argument: str, modules_only: bool = False) -> Kind:
    """One selector, checked, for a model with these modules."""
    if isinstance(selector, str):
        return _kind_of_name(selector, modules, argument, modules_only)
    if isinstance(selector, Combination):
        kind = {"all_of": AllOf, "any_of": AnyOf, "~": NoneOf}[selector.word]
        return kind(selector, [kind_of(member, modules, argument, modules_only) for member in selector.members])
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

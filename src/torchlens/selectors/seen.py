"""What a selector is asked with: a value while the model runs, the modules, the finished graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from .selection import Predicate


class Answer(IntEnum):
    """Does a selector match a value? `ASK` again when more is known."""

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

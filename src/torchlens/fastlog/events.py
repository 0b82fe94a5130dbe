"""What happens in a forward pass, as the light path sees it: small objects, made only where a rule may want them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..capture.functions import Function
from ..capture.naming import operator_at
from ..capture.records import Facts, Site


class Tally:
    """How often a layer type has been seen in this run, and what to do with operations of this type.

    All that can be decided by the type alone is decided when the type is first seen.
    """

    __slots__ = ("ask", "count", "kept_unasked", "layer_type", "looked_at", "spec")

    def __init__(self, layer_type: str) -> None:
        self.layer_type = layer_type
        self.count = 0
        self.looked_at = False  # may a rule want one of these?
        self.spec: Any = None  # a CaptureSpec, if all of them are kept
        self.ask: Callable[[Any], Any] | None = None  # the predicate that alone decides
        self.kept_unasked = False  # are they kept as they are, without asking any rule?


#: A value by its type, its number among those and its number among all.
Name = tuple[Tally, int, int]


class Run:
    """One forward pass of many."""

    __slots__ = ("index", "sample_id")

    def __init__(self, index: int, sample_id: Any) -> None:
        self.index = index
        self.sample_id = sample_id


class Frame(NamedTuple):
    """One call of a module, with the call around it."""

    module: int  # its number among the modules of the model
    address: str  # "" for the model itself
    class_name: str
    number: int  # first call in this run is 1
    parent: Frame | None

    @property
    def label(self) -> str:
        return f"{self.address or 'self'}:{self.number}"


class Event(NamedTuple):
    """Something that happened: an operation, an input, the first use of a buffer, the begin or end of a module call."""

    kind: str
    number: int  # among the events of the run
    run: Run
    frame: Frame | None
    name: Name | None  # None for module calls
    position: int | None  # among the tensors that the call returned, if they are several
    facts: Facts | None  # shape, type and device; None where there is no tensor, or where the kept one can tell
    function: Function | str | None = None  # or its name, where the event comes from a file
    site: Site = ()
    parents: Sequence[Any] | Callable[[], Sequence[Any]] = ()  # names, or labels; or what gives them

    @property
    def label(self) -> str:
        if self.name is None:
            assert self.frame is not None
            return self.frame.label
        return event_label(self.name)

    @property
    def func_name(self) -> str | None:
        if self.function is None or isinstance(self.function, str):
            return self.function
        return operator_at(self.function.name, self.site) or self.function.name

    def parent_labels(self) -> tuple[str, ...]:
        parents = self.parents() if callable(self.parents) else self.parents
        return tuple(dict.fromkeys(p if isinstance(p, str) else event_label(p) for p in parents))

    def module_stack(self) -> tuple[str, ...]:
        stack, frame = [], self.frame
        while frame is not None:
            stack.append(frame.label)
            frame = frame.parent
        return tuple(stack[::-1])

    def beside(self, position: int, facts: Facts) -> Event:
        """The same event for another of its tensors."""
        return self._replace(position=position, facts=facts)


#: Make an `Event` or `Frame` of a tuple, in a third of the time that `Event(...)` takes.
new_event = new_frame = tuple.__new__


class History:
    """The latest events, and the latest operations among them."""

    __slots__ = ("events", "ops")

    def __init__(self, size: int) -> None:
        self.events: deque[Event] = deque(maxlen=size)
        self.ops: deque[Event] = deque(maxlen=size)

    def add(self, event: Event) -> None:
        self.events.append(event)
        if event.kind == "op":
            self.ops.append(event)

    def clear(self) -> None:
        self.events.clear()
        self.ops.clear()

    def snapshot(self) -> Snapshot:
        return tuple(self.events), tuple(self.ops)


Snapshot = tuple[tuple[Event, ...], tuple[Event, ...]]
NO_HISTORY: Snapshot = ((), ())


def event_label(name: Name) -> str:
    tally, count, total = name
    return f"{tally.layer_type}_{count}_{total}"

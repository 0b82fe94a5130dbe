"""What can be drawn: the few things that a view asks of a log."""

from __future__ import annotations

from typing import Any, Protocol

from ...graph.graph import Graph


class Drawable(Protocol):
    """A log, as far as pictures and pages know it. `ModelLog` is one; `graph` has nearly all that is shown."""

    @property
    def model_name(self) -> str: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def modules(self) -> Any:
        """The module records by address, given to functions of the user's that choose or colour modules."""

    def layer_at(self, place: int, rolled: bool = False) -> Any:
        """The record of an entry, given to functions of the user's that colour nodes or edges."""

    def __contains__(self, name: object) -> bool: ...

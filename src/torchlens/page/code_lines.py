"""The source lines that made the operations, with a few lines of context, each stored once."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from ..capture.naming import frames, is_library_code
from ..capture.records import Call, Site
from ..graph.graph import Graph
from ..source import LINES_BEFORE, FuncCallLocation

_MOST_FRAMES = 8
_AROUND = 5


class CodeLines:
    """Collects call stacks, frames and source lines, each of which gets a number when it first occurs."""

    def __init__(self, graph: Graph, strings: Callable[[str], int]) -> None:
        self._trace, self._strings = graph.trace, strings
        self._stacks: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[int, int, int], int] = {}  # file, line, function
        self._known: dict[tuple[int, ...], list[int]] = {}  # frames of each call site, by the ids of its code
        self._around: dict[int, list[int]] = {-1: []}  # by module call: the frames around it
        self._source: dict[int, dict[int, str]] = {}  # by file, then line

    def number(self, call: Call) -> int:
        """The number of the stack of user code that made a call, innermost frame first."""
        stack = tuple((self._of(call.site) + self._module_call(call.module_call))[:_MOST_FRAMES])
        return self._stacks.setdefault(stack, len(self._stacks)) if stack else -1

    def _module_call(self, number: int) -> list[int]:
        if number not in self._around:
            call = self._trace.module_calls[number]
            self._around[number] = self._of(call.site) + self._module_call(call.parent)
        return self._around[number]

    def _of(self, site: Site) -> list[int]:
        key = tuple(id(part) if index % 2 == 0 else part for index, part in enumerate(site))
        if key not in self._known:
            mine = [frame for frame in frames(site) if not is_library_code(frame[0])]
            self._known[key] = [self._frame(FuncCallLocation(code, instruction)) for code, instruction in mine]
        return self._known[key]

    def _frame(self, location: FuncCallLocation) -> int:
        file = self._strings(location.file)
        frame = file, location.line, self._strings(location.qualname or location.function)
        if frame not in self._frames:
            self._frames[frame] = len(self._frames)
            self._source.setdefault(file, {}).update(_lines_around(location))
        return self._frames[frame]

    def tables(self) -> dict[str, Any]:
        return {
            "stacks": [list(stack) for stack in self._stacks],
            "frames": [list(frame) for frame in self._frames],
            "source": {
                str(file): {str(n): text for n, text in sorted(found.items())} for file, found in self._source.items()
            },
        }


def _lines_around(location: FuncCallLocation) -> dict[int, str]:
    """The source near a line; for a log from disk, what was saved of it."""
    if location._saved_context is None and (lines := linecache.getlines(location.file)):
        first, last = max(1, location.line - _AROUND), min(len(lines), location.line + _AROUND)
        return {number: lines[number - 1].rstrip("\n")[:300] for number in range(first, last + 1)}
    first = max(1, location.line - LINES_BEFORE)
    return {first + offset: text.rstrip("\n")[:300] for offset, text in enumerate(location.code_context)}

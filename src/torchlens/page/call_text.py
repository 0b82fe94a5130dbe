"""A call as text: its arguments, with references to other entries in place of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..capture.records import Call, Value
from ..graph.graph import Graph
from ..words import shape_words

_LONGEST = 80  # letters of one argument
_MOST = 40  # arguments and members of lists


def described_call(graph: Graph, place: int, call: Call, strings: Callable[[str], int]) -> list[list[int]]:
    """For each argument its name ("" if positional), and either how many entries back it was made, or 0 and its text.

    `conv2d(x, weight, stride=(2, 2))` is `[["", 3], ["", 0, "conv.weight 64x3x7x7"], ["stride", 0, "(2, 2)"]]`, with
    strings by their numbers.
    """
    found: list[list[int]] = []
    for name, argument in _named(call):
        if len(found) == _MOST:
            found.append([strings(""), 0, strings("...")])
            break
        is_entry = isinstance(argument, Value) and argument.role != "param" and argument.index in graph.place
        back = place - graph.place[argument.index] if is_entry else 0
        found.append([strings(name), back] if back > 0 else [strings(name), 0, strings(_words(argument))])
    return found


def _named(call: Call) -> Iterator[tuple[str, Any]]:
    """The arguments with their names; a list of tensors gives one for each, so that the page can link to it."""
    named = [("", argument) for argument in call.args] + list(call.kwargs.items())
    for name, argument in named:
        if isinstance(argument, (tuple, list)) and any(isinstance(member, Value) for member in argument):
            yield from ((f"{name}[{number}]", member) for number, member in enumerate(argument))
        else:
            yield name, argument


def _words(argument: Any) -> str:
    if isinstance(argument, Value):
        return f"{argument.address or argument.role} {shape_words(argument.shape)}"
    text = _plain(argument)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"


def _plain(argument: Any) -> str:
    """Uses `repr` only where it is known to be harmless; any other object is named by its class."""
    if argument is None or isinstance(argument, (bool, int, float, complex, str, slice, type(...))):
        return repr(argument)
    if isinstance(argument, (tuple, list)):
        members = ", ".join(_plain(member) for member in argument[:_MOST])
        return f"({members})" if isinstance(argument, tuple) else f"[{members}]"
    if type(argument).__module__ in ("torch", "torch.nn"):
        return str(argument)
    return f"<{type(argument).__name__}>"

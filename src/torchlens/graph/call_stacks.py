"""From recorded frames to the stack that a user would recognise."""

from __future__ import annotations

from ..capture.naming import frames, is_library_code
from ..capture.records import Call, ReadEvent, Trace
from ..source import FuncCallLocation


def user_stack(trace: Trace, call: Call | ReadEvent) -> list[FuncCallLocation]:
    """The user's lines, innermost first: those of the call, then those of each module call around it."""
    stack = [frame for frame in frames(call.site) if not is_library_code(frame[0])]
    module_call = call.module_call
    while module_call >= 0:
        around = trace.module_calls[module_call]
        stack += [frame for frame in frames(around.site) if not is_library_code(frame[0])]
        module_call = around.parent
    return [FuncCallLocation(code, instruction) for code, instruction in stack]


def call_in_words(trace: Trace, call: Call | ReadEvent, name: str | None = None) -> str:
    """The function's name, or another one, and the innermost line of the user's that made the call."""
    name = name or (call.function if isinstance(call, ReadEvent) else call.function.name)
    stack = user_stack(trace, call)
    return f"{name} ({stack[0].file}:{stack[0].line})" if stack else name

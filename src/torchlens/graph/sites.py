"""From recorded frames to the stack that a user would recognise."""

from __future__ import annotations

from types import CodeType

from ..capture.naming import frames, is_library_code
from ..capture.records import Recording, Site


def user_stack(recording: Recording, site: Site, module_call: int) -> list[tuple[CodeType, int]]:
    """The user's frames, innermost first: those of the call, then those of each module call around it."""
    stack = [frame for frame in frames(site) if not is_library_code(frame[0])]
    while module_call >= 0:
        around = recording.module_calls[module_call]
        stack += [frame for frame in frames(around.site) if not is_library_code(frame[0])]
        module_call = around.parent
    return stack

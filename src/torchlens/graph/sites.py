"""From recorded frames to the stack that a user would recognise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from .._torch import LIBRARY_FOLDERS
from ..capture.records import Recording, Site
from ..source import SavedCode


@lru_cache(maxsize=4096)
def _is_library_file(filename: str) -> bool:
    return filename.startswith((*LIBRARY_FOLDERS, "<frozen "))


def is_library_code(code: CodeType | SavedCode) -> bool:
    """Does this code belong to torch or to this package, rather than to the user?"""
    return code.is_library if isinstance(code, SavedCode) else _is_library_file(code.co_filename)


def frames(site: Site) -> Iterator[tuple[CodeType, int]]:
    """The (code, instruction) pairs of a site, innermost first."""
    return zip(site[::2], site[1::2], strict=True)


def user_stack(recording: Recording, site: Site, module_call: int) -> list[tuple[CodeType, int]]:
    """The user's frames, innermost first: those of the call, then those of each module call around it."""
    stack = [frame for frame in frames(site) if not is_library_code(frame[0])]
    while module_call >= 0:
        around = recording.module_calls[module_call]
        stack += [frame for frame in frames(around.site) if not is_library_code(frame[0])]
        module_call = around.parent
    return stack

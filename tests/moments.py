"""Every moment at which a signal can interrupt what Python does, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any


class Interrupted(KeyboardInterrupt):
    """What is raised at such a moment."""


def interrupted_everywhere(work: Callable[[], Any], stride: int = 1) -> Iterator[str]:
    """Run `work` again and again, each time interrupted at a later moment, until it ends first; yields where that was.

    Python notices a signal when a function written in Python begins, and when one that is not has returned.
    """
    moment = 0
    while (where := interrupted_at(moment, work)) is not None:
        yield where
        moment += stride


def interrupted_at(moment: int, work: Callable[[], Any]) -> str | None:
    """Run `work`, interrupted when so many moments have passed. None if it was over before."""
    left, where = moment, None
    report = sys.unraisablehook

    def ignored(unraisable: Any) -> None:
        """Python ignores what is raised in the callback of a weak reference, Ctrl-C too: there is nothing to report."""
        if unraisable.exc_type is not Interrupted:
            report(unraisable)

    def profile(frame: Any, event: str, called: Any) -> None:
        nonlocal left, where
        if event not in ("call", "c_return"):
            return
        left -= 1
        if left < 0 and where is None:
            name = getattr(called, "__name__", "begins")
            where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name} {name}"
            raise Interrupted

    def run() -> None:
        sys.setprofile(profile)  # this call's return is the first moment
        work()

    sys.unraisablehook = ignored
    try:
        run()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
        sys.unraisablehook = report
    return where

"""What is wrong with the arguments of an edit, in words that name the right ones."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

from ..errors import ArgumentError, near


def explain_arguments(edit: type[Any]) -> None:
    """Let an edit that is made with wrong arguments say which ones it takes."""
    make = edit.__init__
    signature = inspect.signature(make)

    @wraps(make)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise ArgumentError(_explained(edit.__name__.lower(), signature, kwargs, error)) from None
        make(self, *args, **kwargs)

    edit.__init__ = checked


def _explained(name: str, signature: inspect.Signature, given: dict[str, Any], error: TypeError) -> str:
    _, *known = signature.parameters.values()
    names = [each.name for each in known]
    taken = ", ".join(each.name + "=" * (each.kind is each.KEYWORD_ONLY) for each in known)
    unknown = next((each for each in given if each not in names), None)
    if unknown is None:
        return f"{name}: {error}. It takes {taken}"
    return f"{name} has no argument {unknown!r}{near(unknown, names) or '.'} It takes {taken}"
